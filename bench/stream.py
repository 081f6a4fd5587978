"""`python -m bench.stream`: a long job among a stream of short ones, against every schedule.

One GPU. A job of several rounds comes first, then one job of one round at the start of each round,
for a fixed number of rounds. Nothing is ever idle, so each round given to the long job makes all
short jobs that arrive later wait for a round: an earlier end of the long job is paid for by the
mean. All schedules in whole rounds are enumerated; restarts cost nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import play

ROUND = 360.0
GPU, NET, LONG = GpuType("a"), WorkloadName("net"), JobId("0")
WEIGHTS = (0.0, 0.5, 1.5, 3.0, 10.0)
POLICIES = ("srtf", "sia", "hops", "themis", "gavel-ftf", "fifo")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rounds from submission to end: ``long`` of the long job, ``mean`` over all jobs."""

    long: float
    mean: float


def schedules(long: int, short: int) -> Iterator[Outcome]:
    """Outcome of each work-conserving schedule; short jobs run in order of arrival."""
    later_rounds = range(1, long + short)  # only the long job exists in the first round
    arrival_sum = sum(range(1, short + 1))
    for slots in combinations(later_rounds, long - 1):
        last = max(slots, default=0) + 1
        end_sum = sum(later_rounds) - sum(slots) + short
        yield Outcome(last, (last + end_sum - arrival_sum) / (1 + short))


def simulate(long: int, short: int, settings: PlanSettings) -> Outcome:
    """Outcome of the policy in ``settings``."""
    lengths = [(0, long)] + [(arrival, 1) for arrival in range(1, short + 1)]
    jobs = tuple(
        WorkloadJob(JobId(str(name)), UserName("u"), arrival * ROUND, NET, rounds * ROUND, (1,))
        for name, (arrival, rounds) in enumerate(lengths)
    )
    result = play(
        settings.policy,
        get(settings.policy),
        Cluster((Server(NodeName("a1"), GPU, 1),)),
        Workload({NET: {GPU: ThroughputTable({1: 1.0}, {})}}, jobs),
        SimulationSettings(ROUND, plan=settings, cluster=ClusterSettings(0.0)),
    )
    took = {job.id: (job.jct or inf) / ROUND for job in result.outcomes}
    return Outcome(took[LONG], sum(took.values()) / len(took))


def min_mean(outcomes: Sequence[Outcome], long: float) -> float:
    """Smallest mean of the schedules that end the long job no later than ``long``."""
    return min(outcome.mean for outcome in outcomes if outcome.long <= long + 1e-6)


def main() -> None:
    options = _options()
    long, short = options.long, options.short
    outcomes = list(schedules(long, short))
    print(
        f"{len(outcomes)} schedules; the least mean of all: {min_mean(outcomes, long + short):.2f}"
    )
    print("| policy | long job ends after | latency ratio | mean | over the least mean for that |")
    print("|---|---:|---:|---:|---:|")
    base = SimulationSettings().plan
    simulated_outcomes = {
        f"`hops+`, `tail_weight` {weight:g}": replace(base, policy="hops+", tail_weight=weight)
        for weight in WEIGHTS
    } | {f"`{policy}`": replace(base, policy=policy) for policy in POLICIES}
    for name, settings in simulated_outcomes.items():
        outcome = simulate(long, short, settings)
        excess = outcome.mean / min_mean(outcomes, outcome.long)
        ratio = (outcome.long - long) / long
        print(f"| {name} | {outcome.long:.0f} | {ratio:.1f} | {outcome.mean:.2f} | {excess:.2f} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.stream")
    parser.add_argument("--long", type=int, default=4, help="rounds of the long job")
    parser.add_argument("--short", type=int, default=40, help="short jobs, of one round each")
    options = parser.parse_args()
    if options.long < 1 or options.short < 1:
        parser.error("--long and --short must be at least 1")
    return options


if __name__ == "__main__":
    main()
