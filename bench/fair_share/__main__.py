"""Users with shares over a simulated week: how far each ends up from its share, and long waits.

    python -m bench.fair_share [--servers 2] [--days 8] [--demand 0.5] [--seeds 3] [--write]

All week, every user asks for the same part ``demand`` of the cluster, in jobs of that user's size;
users with a small share ask for more than it. The first day fills the cluster and is not counted.
``--write`` puts the table into bench/results.
"""

from __future__ import annotations

import math
from dataclasses import replace

import click
import numpy as np

from bench.result_file import write_result
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.registry import get
from hopsd.sim.engine import MAX_PLAN_SECONDS, Run, Simulation, SimulationSettings
from hopsd.sim.usage import gpu_seconds, unmet

DAY = 86400.0
GPU = GpuType("a100")
NAME = WorkloadName("training")
SHARES = {UserName("ann"): 4.0, UserName("ben"): 3.0, UserName("cem"): 2.0, UserName("dia"): 1.0}
REQS = {
    UserName("ann"): (1, 2, 4),
    UserName("ben"): (2, 4, 8),
    UserName("cem"): (1, 2),
    UserName("dia"): (2, 4),
}
GPU_HOURS = 12.0
"""Mean size of a job in GPU hours."""
ROUND_SECONDS = 3600.0
WORDS = """Each asks for half of a cluster of 16 GPUs. For each order: how far each user's GPU time
was from the share (from the second day to the eighth), the smallest part of a user's jobs that
started, the longest wait and the largest latency ratio. Rounds of an hour, half-life of use 7 days.
The last row is no simulation: a user who gets no more than a tenth above the share cannot have all
jobs below that ratio, whatever the order.

"""
TOLERANCE = 0.1
"""Relative distance from a share that counts as meeting it."""

PLAN = PlanSettings(effort=0, time_limit_seconds=MAX_PLAN_SECONDS)
FIRST = replace(PLAN, priority=PriorityName.FAIR_SHARE_FIRST)
RULES = {
    "hops, priority latency_ratio": ("hops", PLAN),
    "hops, priority fair_share": ("hops", replace(PLAN, priority=PriorityName.FAIR_SHARE)),
    "hops, priority fair_share_first": ("hops", FIRST),
    "the same, no job overdue": ("hops", replace(FIRST, overdue_ratio=math.inf)),
    "slurm": ("slurm", PLAN),
    "slurm-multifactor": ("slurm-multifactor", PLAN),
}


def cluster(servers: int) -> Cluster:
    """Servers of 8 GPUs of one type."""
    return Cluster(tuple(Server(NodeName(f"n{i}"), GPU, 8) for i in range(servers)), {})


def workload(seed: int, gpus: int, days: float, demand: float, alone: float = 0.0) -> Workload:
    """Jobs of random length from every user, spread uniformly over the days. In the first ``alone``
    days only cem submits, and asks for the whole cluster.
    """
    rng = np.random.default_rng(seed)
    jobs = []
    for user in SHARES:
        hours = demand * gpus * 24.0 * days
        while hours > 0:
            job_hours = float(rng.exponential(GPU_HOURS)) + 1.0
            hours -= job_hours
            jobs.append((float(rng.uniform(0.0, days * DAY)), user, job_hours))
    jobs = [job for job in jobs if job[0] >= alone * DAY]
    hours = gpus * 24.0 * alone
    while hours > 0:
        job_hours = float(rng.exponential(GPU_HOURS)) + 1.0
        hours -= job_hours
        jobs.append((float(rng.uniform(0.0, alone * DAY)), UserName("cem"), job_hours))
    table = ThroughputTable({1: 1.0, 8: 0.9}, {2: 0.8})
    return Workload(
        {NAME: {GPU: table}},
        tuple(
            WorkloadJob(JobId(str(i)), user, submit, NAME, job_hours * 3600.0, REQS[user])
            for i, (submit, user, job_hours) in enumerate(sorted(jobs), 1)
        ),
    )


def expected_seconds(workload: Workload) -> dict[JobId, float]:
    """The run time of each job without waiting, on the mean of its GPU counts."""
    return {job.id: job.samples / float(np.mean(job.reqs)) for job in workload.jobs}


