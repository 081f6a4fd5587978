"""What dividing a cluster into cells gains and loses: the same plan as one program and as several.

    python -m bench.plan.cells [--gpus 40000] [--cells 2 4] [--case a b] [--seed 0]

A cell has a part of each type's servers and every so many-th job of the queue, and two processes
plan the cells. Prints wall and CPU seconds, the objective over the bound that one program proves,
and what the cells lose of its objective. Instances are those of ``python -m bench.plan``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from time import perf_counter

from bench.clock import cpu_seconds
from bench.plan.__main__ import gap_of_bar
from bench.plan.instances import Case, Noise, snapshot
from hopsd.core.queue.priority import queue
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.hops.policy import plan

PROCESSES = 2


def cells(whole: Snapshot, count: int, settings: PlanSettings) -> list[Snapshot]:
    """``whole`` in ``count`` parts of about the same servers and jobs, neighbours together."""
    types: dict[str, list[int]] = {}
    for i, node in enumerate(whole.nodes):
        types.setdefault(node.gpu_type, []).append(i)
    part = {
        i: at * count // len(servers) for servers in types.values() for at, i in enumerate(servers)
    }
    order = queue(whole, settings).jobs
    return [
        replace(
            whole,
            nodes=tuple(node for i, node in enumerate(whole.nodes) if part[i] == cell),
            jobs=tuple(order[cell::count]),
        )
        for cell in range(count)
    ]


def _plan(settings: PlanSettings, cell: Snapshot) -> tuple[Plan, float]:
    before = cpu_seconds()
    return plan(cell, settings), cpu_seconds() - before


def _rows(whole: Snapshot, counts: list[int], settings: PlanSettings) -> Iterator[str]:
    began = perf_counter()
    one, cpu = _plan(settings, whole)
    yield _row(1, perf_counter() - began, cpu, one.objective, one)
    for count in counts:
        parts = cells(whole, count, settings)
        with ProcessPoolExecutor(PROCESSES) as pool:
            list(pool.map(abs, range(PROCESSES)))  # started before the clock is
            began = perf_counter()
            made = list(pool.map(partial(_plan, settings), parts))
            wall = perf_counter() - began
        objective = sum(plan.objective for plan, _ in made)
        yield _row(count, wall, sum(cpu for _, cpu in made), objective, one)


def _row(count: int, wall: float, cpu: float, objective: float, one: Plan) -> str:
    return (
        f"{count:5d} {wall:7.1f} {cpu:7.1f}  {objective / one.upper_bound:8.2%}"
        f"  {1.0 - objective / one.objective:6.2%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plan.cells")
    parser.add_argument("--gpus", type=int, default=40_000)
    parser.add_argument("--cells", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--case", type=Case, nargs="+", default=list(Case))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=100.0)
    options = parser.parse_args()
    settings = PlanSettings(
        gap=gap_of_bar(options.gpus), time_limit_seconds=options.time_limit, seed=options.seed
    )
    for case in options.case:
        print(f"{options.gpus} GPUs, case {case}")
        print("cells  wall s   CPU s   quality    lost")
        whole = snapshot(options.gpus, case, Noise.SERVER, options.seed)
        for row in _rows(whole, options.cells, settings):
            print(row, flush=True)


if __name__ == "__main__":
    main()
