"""``python -m bench.racks.simulated``: what racks cost and gain, in simulated job streams.

Streams with 0, 30 and 60 % rack-bound jobs run under several policies; the results are in
bench/results/racks_simulated.md. There are eight racks of four nodes with four GPUs. Every job is
elastic, takes 2 to 8 whole nodes, and is slower by 20 % on two racks and by 30 % on four. A
rack-bound job asks for segments of two or four nodes.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import numpy as np

from bench.clock import cpu_seconds
from bench.result_file import write_result
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.registry import get
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.study import figures, play

GPUS, NODES = 4, 4
"""GPUs per node, and nodes per rack."""
TRAINING = WorkloadName("training")
SPEED_ACROSS_RACKS = {1: 1.0, 2: 0.8, 4: 0.7}
COLUMNS = {
    "mean completion, h": ("avg_jct_h", "{:.2f}"),
    "mean wait, h": ("avg_wait_h", "{:.2f}"),
    "last end, h": ("makespan_h", "{:.1f}"),
    "idle while jobs wait, GPUs": ("avg_fragments", "{:.1f}"),
    "restarts": ("restarts", "{:.0f}"),
}


def cluster(racks: int) -> Cluster:
    kind = GpuType("a100")
    return Cluster(
        tuple(
            Server(NodeName(f"n{index:03d}"), kind, GPUS, ("core", f"rack{index // NODES}"))
            for index in range(racks * NODES)
        )
    )


def workload(jobs: int, racks: int, rack_bound: float, seed: int) -> Workload:
    """Generate the same jobs for every share; those rack-bound at a smaller share stay so."""
    rng = np.random.default_rng(seed)
    per_gpu = {n: 100.0 * 0.97**number for number, n in enumerate((1, 2, 4))}
    spread = {n: 90.0 * 0.98**number for number, n in enumerate((2, 4, 8))}
    table = ThroughputTable(per_gpu, spread)
    workload_jobs = []
    submit = 0.0
    for number in range(jobs):
        submit += float(rng.exponential(20_000.0 / (racks * NODES)))
        groups = int(rng.choice([1, 1, 2, 2, 4]))
        gpu_hours = float(rng.lognormal(np.log(24.0), 0.8))
        draw, segment = float(rng.random()), int(rng.choice([2, 2, 4]))
        counts = {2, 2 * groups, 4 if groups > 1 else 2}
        job = WorkloadJob(
            JobId(str(number)),
            UserName(f"u{number % 8}"),
            submit,
            TRAINING,
            gpu_hours * 3600.0 * 80.0,
            tuple(sorted(GPUS * count for count in counts)),
            per_node=GPUS,
        )
        if draw < rack_bound:
            nodes = {segment, segment * max(1, groups * 2 // segment)}
            job = replace(job, segment=segment, reqs=tuple(sorted(GPUS * n for n in nodes)))
        workload_jobs.append(job)
    tables = {TRAINING: {GpuType("a100"): table}}
    return Workload(tables, tuple(workload_jobs), across={TRAINING: SPEED_ACROSS_RACKS})


def main() -> None:
    options = _options()
    names = list(COLUMNS)
    lines = [
        "| rack-bound | policy | " + " | ".join(names) + " | CPU s |",
        "|---:|---" + "|---:" * (len(names) + 1) + "|",
    ]
    for share in options.rack_bound:
        for policy in options.policies:
            began = cpu_seconds()
            plan = PlanSettings(policy=policy, time_limit_seconds=MAX_PLAN_SECONDS, effort=0)
            jobs = workload(options.jobs, options.racks, share, options.seed)
            settings = SimulationSettings(plan=plan)
            result = play(policy, get(policy), cluster(options.racks), jobs, settings)
            run_figures = figures(result)
            if result.unfinished:
                raise SystemExit(f"{policy}, {share:.0%}: jobs never ended: {result.unfinished}")
            cells = [text.format(run_figures[key]) for key, text in COLUMNS.values()]
            cpu = cpu_seconds() - began
            lines.append(f"| {share:.0%} | `{policy}` | {' | '.join(cells)} | {cpu:.0f} |")
            print(lines[-1], file=sys.stderr, flush=True)
    text = (
        f"{options.racks} racks of {NODES} nodes with {GPUS} GPUs, {options.jobs} jobs, seed"
        f" {options.seed}; rounds of 360 s, true speeds. A job is 20 % slower on two racks, 30 % on"
        " four.\nRack-bound jobs ask for segments of 2 or 4 nodes.\n\n"
    )
    write_result("racks_simulated", "What racks cost and gain", text + "\n".join(lines) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.racks.simulated", description=__doc__)
    parser.add_argument("--racks", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--rack-bound", type=float, nargs="+", default=[0.0, 0.3, 0.6])
    parser.add_argument("--policies", nargs="+", default=["hops+", "hops", "slurm", "sia"])
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
