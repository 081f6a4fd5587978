"""Computes every figure of a simulated run from its timeline.

Nothing here depends on the simulator: placement changes, the workload and the rounds' times are
enough, so that anyone can recompute a result from the files of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId

ROUNDING = 1e-9
"""Relative tolerance, so that rounding does not make a job unfair that got exactly its share."""


@dataclass(frozen=True, slots=True)
class AllocationChange:
    """From ``time`` on, ``job`` holds ``placement``; empty if it ended or was preempted."""

    time: float
    job: JobId
    placement: Allocation


@dataclass(frozen=True, slots=True)
class JobBaseline:
    """What the metrics need to know about a job, independent of the run.

    ``age``: expected run time without waiting (eq. 9). ``gpu_seconds``: the same on one GPU,
    ``age`` times the mean requirement; ``mean_gpu_seconds``: on one GPU of the mean speed, which
    is less if GPU types differ. ``gpus_max``: the largest requirement.
    ``rate``: samples per second of the whole job on an allocation.
    """

    id: JobId
    submit: float
    age: float
    gpu_seconds: float
    mean_gpu_seconds: float
    gpus_max: int
    rate: Callable[[Allocation], float]


@dataclass(frozen=True, slots=True)
class GpuHold:
    """A period in which a job held the same GPUs without interruption."""

    start: float
    end: float
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """``end`` and ``ftf`` (finish-time fairness) are None if the job has not finished; ``ftf_eq9``
    is the fairness with eq. 9's mean of run times as the time alone.
    """

    id: JobId
    submit: float
    first_start: float | None
    end: float | None
    wait: float
    age: float
    latency_ratio: float
    ftf: float | None
    ftf_eq9: float | None
    restarts: int
    gpu_seconds_held: float
    seconds_held: float = 0.0

    @property
    def jct(self) -> float | None:
        return None if self.end is None else self.end - self.submit


@dataclass(frozen=True, slots=True)
class RoundState:
    """The cluster at a round's start, after all changes of that instant.

    ``fragments``: idle GPUs if a job waits, else 0. ``throughput``: samples per second.
    """

    time: float
    queued: int
    running: int
    idle: int
    fragments: int
    throughput: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one policy; names ending in ``_h`` are in hours, shares are 0 to 1.

    ``restarts_per_job_hour`` is relative to the hours that jobs held GPUs; ``needless_restarts``
    are those that left the GPUs to no other job and made no job faster.
    """

    makespan_h: float
    avg_jct_h: float
    p50_jct_h: float
    p99_jct_h: float
    avg_wait_h: float
    max_latency_ratio: float
    mean_latency_ratio: float
    avg_fragments: float
    max_ftf: float
    max_ftf_eq9: float
    unfair_share: float
    gpu_utilisation: float
    restarts: int
    restarts_per_job_hour: float
    needless_restarts: int
    rounds: int


def holds_by_job(changes: Sequence[AllocationChange]) -> dict[JobId, list[GpuHold]]:
    """Return the stretches in which each job held GPUs; changes of one instant are one change.

    A job that stopped and started in the same place at one instant has failed, which ends a
    stretch. The last stretch of a job whose end is not in ``changes`` ends with the last change.
    """
    changes_by_job: dict[JobId, list[AllocationChange]] = {}
    for change in changes:
        job_holds = changes_by_job.setdefault(change.job, [])
        if job_holds and job_holds[-1].time == change.time and job_holds[-1].placement:
            job_holds.pop()
        if not job_holds or job_holds[-1].placement != change.placement:
            job_holds.append(change)
    horizon = changes[-1].time if changes else 0.0
    holds: dict[JobId, list[GpuHold]] = {}
    for job, job_holds in changes_by_job.items():
        ends = [c.time for c in job_holds[1:]] + [horizon]
        holds[job] = [
            GpuHold(c.time, end, c.placement)
            for c, end in zip(job_holds, ends, strict=True)
            if c.placement and end >= c.time
        ]
    return holds


def job_outcomes(
    changes: Sequence[AllocationChange],
    jobs: Sequence[JobBaseline],
    gpus: int,
    unfinished_jobs: Collection[JobId] = (),
) -> list[JobOutcome]:
    """Compute one outcome per job, in the order of ``jobs``; ``gpus``: all GPUs of the cluster.

    A job's last change to no GPUs is its end, except for ``unfinished_jobs``, since a run may stop
    while they wait.
    """
    holds = holds_by_job(changes)
    last = {change.job: change for change in changes}
    horizon = changes[-1].time if changes else 0.0
    ends = {
        facts.id: last[facts.id].time
        for facts in jobs
        if facts.id in last and not last[facts.id].placement and facts.id not in unfinished_jobs
    }
    contention = _Contention(jobs, ends, horizon)
    return [
        _outcome(facts, holds.get(facts.id, []), ends.get(facts.id), horizon, contention, gpus)
        for facts in jobs
    ]


def _outcome(
    facts: JobBaseline,
    holds: Sequence[GpuHold],
    end: float | None,
    horizon: float,
    contention: _Contention,
    gpus: int,
) -> JobOutcome:
    held_seconds = sum(h.end - h.start for h in holds)
    end_time = horizon if end is None else end
    wait = max(0.0, end_time - facts.submit - held_seconds)
    share = None if end is None else fair_share(facts, end, contention, gpus)
    return JobOutcome(
        id=facts.id,
        submit=facts.submit,
        first_start=holds[0].start if holds else None,
        end=end,
        wait=wait,
        age=facts.age,
        latency_ratio=wait / facts.age,
        ftf=None if share is None else (end_time - facts.submit) * share / facts.mean_gpu_seconds,
        ftf_eq9=None if share is None else (end_time - facts.submit) * share / facts.gpu_seconds,
        restarts=max(0, len(holds) - 1),
        gpu_seconds_held=sum((h.end - h.start) * h.allocation.gpus for h in holds),
        seconds_held=held_seconds,
    )


