"""Rivals' own work under our policies.

    python -m bench.rivals --sia DIR [--trace philly-1 ...] [--policy hops+ ...]
        [--round 60 ...] [--restart 30] [--rigid]

DIR is the authors' ``sia-simulator`` (github: siasosp23/artifacts). Prints mean and 99 % completion
time and makespan in hours, the largest latency ratio and the largest finish-time fairness. None of
the authors' code or data is part of this repository.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.rivals import sia
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Workload
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import PLAN_SECONDS_MAX, SimulationSettings
from hopsd.sim.study import play


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rivals", description=__doc__)
    parser.add_argument("--sia", type=Path, required=True)
    parser.add_argument("--trace", action="append")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--round", action="append", type=float)
    parser.add_argument("--restart", type=float, default=30.0)
    parser.add_argument("--rigid", action="store_true")
    chosen = parser.parse_args(arguments)
    known = sia.traces(chosen.sia)
    names = chosen.trace or ["philly-1", "saturn-1"]
    if unknown := sorted(set(names) - known.keys()):
        parser.error(f"{chosen.sia} has no trace {unknown[0]}; there are {', '.join(known)}")
    print("| work | round, s | policy | mean, h | 99 %, h | end, h | largest LR | largest FTF |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for name in names:
        load = sia.workload(chosen.sia, known[name], rigid=chosen.rigid)
        for seconds in chosen.round or [60.0]:
            for policy in chosen.policy or ["hops+", "hops", "sia"]:
                row = figures(policy, load, seconds, chosen.restart)
                kind = "rigid" if chosen.rigid else "elastic"
                print(f"| {name}, {kind} | {seconds:.0f} | `{policy}` | {row} |", flush=True)


def figures(policy: str, load: Workload, round_seconds: float, restart: float) -> str:
    settings = SimulationSettings(
        round_seconds,
        plan=PlanSettings(effort=0, time_limit_seconds=PLAN_SECONDS_MAX),
        cluster=ClusterSettings(restart),
    )
    of = play(policy, get(policy), sia.cluster(), load, settings).summary
    values = (of.avg_jct_h, of.p99_jct_h, of.makespan_h, of.max_latency_ratio, of.max_ftf)
    return " | ".join(f"{value:.3g}" for value in values)


if __name__ == "__main__":
    main()
