"""Speed of the simulator: every policy over the paper's 500 jobs on 512 GPUs.

    python -m bench.sim [--large] [POLICY ...]

``--large``: hops over 10,000 jobs on 2,048 GPUs instead, reading the queue every 30 s as the daemon
does. Times are of one process on this machine under its current load; ``cpu`` includes the solver's
child processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.clock import cpu_seconds
from hopsd.policies.registry import get, names
from hopsd.sim.engine import Simulation, SimulationSettings
from hopsd.sim.presets import Preset, preset

LARGE = "--large"


def large() -> Preset:
    """Four times the paper's 512 GPUs; 10,000 jobs at four times its rate."""
    scenario = preset("paper-512")
    groups = tuple((hardware, 4 * count, gpus) for hardware, count, gpus in scenario.groups)
    return replace(scenario, groups=groups, jobs=10_000, hours=25.0)


def measure(scenario: Preset, policies: Sequence[str], refresh: float = 0.0) -> None:
    cluster, workload = scenario.cluster(), scenario.workload(seed=0)
    print(f"{len(workload.jobs)} jobs, {cluster.gpus} GPUs, load {os.getloadavg()[0]:.1f}")
    print(f"{'policy':<16}{'wall s':>8}{'cpu s':>8}{'rounds':>8}{'plans':>8}"
          f"{'rounds/s':>10}{'plan s, median':>16}{'p99':>8}{'end h':>8}")  # fmt: skip
    for name in policies:
        before = cpu_seconds()
        settings = SimulationSettings(refresh_seconds=refresh)
        run = Simulation(cluster, workload, get(name), settings).run()
        seconds = [plan_run.seconds for plan_run in run.plans] or [0.0]
        print(f"{name:<16}{run.wall_seconds:>8.1f}{cpu_seconds() - before:>8.1f}"
              f"{len(run.rounds):>8}{len(run.plans):>8}{len(run.rounds) / run.wall_seconds:>10.1f}"
              f"{np.median(seconds):>16.4f}{np.percentile(seconds, 99):>8.3f}"
              f"{run.changes[-1].time / 3600:>8.2f}", flush=True)  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    policy_names = [a for a in arguments if a != LARGE]
    if LARGE in arguments:
        measure(large(), policy_names or ["hops"], refresh=30.0)
    else:
        measure(preset("paper-512"), policy_names or names())


if __name__ == "__main__":
    main(sys.argv[1:])
