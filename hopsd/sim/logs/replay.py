"""Replays jobs as they ran: as a workload, and with the figures of what really happened.

A log says when jobs were submitted, how many GPUs they held and for how long, but not how fast they
would have been elsewhere: each takes as long with its GPUs as it did, wherever they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from hopsd.errors import InputError
from hopsd.model.allocation import Allocation
from hopsd.model.history import LoggedJob
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.reason import count_of
from hopsd.model.scenario import Cluster, Workload, WorkloadJob
from hopsd.sim.engine import PlanMade
from hopsd.sim.facts import facts_of
from hopsd.sim.metrics import AllocationChange, job_outcomes, round_states, summarise
from hopsd.sim.study import PolicyResult

REALITY = "as it was"
"""Used as the policy's name in tables."""

_UNKNOWN_NODE = NodeName("?")


@dataclass(frozen=True, slots=True)
class Replay:
    """``jobs`` as they ran from ``start`` on, which is time 0 in ``workload``.

    ``movable`` says whether policies may move the jobs. The other fields count jobs: ``never_ran``
    and ``older`` (beyond the limit) are left out; ``unfinished`` were still running at the end;
    ``unknown_types`` asked for a GPU type that the cluster lacks, and get any type.
    """

    jobs: tuple[LoggedJob, ...]
    workload: Workload
    start: float
    end: float
    movable: bool = False
    never_ran: int = 0
    unfinished: int = 0
    unknown_types: int = 0
    older: int = 0

    @property
    def without_limit(self) -> int:
        return sum(job.time_limit_seconds is None for job in self.jobs)

    @property
    def restarted(self) -> int:
        return sum(len(job.runs) > 1 for job in self.jobs)

    def only(self, workload: Workload) -> Replay:
        """Return the replay of the jobs in ``workload`` only."""
        job_ids = {job.id for job in workload.jobs}
        return replace(
            self, jobs=tuple(job for job in self.jobs if job.id in job_ids), workload=workload
        )


def replay(
    logged_jobs: Iterable[LoggedJob],
    cluster: Cluster,
    start: float,
    end: float,
    job_limit: int,
    *,
    movable: bool = False,
) -> Replay:
    """Replay the jobs between ``start`` and ``end``; if there are more than ``job_limit``, the
    newest of them, from the submission of the first of these.

    Raises:
        InputError: if no job with GPUs ran in that time.
    """
    clipped_jobs = [job.clip(start, end) for job in logged_jobs if job.since < end]
    ran = sorted((job for job in clipped_jobs if job.runs), key=lambda job: (job.since, job.id))
    older = max(0, len(ran) - job_limit)
    if older:
        start = ran[older].since
        ran = [job for job in (job.clip(start, end) for job in ran) if job.runs]
        ran = sorted(ran, key=lambda job: (job.since, job.id))[-job_limit:]
    if not ran:
        raise InputError("no job with GPUs ran in that time")
    ran = _distinct(ran)
    types = {server.gpu_type for server in cluster.servers}
    return Replay(
        jobs=tuple(ran),
        workload=_workload(ran, types, start, movable=movable),
        start=start,
        end=end,
        movable=movable,
        never_ran=sum(not job.runs for job in clipped_jobs),
        unfinished=sum(job.runs[-1].end == end for job in ran),
        unknown_types=sum(bool(job.gpu_type) and job.gpu_type not in types for job in ran),
        older=older,
    )


def _distinct(jobs: Sequence[LoggedJob]) -> list[LoggedJob]:
    """Make ids unique: if Slurm has reused an id, the later job gets a new name."""
    occurrences: Counter[JobId] = Counter()
    distinct_jobs = []
    for job in jobs:
        occurrences[job.id] += 1
        repeat = occurrences[job.id]
        distinct_jobs.append(job if repeat == 1 else replace(job, id=JobId(f"{job.id}-{repeat}")))
    return distinct_jobs


