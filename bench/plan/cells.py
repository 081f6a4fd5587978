"""Gain and loss of dividing a cluster into cells: one program against several.

    python -m bench.plan.cells [--gpus 40000] [--cells 2 4] [--seed 0]

A cell gets an equal part of each type's servers and of the jobs that compete in the one program;
two processes plan the cells. Prints wall and CPU seconds, the one program's objective over its
bound, and how much of that objective the cells' placements lose. Instances are the idle clusters of
``python -m bench.plan``. On fragmented clusters the programs would differ: a job is spread over the
fewest servers that can hold it, and in a cell these may be more than in the cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from time import perf_counter

from bench.clock import cpu_seconds
from bench.plan.instances import Case, Noise, gap_of_bar, snapshot
from bench.plan.measure import program
from hopsd.model.ids import JobId
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.hops.policy import plan

PROCESSES = 2


def cells(whole: Snapshot, count: int, competing: Sequence[JobId]) -> list[Snapshot]:
    """Divide ``whole`` into ``count`` parts of equal size; neighbouring servers stay together."""
    types: dict[str, list[int]] = {}
    for i, node in enumerate(whole.nodes):
        types.setdefault(node.gpu_type, []).append(i)
    part = {
        i: at * count // len(servers) for servers in types.values() for at, i in enumerate(servers)
    }
    jobs = {job.id: job for job in whole.jobs}
    order = [jobs[job] for job in competing]
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


def _value(cell_plan: Plan, least_rates: Mapping[JobId, float]) -> float:
    """Evaluate eq. 11 with each job's speed relative to ``least_rates``, its slowest configuration
    in the whole cluster, since a cell may have another.
    """
    return sum(
        cell_plan.jobs[job].priority * (cell_plan.jobs[job].throughput or 0.0) / least_rates[job]
        for job in cell_plan.placements
    )


def _rows(whole: Snapshot, counts: list[int], settings: PlanSettings) -> Iterator[str]:
    began = perf_counter()
    whole_plan, cpu = _plan(settings, whole)
    wall = perf_counter() - began
    competing = whole_plan.window + whole_plan.adjusted
    min_values = dict(zip(competing, program(whole, settings).least.tolist(), strict=True))
    best = _value(whole_plan, min_values)
    yield _row(1, wall, cpu, 1.0 - whole_plan.gap, 0.0)
    for count in counts:
        parts = cells(whole, count, competing)
        with ProcessPoolExecutor(PROCESSES) as pool:
            list(pool.map(abs, range(PROCESSES)))  # start the workers before the clock
            began = perf_counter()
            cell_plans = list(pool.map(partial(_plan, settings), parts))
            wall = perf_counter() - began
        part = sum(_value(cell_plan, min_values) for cell_plan, _ in cell_plans) / best
        yield _row(
            count,
            wall,
            sum(cpu for _, cpu in cell_plans),
            part * (1.0 - whole_plan.gap),
            1.0 - part,
        )


def _row(count: int, wall: float, cpu: float, quality: float, loss: float) -> str:
    return f"{count:5d} {wall:7.1f} {cpu:7.1f}  {quality:8.2%}  {loss:6.2%}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plan.cells")
    parser.add_argument("--gpus", type=int, default=40_000)
    parser.add_argument("--cells", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=100.0)
    options = parser.parse_args()
    settings = PlanSettings(
        gap=gap_of_bar(options.gpus), time_limit_seconds=options.time_limit, seed=options.seed
    )
    print("cells  wall s   CPU s   quality    lost")
    whole = snapshot(options.gpus, Case.IDLE, Noise.SERVER, options.seed)
    for row in _rows(whole, options.cells, settings):
        print(row, flush=True)


if __name__ == "__main__":
    main()
