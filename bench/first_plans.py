"""`python -m bench.first_plans`: CPU seconds of policies' first plans in the same situations.

`srtf` plays a preset workload, planning once a round. Among the rounds with at least half of the
maximum number of jobs, evenly spaced ones are planned again by each policy. Effort is bounded as in
simulations.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bench.clock import cpu_seconds
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.registry import get
from hopsd.sim.engine import MAX_PLAN_SECONDS, Simulation, SimulationSettings
from hopsd.sim.presets import preset

MOVER = "srtf"
"""Policy that plays the workload: plans in milliseconds, keeps the cluster as busy as others do."""


@dataclass
class Recorder:
    """Plans as ``srtf`` at the start of rounds and records the snapshots."""

    snapshots: list[Snapshot] = field(default_factory=list)
    only_first: ClassVar[bool] = True

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        self.snapshots.append(snapshot)
        return get(MOVER)(snapshot, settings)


def situations(name: str, seed: int, hours: float, count: int) -> list[Snapshot]:
    """Snapshots of at most ``count`` first plans within the first ``hours``."""
    scenario, recorder = preset(name), Recorder()
    horizon = SimulationSettings(horizon=hours * 3600.0)
    Simulation(scenario.cluster(), scenario.workload(seed), recorder, horizon).run()
    max_jobs = max(len(snapshot.jobs) for snapshot in recorder.snapshots)
    busy = [snapshot for snapshot in recorder.snapshots if 2 * len(snapshot.jobs) >= max_jobs]
    return [busy[index] for index in np.unique(np.linspace(0, len(busy) - 1, count).astype(int))]


def main() -> None:
    options = _options()
    settings = PlanSettings(gap=options.gap, effort=0, time_limit_seconds=MAX_PLAN_SECONDS)
    print("| seed | policy | plans | jobs | CPU s | a plan | largest | gap missed | mean gap |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for seed in options.seed:
        snapshots = situations(options.preset, seed, options.hours, options.plans)
        jobs = f"{min(len(s.jobs) for s in snapshots)}-{max(len(s.jobs) for s in snapshots)}"
        for policy in options.policy:
            get(policy)(snapshots[0], settings)  # warm-up: imports and caches
            took, gaps = [], []
            for snapshot in snapshots:
                began = cpu_seconds()
                gaps.append(get(policy)(snapshot, settings).gap)
                took.append(cpu_seconds() - began)
            missed_gaps = sum(gap > options.gap for gap in gaps)
            print(
                f"| {seed} | `{policy}` | {len(took)} | {jobs} | {sum(took):.2f}"
                f" | {np.mean(took):.2f} | {max(took):.2f} | {missed_gaps} | {np.mean(gaps):.2%} |",
                flush=True,
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.first_plans", description=__doc__)
    parser.add_argument("--preset", default="paper-512")
    parser.add_argument("--seed", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--policy", nargs="+", default=["hops", "hops+"])
    parser.add_argument("--hours", type=float, default=4.0, help="of the workload")
    parser.add_argument("--plans", type=int, default=6, help="of each seed")
    parser.add_argument("--gap", type=float, default=0.01)
    return parser.parse_args()


if __name__ == "__main__":
    main()