def wait_seconds(workload: Workload, run: Run, end: float) -> dict[JobId, float]:
    """Seconds each job waited from its submission to its end, or the end of the week."""
    starts: dict[JobId, float] = {}
    ran = {job.id: 0.0 for job in workload.jobs}
    ends = dict.fromkeys(ran, end)
    for change in run.changes:
        ran[change.job] += change.time - starts.pop(change.job, change.time)
        if change.placement:
            starts[change.job] = change.time
        elif change.job not in run.unfinished:
            ends[change.job] = change.time
    for job, start in starts.items():
        ran[job] += end - start
    return {j.id: ends[j.id] - j.submit - ran[j.id] for j in workload.jobs if j.submit < end}


def min_ratio(workload: Workload, gpus: int, end: float) -> float:
    """A latency ratio below which no order can keep all jobs unless a user exceeds the share by
    more than TOLERANCE: a job that waited less must have run for the rest of the time, on its
    smallest count or more.
    """
    ages = expected_seconds(workload)
    whole = sum(SHARES.values())

    def is_feasible(user: UserName, ratio: float) -> bool:
        used_seconds = sum(
            min(job.samples, min(job.reqs) * max(0.0, end - job.submit - ratio * ages[job.id]))
            for job in workload.jobs
            if job.user == user
        )
        return used_seconds <= (1.0 + TOLERANCE) * SHARES[user] / whole * gpus * end

    worst = 0.0
    for user in SHARES:
        low, high = 0.0, end
        while high - low > 0.1:
            middle = (low + high) / 2.0
            low, high = (low, middle) if is_feasible(user, middle) else (middle, high)
        worst = max(worst, low)
    return worst


def row(label: str, runs: list[tuple[Workload, Run]], end: float) -> str:
    """Table row over all draws: largest distance from a share, and waits."""
    far: dict[UserName, list[float]] = {user: [] for user in SHARES}
    start_shares, longest, ratio = [], 0.0, 0.0
    for workload, run in runs:
        users = {job.id: job.user for job in workload.jobs}
        seconds_by_user = gpu_seconds(run.changes, users, DAY, end)
        for user, part in unmet(seconds_by_user, SHARES).items():
            far[user].append(part)
        first = {change.job for change in run.changes if change.placement}
        for user in SHARES:
            user_jobs = [j for j in workload.jobs if j.user == user]
            start_shares.append(sum(j.id in first for j in user_jobs) / len(user_jobs))
        waits, ages = wait_seconds(workload, run, end), expected_seconds(workload)
        longest = max(longest, *waits.values())
        ratio = max(ratio, *(wait / ages[job] for job, wait in waits.items()))
    worst = max(abs(part) for parts in far.values() for part in parts)
    means = " | ".join(f"{np.mean(parts):+.0%}" for parts in far.values())
    cells = f"{worst:.0%} | {min(start_shares):.0%} | {longest / 3600.0:.0f} h | {ratio:.0f}"
    return f"| {label} | {means} | {cells} |"


@click.command()
@click.option("--servers", default=2, show_default=True)
@click.option("--days", default=8.0, show_default=True)
@click.option("--demand", default=0.5, show_default=True, help="Part of the cluster per user.")
@click.option("--alone", default=0.0, show_default=True, help="Days on which only cem submits.")
@click.option("--seeds", default=3, show_default=True)
@click.option("--write", is_flag=True, help="Put the table into bench/results.")
def main(servers: int, days: float, demand: float, alone: float, seeds: int, write: bool) -> None:
    """Play the week under each order and print the table."""
    site, end = cluster(servers), days * DAY
    scenes = [workload(seed, site.gpus, days, demand, alone) for seed in range(seeds)]
    users = " | ".join(
        f"{user} ({share / sum(SHARES.values()):.0%})" for user, share in SHARES.items()
    )
    rows = [
        f"| order | {users} | farthest | least started | longest wait | largest latency ratio |",
        "|---|" + "---:|" * (len(SHARES) + 4),
    ]
    print("\n".join(rows), flush=True)
    for label, (name, plan) in RULES.items():
        settings = SimulationSettings(ROUND_SECONDS, plan=plan, horizon=end)
        runs = [
            (scene, Simulation(site, scene, get(name), settings, shares=SHARES).run())
            for scene in scenes
        ]
        rows.append(row(label, runs, end))
        print(rows[-1], flush=True)
    ratio = max(min_ratio(scene, site.gpus, end) for scene in scenes)
    empty = " | ".join("" for _ in SHARES)
    rows.append(
        f"| any order that keeps to shares | {empty} | {TOLERANCE:.0%} | | | at least {ratio:.0f} |"
    )
    print(rows[-1], flush=True)
    if write:
        write_result(
            "fair_share",
            "Four users with shares of 40, 30, 20 and 10 %",
            WORDS + "\n".join(rows) + "\n",
        )


if __name__ == "__main__":
    main()