class _Contention:
    """The mean number of unfinished jobs over any interval."""

    def __init__(
        self, jobs: Sequence[JobBaseline], ends: Mapping[JobId, float], horizon: float
    ) -> None:
        moments = [(facts.submit, 1) for facts in jobs]
        moments += [(ends.get(facts.id, max(horizon, facts.submit)), -1) for facts in jobs]
        moments.sort()
        self._times = np.array([t for t, _ in moments])
        count = np.cumsum([step for _, step in moments])
        area = np.cumsum(count[:-1] * np.diff(self._times))
        self._area = np.concatenate(([0.0], area))

    def mean(self, start: float, end: float) -> float:
        if end <= start:
            return 1.0
        low, high = np.interp([start, end], self._times, self._area)
        return max(1.0, float(high - low) / (end - start))


def fair_share(facts: JobBaseline, end: float, contention: _Contention, gpus: int) -> float:
    """How many GPUs a job's 1/N of the cluster is, at most as many as it may use.

    rho = (end - submit) / time alone on that share (papers: Themis eq. 1, Sia 5.1). N is the mean
    number of jobs present during the job's life. The share has every GPU type in the cluster's
    proportion, so its GPUs have the mean speed. The mean of the types' run times (eq. 9) is
    longer, and would make every policy look fairer than it is.
    """
    return min(gpus / contention.mean(facts.submit, end), float(facts.gpus_max))


def round_states(
    changes: Sequence[AllocationChange],
    jobs: Sequence[JobBaseline],
    gpus: int,
    times: Sequence[float],
    lost_gpus: Callable[[float], int] = lambda _: 0,
    unfinished_jobs: Collection[JobId] = (),
) -> list[RoundState]:
    """Compute the cluster's state at each of ``times`` (ascending). ``lost_gpus``: GPUs of servers
    that are down; ``unfinished_jobs``: as in :func:`job_outcomes`.
    """
    facts = {job.id: job for job in jobs}
    finals = {change.job: i for i, change in enumerate(changes)}
    submits = np.sort(np.array([job.submit for job in jobs]))
    present: dict[JobId, tuple[int, float]] = {}
    held_gpus, rate, ended_jobs, position = 0, 0.0, 0, 0
    states = []
    for time in times:
        while position < len(changes) and changes[position].time <= time:
            change = changes[position]
            previous = present.pop(change.job, (0, 0.0))
            current = (0, 0.0)
            if change.placement:
                current = (change.placement.gpus, facts[change.job].rate(change.placement))
                present[change.job] = current
            elif finals[change.job] == position and change.job not in unfinished_jobs:
                ended_jobs += 1
            held_gpus += current[0] - previous[0]
            rate += current[1] - previous[1]
            position += 1
        queue_length = int(np.searchsorted(submits, time, side="right")) - ended_jobs - len(present)
        idle = gpus - held_gpus - lost_gpus(time)
        fragments = idle if queue_length else 0
        states.append(RoundState(time, queue_length, len(present), idle, fragments, max(0.0, rate)))
    return states


def summarise(
    outcomes: Sequence[JobOutcome], states: Sequence[RoundState], gpus: int, needless: int = 0
) -> Summary:
    """Summarise all jobs; unfinished ones count only in waiting time and latency ratio.

    ``needless``: restarts without gain, which the timeline alone does not show.
    """
    hours = sum(o.seconds_held for o in outcomes) / 3600.0
    restarts = sum(o.restarts for o in outcomes)
    jcts = np.array([o.jct for o in outcomes if o.jct is not None]) / 3600.0
    ends = [o.end for o in outcomes if o.end is not None]
    makespan = max(ends) - min(o.submit for o in outcomes) if ends else 0.0
    ratios = np.array([o.latency_ratio for o in outcomes])
    rhos = np.array([o.ftf for o in outcomes if o.ftf is not None])
    gpu_seconds = sum(o.gpu_seconds_held for o in outcomes)
    return Summary(
        makespan_h=makespan / 3600.0,
        avg_jct_h=_mean(jcts),
        p50_jct_h=percentile(jcts, 50),
        p99_jct_h=percentile(jcts, 99),
        avg_wait_h=_mean(np.array([o.wait for o in outcomes])) / 3600.0,
        max_latency_ratio=float(ratios.max(initial=0.0)),
        mean_latency_ratio=_mean(ratios),
        avg_fragments=_mean(np.array([float(s.fragments) for s in states])),
        max_ftf=float(rhos.max(initial=0.0)),
        max_ftf_eq9=max((o.ftf_eq9 for o in outcomes if o.ftf_eq9 is not None), default=0.0),
        unfair_share=_mean((rhos > 1.0 + ROUNDING).astype(float)),
        gpu_utilisation=gpu_seconds / (gpus * makespan) if makespan > 0 else 0.0,
        restarts=restarts,
        restarts_per_job_hour=restarts / hours if hours > 0 else 0.0,
        needless_restarts=needless,
        rounds=len(states),
    )


def throughput_over_time(
    changes: Sequence[AllocationChange], jobs: Sequence[JobBaseline]
) -> tuple[Floats, Floats]:
    """Return times, and the samples per second of all running jobs from each time on."""
    times = sorted({change.time for change in changes})
    states = round_states(changes, jobs, 0, times)
    return np.array(times), np.array([state.throughput for state in states])


def percentile(values: Floats, share: float) -> float:
    """Percentile by linear interpolation between the closest ranks; 0 if there are no values."""
    return float(np.percentile(values, share)) if len(values) else 0.0


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