def _workload(
    jobs: Sequence[LoggedJob], types: set[GpuType], start: float, *, movable: bool
) -> Workload:
    """Build the workload; samples are GPU-seconds, and jobs keep to a GPU type they asked for."""
    table = ThroughputTable({1: 1.0}, {2: 1.0}, source="log")
    anywhere = WorkloadName("logged")
    tables = {anywhere: dict.fromkeys(sorted(types), table)}
    specs = []
    for job in jobs:
        name = anywhere
        if job.gpu_type in types:
            name = WorkloadName(f"logged-{job.gpu_type}")
            tables[name] = {job.gpu_type: table}
        specs.append(
            WorkloadJob(
                id=job.id,
                user=job.user,
                submit=job.since - start,
                workload=name,
                samples=job.gpu_seconds,
                reqs=(job.gpus,),
                preemptible=movable,
                time_limit_seconds=job.time_limit_seconds,
            )
        )
    return Workload(tables, tuple(specs))


def as_it_was(original: Replay, cluster: Cluster, round_seconds: float) -> PolicyResult:
    """Compute for the real runs of the jobs the same figures as for a simulated policy."""
    changes = []
    for job in original.jobs:
        for run in job.runs:
            allocation = Allocation.of({_UNKNOWN_NODE: run.gpus})
            end = original.end if run.end is None else run.end
            changes.append(AllocationChange(run.start - original.start, job.id, allocation))
            changes.append(AllocationChange(end - original.start, job.id, Allocation()))
    changes.sort(key=lambda change: change.time)
    facts = [replace(f, rate=lambda _: 0.0) for f in facts_of(cluster, original.workload)]
    outcomes = job_outcomes(changes, facts, cluster.gpus)
    last = changes[-1].time if changes else 0.0
    times = [i * round_seconds for i in range(ceil(last / round_seconds))]
    states = round_states(changes, facts, cluster.gpus, times)
    return PolicyResult(
        policy=REALITY,
        changes=(),
        outcomes=tuple(outcomes),
        rounds=tuple(states),
        first_plans=tuple(PlanMade(time, 0.0, 0.0, 0) for time in times),
        plans=0,
        summary=summarise(outcomes, states, cluster.gpus),
        wall_seconds=0.0,
    )


_ASSUMPTIONS = (
    (
        "They arrive when they did, once no dependency held them back, with the GPUs that they"
        " had, and train for as long as they did, on whichever servers."
    ),
    (
        "Only the part within the period counts: jobs that ran or waited at its start arrive then,"
        " and jobs that run at its end end there."
    ),
    (
        "GPUs alone decide where a job fits, not cores, memory, partitions or limits of users and"
        " accounts. No job grows or shrinks, since none says that it could."
    ),
)


def assumptions(run: Replay, *, machine: str) -> list[str]:
    """List a replay's assumptions as sentences; ``machine`` says where the jobs are known from."""
    users = len({job.user for job in run.jobs})
    moved_text = (
        "Jobs may be moved and stopped without losing work."
        if run.movable
        else "No job is moved or stopped once it runs, like jobs that do not save their work."
    )
    sentences = [
        f"{count_of(len(run.jobs), 'jobs')} with GPUs of {count_of(users, 'users')}, as {machine}.",
        *_ASSUMPTIONS,
        moved_text,
    ]
    for number, text in (
        (run.older, "older jobs are left out, so the period begins later"),
        (run.never_ran, "jobs never started and are left out"),
        (run.unfinished, "jobs still ran at the end"),
        (run.restarted, "jobs were restarted; they train for as long as all their runs took"),
        (run.unknown_types, "jobs asked for a GPU type that does not exist; they get any type"),
        (run.without_limit, "jobs had no time limit; one is made up"),
    ):
        if number:
            sentences.append(f"{number} {text}." if number != 1 else f"1 of them: {text}.")
    return sentences
