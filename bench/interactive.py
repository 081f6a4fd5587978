"""``python -m bench.interactive``: a working day of sessions on a full cluster.

64 GPUs of one type with enough trainings that no GPU is ever idle for want of work: elastic ones,
ones with a fixed count, and rigid ones that nothing moves. Sessions arrive by the hours of a
working day. Each day is played three times: without sessions, with them, and with the same sessions
as ordinary jobs with ``preempt=no``.

A session waits until hopsd has woken and read the cluster (``--look``) and, if other jobs make room
for it, until those have saved and left (``--leave``). Both are set well above what was measured
live (tests/daemon/test_sessions_live.py: 4 s in all from salloc to its shell).

The trainings' loss is counted in work, in GPU seconds at the speed of one GPU: what is missing
compared with the day without sessions, minus the GPU seconds that the sessions held.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from bench.result_file import write_result
from hopsd.core.interactive.settings import SessionSettings
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import Simulation, SimulationSettings

DAY = 86400.0
TYPE = GpuType("a100")
TRAINING, SESSION = WorkloadName("training"), WorkloadName("session")
TABLES = {
    TRAINING: {TYPE: ThroughputTable({1: 1.0, 8: 0.93}, {2: 0.85, 4: 0.8})},
    SESSION: {TYPE: ThroughputTable({1: 1.0}, {})},
}
SESSIONS_PER_HOUR = [0.3] * 7 + [2, 5, 8, 8, 6, 5, 8, 8, 8, 6, 4, 2, 2, 1, 1, 0.5, 0.3]
"""Sessions per hour, by hour of the day."""

_HEAD = (
    "| rigid trainings | seed | sessions | held of all GPU time | wait p50, s | p95, s | max, s |"
    " within 30 s | never started | as ordinary jobs: p50, s | p95, s | trainings' work |"
    " loss beyond |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)

MEDIAN_SECONDS, SIGMA, LONGEST = 2400.0, 1.0, 8 * 3600.0
"""Log-normal length of a session."""


def cluster() -> Cluster:
    return Cluster(tuple(Server(NodeName(f"n{i}"), TYPE, 8) for i in range(8)))


def trainings(seed: int, rigid: float, hours: float) -> list[WorkloadJob]:
    """Trainings that exceed the day's capacity, so that the queue is never empty."""
    rng = random.Random(seed)  # a simulation, not a secret
    jobs: list[WorkloadJob] = []
    demanded_gpus, submit_time = 0.0, 0.0
    while demanded_gpus < 1.3 * 64 * hours * 3600.0 or submit_time < hours * 3600.0:
        kind = rng.random()
        largest = rng.choice([2, 4, 8, 8, 16])
        elastic = tuple(2**k for k in range(5) if 2**k <= largest)
        gpu_seconds = 3600.0 * 2.0 * 24.0 ** rng.random()
        rigid_gpus = rng.choice([1, 2, 4, 8])
        jobs.append(
            WorkloadJob(
                JobId(str(len(jobs) + 1)),
                UserName(f"user{rng.randrange(12)}"),
                round(submit_time, 1),
                TRAINING,
                gpu_seconds,
                elastic if kind > rigid + 0.2 else (rigid_gpus,),
                batch_size=64,
                preemptible=kind > rigid,
            )
        )
        demanded_gpus += gpu_seconds
        if demanded_gpus > 2.0 * 64 * 3600.0:  # the cluster fills at once, then jobs come all day
            submit_time += rng.expovariate(
                64 * 1.1 / np.exp(np.log(3600.0 * 2.0) + np.log(24.0) / 2)
            )
    return jobs


def sessions(seed: int, hours: float) -> list[WorkloadJob]:
    rng = random.Random(1000 + seed)
    jobs: list[WorkloadJob] = []
    submit_time = 0.0
    while submit_time < hours * 3600.0:
        submit_time += rng.expovariate(max(SESSIONS_PER_HOUR) / 3600.0)
        if (
            rng.random() * max(SESSIONS_PER_HOUR)
            > SESSIONS_PER_HOUR[int(submit_time / 3600.0) % 24]
        ):
            continue
        gpus = rng.choices([1, 2, 4], [0.85, 0.1, 0.05])[0]
        seconds = min(LONGEST, MEDIAN_SECONDS * np.exp(SIGMA * rng.gauss(0.0, 1.0)))
        jobs.append(
            WorkloadJob(
                JobId(str(100_000 + len(jobs))),
                UserName(f"user{rng.randrange(40)}"),
                round(submit_time, 1),
                SESSION,
                float(seconds * gpus),
                (gpus,),
                interactive=True,
            )
        )
    return jobs


