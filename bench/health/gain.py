"""`python -m bench.health.gain`: what plans gain by knowing which servers are slow.

The cluster is the paper's 512 GPUs, with some servers at 80 % of their type's speed. One run knows
every server's factor, the other assumes that all servers of a type are equal; both run at the true
speeds.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from statistics import fmean

from bench.result_file import write_result
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Workload
from hopsd.policies.registry import get
from hopsd.sim.engine import MAX_PLAN_SECONDS, Simulation, SimulationSettings
from hopsd.sim.presets import preset
from hopsd.sim.study import result_of

SHARES = (0.01, 0.05, 0.1)
SLOW = 0.8
PRESET = "paper-512"


def with_slow_servers(workload: Workload, share: float, seed: int) -> Workload:
    """Make a ``share`` of the preset's servers, at least one, run all workloads at SLOW."""
    names = [server.name for server in preset(PRESET).cluster().servers]
    slow = random.Random(seed).sample(names, max(1, round(share * len(names))))
    return replace(
        workload, server_factor=dict.fromkeys(workload.throughput, dict.fromkeys(slow, SLOW))
    )


def simulate_hours(policy: str, truth: Workload, claims: Workload) -> tuple[float, float]:
    """Simulate; return the mean and 99th percentile of completion times, in hours."""
    cluster = preset(PRESET).cluster()
    plan = PlanSettings(policy=policy, time_limit_seconds=MAX_PLAN_SECONDS, effort=0)
    settings = SimulationSettings(plan=plan)
    run = Simulation(cluster, truth, get(policy), settings, known_workload=claims).run()
    summary = result_of(policy, run, cluster, truth).summary
    return summary.avg_jct_h, summary.p99_jct_h


def main() -> None:
    options = _options()
    lines = [
        (
            f"{options.jobs} jobs under `{options.policy}`, {options.seeds} seeds; slow servers are"
            f" at {SLOW:.0%} of their type's speed. Hours of completion, where plans do not know"
            " which servers are slow and where they do.\n"
        ),
        "| slow servers | mean: none slow | unknown | known | gain | 99 %: gain |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for share in SHARES:
        rows = []
        for seed in range(options.seeds):
            workload = preset(PRESET).workload(seed, jobs=options.jobs)
            equal = replace(workload, server_factor={})
            slow = with_slow_servers(equal, share, seed)
            rows.append(
                [
                    simulate_hours(options.policy, equal, equal),
                    simulate_hours(options.policy, slow, equal),
                    simulate_hours(options.policy, slow, slow),
                ]
            )
        no_history, unknown, known_mean = (fmean(row[i][0] for row in rows) for i in range(3))
        tail = fmean(row[2][1] for row in rows) / fmean(row[1][1] for row in rows)
        lines.append(
            f"| {share:.0%} | {no_history:.3f} | {unknown:.3f} | {known_mean:.3f}"
            f" | {1.0 - known_mean / unknown:.1%} | {1.0 - tail:.1%} |"
        )
        print(lines[-1], flush=True)
    write_result("health_gain", "What plans gain by knowing slow servers", "\n".join(lines))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health.gain")
    parser.add_argument("--policy", default="hops+")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.jobs < 1 or options.seeds < 1:
        parser.error("--jobs and --seeds: numbers from 1")
    return options


if __name__ == "__main__":
    main()
