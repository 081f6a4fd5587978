"""``python -m bench.racks``: plans of rack-bound jobs against a proven bound and a best fit.

In planted rows, the jobs' segments fill the blocks' free nodes exactly, so that every job has a
place. Mixed rows have blocks of 18 nodes with 4 GPUs, and a share of the jobs asks for segments or
few switches. Demanding rows add limits, cores and memory. Best fit, which ignores these three,
takes Slurm's order and topology/block's choice of blocks, and gives each job its smallest count, or
the largest that fits.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np

from bench.clock import cpu_seconds
from bench.plan.measure import program
from bench.racks.best_fit import best_fit
from bench.racks.instances import demanding_snapshot, mixed_snapshot, planted_snapshot
from bench.result_file import write_result
from hopsd.core.speed.throughput import configuration_throughput
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.plan import PlanSettings, Snapshot
from hopsd.policies.hops.policy import plan

_HEAD = (
    "| case | seed | jobs | s | CPU s | placed | of the bound | gap |"
    " best fit, smallest counts | placed | best fit, largest counts | placed |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    options = _options()
    settings = PlanSettings(gap=options.gap, time_limit_seconds=options.time_limit)
    rows = [_HEAD]
    print(_HEAD)
    for seed in options.seeds:
        for nodes in options.planted:
            rows.append(
                _row(f"planted, {nodes} nodes", seed, planted_snapshot(nodes, seed), settings)
            )
        for gpus in options.mixed:
            for idle in options.idle:
                case = f"mixed, {gpus:,} GPUs, {idle:.0%} of nodes idle"
                instance = mixed_snapshot(gpus, options.rack_bound, seed, idle)
                rows.append(_row(case, seed, instance, settings))
        for gpus in options.demanding:
            for idle in options.idle:
                case = f"demanding, {gpus:,} GPUs, {idle:.0%} of nodes idle"
                instance = demanding_snapshot(gpus, options.rack_bound, seed, idle)
                rows.append(_row(case, seed, instance, settings))
    write_result("racks", "Jobs bound to racks", "\n".join(rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.racks", description=__doc__)
    parser.add_argument("--planted", type=int, nargs="*", default=[64, 288, 576, 1152])
    parser.add_argument("--mixed", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--demanding", type=int, nargs="*", default=[600])
    parser.add_argument("--idle", type=float, nargs="+", default=[1.0, 0.8, 0.5])
    parser.add_argument("--rack-bound", type=float, default=1 / 3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--time-limit", type=float, default=10.0)
    return parser.parse_args()


def _row(case: str, seed: int, snapshot: Snapshot, settings: PlanSettings) -> str:
    began, cpu_began = perf_counter(), cpu_seconds()
    result = plan(snapshot, settings)
    seconds, cpu = perf_counter() - began, cpu_seconds() - cpu_began
    window = set(result.window)
    order = sorted(
        (job for job in snapshot.jobs if job.id in window),
        key=lambda job: -result.jobs[job.id].priority,
    )
    cells = [case, str(seed), str(len(window)), f"{seconds:.2f}", f"{cpu:.2f}"]
    cells.append(str(len(result.placements)))
    cells += [f"{result.objective / result.upper_bound:.2%}", f"{result.gap:.2%}"]
    for largest in () if snapshot.limits else (False, True):
        fit = best_fit(snapshot, order, largest=largest)
        value = _value(snapshot, settings, result.window, fit)
        cells += [f"{value / result.upper_bound:.1%}", str(len(fit))]
    cells += [""] * (_HEAD.split("\n")[1].count("---") - len(cells))
    line = f"| {' | '.join(cells)} |"
    print(line, flush=True)
    return line


def _value(
    snapshot: Snapshot,
    settings: PlanSettings,
    window: Sequence[JobId],
    placements: Mapping[JobId, Allocation],
) -> float:
    """Return the objective (eq. 11) of given placements."""
    instance_program = program(snapshot, settings)
    jobs = {job.id: job for job in snapshot.jobs}
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    leaves = {node.name: node.leaf for node in snapshot.nodes}
    order = [jobs[job] for job in window]
    gains = [
        configuration_throughput(job, placements[job.id], types, leaves) / min_value
        if job.id in placements
        else 0
        for job, min_value in zip(order, instance_program.least.tolist(), strict=True)
    ]
    return instance_program.unscale(float(instance_program.weight @ np.array(gains)))


if __name__ == "__main__":
    main()
