"""hops as a library: plan a snapshot, simulate a workload, read the results. See docs/api.md.

    from hopsd import api

    cluster = api.read_cluster("paper-64")
    workload = api.read_workload("paper-64", cluster, seed=1)
    results = [api.simulate(cluster, workload, name) for name in ("hops", "srtf")]
    print(api.summaries(*results)["avg_jct_h"])

The names in ``__all__`` are stable within a major release. Errors derive from ``HopsError``; an
``InputError`` says what is wrong with a file, a name or a workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from hopsd.core.queue.competing import competing_jobs
from hopsd.errors import HopsError, InputError
from hopsd.formats.checked_numbers import check_snapshot, check_workload
from hopsd.formats.snapshot import read_snapshot as parse_snapshot
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.placing import Servers
from hopsd.policies.protocol import Policy
from hopsd.policies.registry import complete, get, names
from hopsd.sim.admission import admit_jobs, horizon
from hopsd.sim.cluster import ClusterSettings, Failure
from hopsd.sim.engine import Progress, SimulationSettings
from hopsd.sim.metrics import JobOutcome, RoundState, Summary
from hopsd.sim.sources import cluster_from as read_cluster
from hopsd.sim.sources import read_file
from hopsd.sim.sources import workload_from as read_workload
from hopsd.sim.study import PolicyResult, figures, play

__all__ = [
    "Allocation",
    "Cluster",
    "ClusterSettings",
    "Column",
    "Failure",
    "GpuType",
    "HopsError",
    "InputError",
    "Job",
    "JobId",
    "Node",
    "NodeName",
    "Plan",
    "PlanSettings",
    "Policy",
    "PolicyResult",
    "Reason",
    "ReasonCode",
    "RoundInfo",
    "Server",
    "Servers",
    "SimulationSettings",
    "Snapshot",
    "ThroughputTable",
    "UserName",
    "Workload",
    "WorkloadJob",
    "WorkloadName",
    "competing_jobs",
    "jobs",
    "plan",
    "policies",
    "read_cluster",
    "read_snapshot",
    "read_workload",
    "rounds",
    "simulate",
    "summaries",
    "timeline",
]

Column = NDArray[Any]
"""A column: one value per row. A table is a dict of columns, which pandas.DataFrame accepts."""


def policies() -> list[str]:
    """Return the names of all policies, those of installed packages last."""
    return names()


def read_snapshot(path: str) -> tuple[Snapshot, PlanSettings]:
    """Read a snapshot and its settings from a file (docs/formats.md), or from stdin if ``-``.

    Raises:
        InputError, OSError: the file cannot be read or is not a snapshot.
    """
    return read_file(path, parse_snapshot)


def plan(
    snapshot: Snapshot,
    settings: PlanSettings | None = None,
    policy: str | Policy | None = None,
) -> Plan:
    """Compute one plan; nothing is changed anywhere.

    ``policy`` is a policy's name or your own function; None selects the one in ``settings``.

    Raises:
        InputError: there is no such policy, or a number is out of bounds.
        SolverError: the plan's program could not be solved.
    """
    settings = settings or PlanSettings()
    check_snapshot(snapshot)
    return _policy(settings.policy if policy is None else policy)(snapshot, settings)


def simulate(
    cluster: Cluster,
    workload: Workload,
    policy: str | Policy,
    *,
    name: str | None = None,
    settings: SimulationSettings | None = None,
    failures: Sequence[Failure] = (),
    progress: Progress | None = None,
) -> PolicyResult:
    """Simulate a workload under one policy, as ``hopsctl simulate`` does.

    ``policy`` is a policy's name or your own function. ``name`` labels the result; the default is
    the name of the policy or function. ``progress`` is called in each round with the virtual time
    in seconds, the number of jobs that have ended and the number of all jobs.

    Raises:
        InputError: there is no such policy, a number is out of bounds, or a job does not fit even
            on the idle cluster.
        BrokenPlanError: the policy's plan cannot be carried out.
    """
    settings = settings or SimulationSettings()
    check_workload(workload)
    label = name or (policy if isinstance(policy, str) else _name_of(policy))
    playable, rejected_jobs = admit_jobs(cluster, workload, settings.round_seconds)
    if rejected_jobs:
        raise InputError(
            f"job {rejected_jobs[0]} fits nowhere, even on an idle cluster"
            + (f", nor do {len(rejected_jobs) - 1} more" if rejected_jobs[1:] else "")
        )
    settings = replace(
        settings,
        plan=replace(settings.plan, policy=label),
        horizon=min(settings.horizon, horizon(playable, settings.round_seconds)),
    )
    return play(label, _policy(policy), cluster, playable, settings, failures, progress)


def summaries(*results: PolicyResult) -> dict[str, Column]:
    """Return a row for each result: the figures that ``hopsctl simulate --json`` prints."""
    rows = []
    for result in results:
        row: dict[str, Any] = {"policy": result.policy}
        for key, value in figures(result).items():
            parts = value.items() if isinstance(value, Mapping) else ()
            row |= {f"{key}_{part}": part_value for part, part_value in parts} or {key: value}
        rows.append(row)
    spreads = ("solve_seconds_median", "solve_seconds_p99", "proven_gap_median", "proven_gap_max")
    extra = dict.fromkeys((*spreads, "wall_seconds"), float)
    return _table(rows, {"policy": str, **_types(Summary), **extra})


def jobs(*results: PolicyResult) -> dict[str, Column]:
    """Return a row for each job of each result.

    Times are in seconds, and nan if the job never started or ended. ``wait``: the total waiting
    time; ``age``: the expected run time without waiting; ``ftf``: finish-time fairness;
    ``gpu_seconds_held``: GPUs times seconds.
    """
    rows = (
        {"policy": result.policy, **asdict(outcome), "jct": outcome.jct}
        for result in results
        for outcome in result.outcomes
    )
    return _table(rows, {"policy": str, **_types(JobOutcome), "jct": float})


def rounds(*results: PolicyResult) -> dict[str, Column]:
    """Return a row for each round of each result, with the state at the start of the round.

    The state is the queued and running jobs, the idle GPUs, the fragments (idle GPUs while a job
    waits) and the samples per second of all jobs. ``solve_seconds`` and ``gap`` are the time that
    the round's first plan took and its proven gap.
    """
    rows = (
        {
            "policy": r.policy,
            **asdict(state),
            "solve_seconds": first_plan.seconds,
            "gap": first_plan.gap,
        }
        for r in results
        for state, first_plan in zip(r.rounds, r.first_plans, strict=True)
    )
    return _table(rows, {"policy": str, **_types(RoundState), "solve_seconds": float, "gap": float})


def timeline(*results: PolicyResult) -> dict[str, Column]:
    """Return a row for each change and node: from ``time`` on, ``job`` holds ``gpus`` of ``node``.

    A change that leaves a job without GPUs is a single row, with node "" and 0 GPUs.
    """
    rows = (
        {"policy": r.policy, "time": change.time, "job": change.job, "node": node, "gpus": gpus}
        for r in results
        for change in r.changes
        for node, gpus in (change.placement.parts or (("", 0),))
    )
    return _table(rows, {"policy": str, "time": float, "job": str, "node": str, "gpus": int})


def _policy(policy: str | Policy) -> Policy:
    return get(policy) if isinstance(policy, str) else complete(policy)


def _name_of(policy: Policy) -> str:
    return str(getattr(policy, "__name__", type(policy).__name__))


def _types(kind: type) -> dict[str, type]:
    """Map the fields of a dataclass to column types: str, int, or else float (nan for None)."""
    hints = get_type_hints(kind)
    return {field.name: _type(hints[field.name]) for field in fields(kind)}


def _type(hint: Any) -> type:
    hint = getattr(hint, "__supertype__", hint)
    return hint if hint in (str, int) else float


def _table(rows: Iterable[Mapping[str, Any]], types: Mapping[str, type]) -> dict[str, Column]:
    """Turn rows into columns of the given types, even if there are no rows; None becomes nan."""
    table_rows = list(rows)
    return {
        key: np.array([np.nan if row[key] is None else row[key] for row in table_rows], kind)
        for key, kind in types.items()
    }