@dataclass(frozen=True, slots=True)
class Day:
    """Result of a day. ``work`` is in GPU seconds of trainings at the speed of one GPU,
    ``session_gpu_seconds`` were allocated to sessions. ``waits`` and ``never_started`` are about
    sessions, ``restarts`` about trainings.
    """

    work: float
    session_gpu_seconds: float
    waits: tuple[float, ...]
    never_started: int
    restarts: int


def play(jobs: list[WorkloadJob], options: argparse.Namespace, reserve: int) -> Day:
    workload = Workload(TABLES, tuple(sorted(jobs, key=lambda job: job.submit)))
    end = options.hours * 3600.0
    settings = SimulationSettings(
        round_seconds=1800.0,
        refresh_seconds=options.look,
        horizon=end,
        sessions=SessionSettings(reserve, user_gpus=8, share=0.5),
        cluster=ClusterSettings(restart_seconds=options.restart, leave_seconds=options.leave),
    )
    simulation = Simulation(cluster(), workload, get(options.policy), settings)
    run = simulation.run()
    port = simulation.port
    port.advance(end)
    session_jobs = {job.id: job for job in jobs if job.workload == SESSION}
    gpu_seconds: dict[JobId, float] = defaultdict(float)
    starts: dict[JobId, tuple[float, int]] = {}
    moves = 0
    for change in run.changes:
        if change.time > end:
            break
        if change.job in starts:
            start_time, gpus = starts.pop(change.job)
            gpu_seconds[change.job] += (change.time - start_time) * gpus
            moves += bool(change.job not in session_jobs and change.placement)
        if change.placement:
            starts[change.job] = change.time, change.placement.gpus
    for job, (start_time, gpus) in starts.items():
        gpu_seconds[job] += (end - start_time) * gpus
    samples = port.samples_done()
    of_sessions = sum(
        samples.get(
            job,
            spec.samples if job in port.start_times and job not in port.unfinished_jobs else 0.0,
        )
        for job, spec in session_jobs.items()
    )
    waits = tuple(
        port.start_times.get(job, end) - spec.submit for job, spec in session_jobs.items()
    )
    return Day(
        port.trained_samples - of_sessions,
        sum(gpu_seconds[job] for job in session_jobs),
        waits,
        len(session_jobs.keys() - port.start_times.keys()),
        moves,
    )


def main() -> None:
    options = _options()
    rows = [_HEAD]
    print(_HEAD)
    total = 64 * options.hours * 3600.0
    means = []
    for rigid in options.rigid:
        losses = []
        for seed in options.seeds:
            base = trainings(seed, rigid, options.hours)
            session_jobs = sessions(seed, options.hours)
            plain = play(base, options, 0)
            day = play(base + session_jobs, options, options.reserve)
            ordinary = [replace(job, interactive=False, preemptible=False) for job in session_jobs]
            baseline = play(base + ordinary, options, 0)
            share = day.session_gpu_seconds / total
            loss = 1.0 - day.work / (plain.work * (1.0 - share))
            losses.append(loss)
            waits, baseline_waits = np.array(day.waits), np.array(baseline.waits)
            cells = [
                f"{rigid:.0%}", seed, len(session_jobs), f"{share:.2%}",
                f"{np.median(waits):.0f}", f"{np.percentile(waits, 95):.0f}", f"{waits.max():.0f}",
                f"{np.mean(waits <= 30.0):.1%}", day.never_started,
                f"{np.median(baseline_waits):.0f}", f"{np.percentile(baseline_waits, 95):.0f}",
                f"{day.work / plain.work:.2%}", f"{loss:.2%}",
            ]  # fmt: skip
            rows.append(f"| {' | '.join(map(str, cells))} |")
            print(rows[-1], flush=True)
        means.append(f"{np.mean(losses):.2%} with {rigid:.0%} of the trainings rigid")
    text = (
        f"{(__doc__ or '').partition(chr(10) * 2)[2].strip()}\n\n"
        f"Look {options.look:g} s, leave {options.leave:g} s, a restart {options.restart:g} s;"
        f" `{options.policy}`, rounds of 30 min; a reserve of {options.reserve} GPUs, sessions of"
        f" 1, 2 or 4 GPUs on at most half of them.\n\n"
        + "\n".join(rows)
        + f"\n\nMean loss: {', '.join(means)}.\n"
    )
    print(text.rpartition("\n\n")[2])
    if options.write:
        write_result("interactive", "Sessions on a full cluster", text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.interactive", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rigid", type=float, nargs="+", default=[0.2, 0.5])
    parser.add_argument("--reserve", type=int, default=2)
    parser.add_argument("--look", type=float, default=6.0, help="from a submission to its plan, s")
    parser.add_argument("--leave", type=float, default=15.0)
    parser.add_argument("--restart", type=float, default=60.0)
    parser.add_argument("--policy", default="hops+")
    parser.add_argument("--no-write", dest="write", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    main()
