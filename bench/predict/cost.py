"""Measures the cost of one set of predictions on a large cluster.

    python -m bench.predict.cost [--gpus 10000] [--jobs 4000] [--policy hops ...]

Prints the CPU seconds of a first set and of a second one, for which calibration has outcomes, and
the memory that both took. Jobs run until no GPU is idle; all others wait.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Sequence

import click

from bench.result_file import write_result
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PriorityName, RoundInfo, Snapshot
from hopsd.predict.predictor import Predictor
from hopsd.predict.situation import situation_of

TYPES = {GpuType("fast"): 2.0, GpuType("slow"): 1.0}
PER_NODE = 8
COUNTS = (1, 2, 4, 8)
ROUND_SECONDS = 360.0
BOUND_SECONDS = 60.0
"""Time within which a set has to be made."""


def snapshot(gpus: int, jobs: int, at: float) -> Snapshot:
    """A full cluster with a queue."""
    rng = random.Random(0)  # a simulation, not a secret
    kinds = list(TYPES)
    idle = {NodeName(f"n{i}"): [kinds[i % len(kinds)], PER_NODE] for i in range(gpus // PER_NODE)}
    tables = {
        kind: ThroughputTable({c: speed * c**-0.1 for c in COUNTS}, {})
        for kind, speed in TYPES.items()
    }
    free = iter([(name, 8) for name in idle])
    jobs_of_snapshot = []
    for number in range(jobs):
        count = rng.choice(COUNTS)
        place = next(free, None)
        running = Allocation(((place[0], PER_NODE),)) if place is not None else Allocation()
        counts = COUNTS if rng.random() < 0.5 else (PER_NODE if running else count,)
        jobs_of_snapshot.append(
            Job(
                JobId(str(number)), UserName(f"u{number % 50}"), at - rng.uniform(0.0, 86400.0),
                rng.uniform(0.0, 86400.0), counts, tables,
                samples=rng.lognormvariate(11.0, 1.5), running=running,
            )
        )  # fmt: skip
    busy = {name for job in jobs_of_snapshot for name, _ in job.running}
    nodes = tuple(
        Node(name, GpuType(str(kind)), PER_NODE, 0 if name in busy else PER_NODE)
        for name, (kind, _) in idle.items()
    )
    return Snapshot(
        at, RoundInfo(first=False, seconds=ROUND_SECONDS), nodes, tuple(jobs_of_snapshot)
    )


def measure(policy: str, gpus: int, jobs: int) -> str:
    """Measure two sets, and return a line of the table."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    predictor = Predictor.for_policy(policy, PriorityName.LATENCY_RATIO)
    seconds = []
    prediction_count = 0
    for at in (0.0, ROUND_SECONDS):
        state = snapshot(gpus, jobs, 1e9 + at)
        start_time = time.process_time()
        situation = situation_of(state, {}, state.now + ROUND_SECONDS, ROUND_SECONDS)
        predictions = predictor.all_of(situation)
        seconds.append(time.process_time() - start_time)
        prediction_count = len(predictions)
        for item in predictions[::10]:
            predictor.resolve(item.job, item.kind, item.at + 60.0)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024.0
    cells = (f"`{policy}`", f"{gpus:,}", f"{jobs:,}", f"{prediction_count:,}",
             *(f"{item:.1f}" for item in seconds), f"{max(seconds) / BOUND_SECONDS:.0%}",
             f"{memory:,.0f}")  # fmt: skip
    return f"| {' | '.join(cells)} |"


@click.command()
@click.option("--gpus", type=click.IntRange(min=PER_NODE), default=10_000)
@click.option("--jobs", type=click.IntRange(min=1), default=4_000)
@click.option("--policy", "policies", multiple=True, default=("hops", "hops+", "slurm"))
def main(gpus: int, jobs: int, policies: Sequence[str]) -> None:
    lines = [
        "| policy | GPUs | jobs | predictions | first set, s | second, s | of 60 s | MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(measure(policy, gpus, jobs) for policy in policies),
    ]
    text = "\n".join(lines)
    print(text)
    write_result("predictions_cost", "What a set of predictions costs", text)


if __name__ == "__main__":
    main()
