"""Works of the study: clusters with their jobs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median_low

from bench.rivals import sia
from bench.study.cases import BASE, TRACES, Case, Conditions
from hopsd.errors import InputError
from hopsd.model.scenario import Cluster, Workload, WorkloadJob
from hopsd.sim import models
from hopsd.sim.facts import facts_of
from hopsd.sim.models import MODELS
from hopsd.sim.presets import PRESETS, preset

JOBS = 40
"""Number of jobs of the base work, like those of ``paper-64`` on its GPUs; they need 15 hours."""

START_SECONDS, DISK_RATE = 10.0, 1e8
"""Restart cost by model: start-up seconds, and bytes per second at which 12 bytes per parameter
(weights and Adam's two moments) are saved and read."""


_PAPER = PRESETS["paper-64"]
OTHER_CLUSTERS = {
    "alike-8": replace(_PAPER, groups=((models.RTX3090_384G_8, 8, 8),)),
    "alike-4": replace(_PAPER, groups=((models.TITANXP, 16, 4),)),
    "two-types": replace(_PAPER, groups=((models.RTX3090_384G_8, 4, 8), (models.GTX1080TI, 8, 4))),
}
"""Other clusters of 64 GPUs; their jobs are drawn like those of the base work."""


def work(case: Case, folder: Path | None) -> tuple[Cluster, Workload]:
    """Return a cluster and its jobs. ``folder`` is Sia's ``sia-simulator``.

    Raises:
        InputError: the work is one of Sia's traces and ``folder`` is None or lacks it.
    """
    if case.work in TRACES:
        trace, kind = case.work.split("-")
        path = sia.traces(folder).get(f"{trace}-{case.seed + 1}") if folder else None
        if folder is None or path is None:
            raise InputError(f"{case.work}: --sia names no folder with trace {case.seed + 1}")
        return sia.cluster(), sia.workload(folder, path, rigid=kind == "rigid")
    if case.work not in (BASE, *OTHER_CLUSTERS):
        scenario = preset(case.work)
        return scenario.cluster(), scenario.workload(case.seed)
    return draw(case.work, case.conditions, case.seed)


def draw(
    name: str, conditions: Conditions, seed: int, jobs: int = JOBS
) -> tuple[Cluster, Workload]:
    """Draw ``jobs`` jobs of the base work, or jobs like them on another cluster."""
    scenario = OTHER_CLUSTERS.get(name, _PAPER)
    cluster, workload = scenario.cluster(), scenario.workload(seed, jobs=jobs)
    return cluster, replace(workload, jobs=adapt_jobs(conditions, cluster, workload, seed))


def adapt_jobs(
    conditions: Conditions, cluster: Cluster, workload: Workload, seed: int
) -> tuple[WorkloadJob, ...]:
    """Adapt jobs to ``conditions``: load, rigid jobs, restart costs."""
    gpu_seconds = sum(facts.gpu_seconds for facts in facts_of(cluster, workload))
    span = gpu_seconds / cluster.gpus / conditions.load
    stretch = span / workload.jobs[-1].submit
    rigid = _sample_ids(workload.jobs, conditions.rigid, seed)
    parameters = {model.name: model.params for model in MODELS}
    return tuple(
        replace(
            job,
            submit=job.submit * stretch,
            reqs=(median_low(job.reqs),) if job.id in rigid else job.reqs,
            restart_seconds=None
            if conditions.restart is not None
            else START_SECONDS + 2 * 12.0 * parameters[job.workload] / DISK_RATE,
        )
        for job in workload.jobs
    )


def _sample_ids(jobs: Sequence[WorkloadJob], share: float, seed: int) -> set[str]:
    """Ids of a random share of the jobs; a larger share contains a smaller one."""
    ids = [job.id for job in jobs]
    random.Random(seed).shuffle(ids)  # a simulation, not a secret
    return set(ids[: round(share * len(ids))])
