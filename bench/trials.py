"""Whether trials of shapes never measured pay: simulations with and without them.

    python -m bench.trials [--seeds 5] [--jobs 60] [--rate 8] [--policy hops]

A third simulation, whose scheduler knows all true speeds, shows what there is to gain.

The scheduler knows basic times of one GPU of each type, as from profile runs, and learns the speed
of a shape when a job runs in it. True speeds are equations 1 to 5 with an error of each shape's
own, as large as measured on Pollux's data (docs/estimator.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp

import click
import numpy as np

from hopsd.core.queue.trials import TrialSettings
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.core.speed.throughput import (
    BasicTimes,
    Communication,
    IterationModel,
    theory_per_gpu,
)
from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Bandwidth, Knowledge, Theory
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.registry import get
from hopsd.sim.engine import Run, Simulation, SimulationSettings
from hopsd.sim.facts import facts_of
from hopsd.sim.information.knowledge import MEASURED_SPEED_ERROR
from hopsd.sim.metrics import job_outcomes
from hopsd.sim.models import MODELS, basic_times
from hopsd.sim.presets import Preset, preset

PRESET = "paper-64"
RATE = 30.0
"""Jobs an hour: three times the preset's, so that jobs wait for each other."""

MODEL = IterationModel(communication=Communication.SWITCHED)


@dataclass(frozen=True, slots=True)
class TrueSpeeds:
    """Equations 1 to 5 with an error of each shape's own, by ``name`` and ``seed``."""

    times: BasicTimes
    name: str
    seed: int

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """The true speed."""
        right = theory_per_gpu(self.times, gpus, nodes, MODEL)
        if gpus == 1:
            return right
        rng = random.Random(f"{self.seed} {self.name} {gpus} {nodes}")  # no secret
        return right * exp(rng.gauss(0.0, MEASURED_SPEED_ERROR))

    def between(self, gpus: int, nodes: int) -> tuple[float, float]:
        """Nothing else."""
        return self.per_gpu(gpus, nodes), self.per_gpu(gpus, nodes)

    def source(self, gpus: int, nodes: int) -> str:  # noqa: ARG002
        """Not measured by anyone."""
        return "truth"


Times = dict[tuple[WorkloadName, GpuType], BasicTimes]


def times_of(scenario: Preset) -> Times:
    return {
        (model.name, hardware.gpu_type): basic_times(model, hardware)
        for model in MODELS
        for hardware, _, _ in scenario.groups
    }


def truth(scenario: Preset, times: Times, seed: int, jobs: int, rate: float = RATE) -> Workload:
    workload = scenario.workload(seed, jobs=jobs, rate_per_hour=rate)

    def table(name: WorkloadName, gpu_type: GpuType, known: ThroughputTable) -> ThroughputTable:
        speeds = TrueSpeeds(times[name, gpu_type], f"{name} {gpu_type}", seed)
        return replace(known, by_shape=speeds)

    tables = {
        name: {gpu_type: table(name, gpu_type, known) for gpu_type, known in of_types.items()}
        for name, of_types in workload.throughput.items()
    }
    return replace(workload, throughput=tables)


def known_at_first(scenario: Preset, times: Times, *, calibrated: bool) -> Knowledge:
    links = scenario.cluster().links
    bandwidth = [Bandwidth(t, link.b_link, link.b_net) for t, link in links.items()]
    return Knowledge(
        theory=tuple(_theories(times)), bandwidth=tuple(bandwidth) if calibrated else ()
    )


def _theories(times: Times) -> Iterator[Theory]:
    for (name, gpu_type), known in times.items():
        data = known.t_d
        yield Theory(
            name,
            gpu_type,
            inference=False,
            pattern=int(known.pattern),
            batch_size=float(known.batch_size),
            params=known.params,
            t_f=known.t_f,
            t_b=known.t_b,
            t_u=known.t_u,
            p_cache=data.p_cache,
            mu_cache=data.mu_cache,
            sigma_cache=data.sigma_cache,
            mu_load=data.mu_load,
            sigma_load=data.sigma_load,
            w_cache=0.0,
            w_load=0.0,
            records=4,
            iterations=80,
            at=0.0,
        )


@dataclass(frozen=True, slots=True)
class Played:
    """Hours; ``trials``: how many were begun."""

    mean: float
    makespan: float
    trials: int
    restarts: int


def play(
    cluster: Cluster,
    workload: Workload,
    known: Knowledge | None,
    policy: str,
    trials: TrialSettings,
) -> Played:
    """One simulation of jobs that say their samples. ``known``: at first; None: all true speeds."""
    defaults = SimulationSettings()
    settings = SimulationSettings(
        plan=replace(defaults.plan, policy=policy),
        snapshot=SnapshotSettings(EstimatorSettings(model=MODEL)),
        trials=trials,
    )
    run: Run = Simulation(cluster, workload, get(policy), settings, learns=known).run()
    if run.unfinished:
        raise SystemExit(f"jobs never ended: {sorted(run.unfinished)}")
    outcomes = job_outcomes(run.changes, facts_of(cluster, workload), cluster.gpus, run.unfinished)
    ends = [(one.end, one.submit) for one in outcomes if one.end is not None]
    return Played(
        float(np.mean([end - submit for end, submit in ends])) / 3600.0,
        max(end for end, _ in ends) / 3600.0,
        len(run.trials),
        sum(one.restarts for one in outcomes),
    )


@click.command()
@click.option("--seeds", default=8)
@click.option("--first", default=0, help="The first seed.")
@click.option("--jobs", default=25)
@click.option("--rate", default=RATE, help="Jobs an hour.")
@click.option("--policy", default="hops")
@click.option("--calibrated", is_flag=True, help="Bandwidths are known.")
@click.option("--gain", default=TrialSettings().gain)
@click.option("--every", default=TrialSettings().every)
@click.option("--share", default=TrialSettings().share)
def main(
    seeds: int,
    first: int,
    jobs: int,
    rate: float,
    policy: str,
    calibrated: bool,
    gain: float,
    every: int,
    share: float,
) -> None:
    """Means without and with trials and with true speeds, and the mean changes to the first with
    their standard errors.
    """
    scenario = preset(PRESET)
    times, cluster = times_of(scenario), scenario.cluster()
    known = known_at_first(scenario, times, calibrated=calibrated)
    on = TrialSettings(enabled=True, gain=gain, every=every, share=share)
    ways = (known, TrialSettings()), (known, on), (None, TrialSettings())
    found = []
    for seed in range(first, first + seeds):
        workload = truth(scenario, times, seed, jobs, rate)
        found.append([play(cluster, workload, knows, policy, tries) for knows, tries in ways])
        print(seed, *found[-1], flush=True)
    for name in ("mean", "makespan", "restarts", "trials"):
        values = np.array([[getattr(one, name) for one in each] for each in found])
        change = values - values[:, :1]
        error = (
            change.std(axis=0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0 * change[0]
        )
        told = [
            f"{mean:.2f} ({more:+.3f} +- {off:.3f})"
            for mean, more, off in zip(values.mean(0), change.mean(0), error, strict=True)
        ]
        print(f"{name}: {', '.join(told)}")


if __name__ == "__main__":
    main()
