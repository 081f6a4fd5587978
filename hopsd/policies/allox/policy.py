"""AlloX (Le et al., EuroSys 2020): least mean completion time over interchangeable resources.

Whenever something is idle, the waiting jobs of the users with least progress are matched to
positions on all machines (``solver/matching.py``); the job that comes first on an idle machine
starts.
Nothing is ever preempted.

The paper's jobs take one machine each. Here a job may take several of one type. Then a machine of
the matching is a bundle of as many devices as the mean job takes; jobs behind another wait for it
in proportion to its size, and it starts no sooner than its devices are free together. If its turn
comes earlier, they are reserved, and meanwhile given to jobs that end before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId, UserName
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.allox.dominant_share import Configuration, eligible_users, value
from hopsd.policies.allox.machines import Machines, Parts, Work, WorkAndMachines
from hopsd.solver.matching import Queues, match


def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:
    """Start waiting jobs on idle devices; every other job waits or keeps running."""
    situation = WorkAndMachines(snapshot)
    scheduler = _Scheduler(situation, settings.alpha)
    scheduler.run()
    text = "other jobs come first, or waiting for a machine that is still busy pays off"
    reason = Reason(ReasonCode.LOST_TO_OTHERS, text)
    for job in situation.work.jobs:
        if job.id not in scheduler.placements:
            scheduler.waiting.setdefault(job.id, reason)
    return plan_of(situation, scheduler.placements, scheduler.waiting)


def plan_of(
    situation: WorkAndMachines,
    placements: dict[JobId, Allocation],
    waiting: dict[JobId, Reason],
) -> Plan:
    """Make a plan that leaves running jobs in place."""
    jobs = situation.work.jobs
    queued_jobs = [job.id for job in jobs if job.id not in placements]
    default = Reason(ReasonCode.LOST_TO_OTHERS, "idle GPUs went to jobs of higher priority")
    return Plan(
        placements=situation.placements | placements,
        window=tuple(job.id for job in jobs),
        fragments=situation.machines.idle if queued_jobs else 0,
        waiting=situation.waiting | dict.fromkeys(queued_jobs, default) | waiting,
    )


class UserProgress:
    """Each user's progress: the sum of the values of the running jobs (section 3.3.2).

    Each device type is a resource; memory is not counted, Slurm enforces it.
    """

    def __init__(self, situation: WorkAndMachines) -> None:
        work = situation.work
        self._types = work.types
        self._capacity = dict(zip(work.types, work.capacity.tolist(), strict=True))
        self._oldest: dict[UserName, float] = {}
        self._service_of_user: dict[UserName, float] = {}
        for job in [run.job for run in situation.running] + list(work.jobs):
            self._service_of_user.setdefault(job.user, 0.0)
            submit = np.inf if job.running else job.submit
            self._oldest[job.user] = min(submit, self._oldest.get(job.user, np.inf))
        for run in situation.running:
            self.add(run.job.user, run.gpus, run.seconds, run.kind)

    def add(self, user: UserName, gpus: int, seconds: Floats, kind: int) -> None:
        """Count a job with run times ``seconds`` (types,) that runs on type ``kind``."""
        ways = [
            Configuration({gpu_type: gpus}, float(time))
            for gpu_type, time in zip(self._types, seconds, strict=True)
        ]
        self._service_of_user[user] += value(ways, ways[kind], self._capacity)

    def order(self) -> list[UserName]:
        """All users, least progress first; ties go to the one who has waited longest."""
        return sorted(
            self._service_of_user, key=lambda u: (self._service_of_user[u], self._oldest[u], u)
        )


@dataclass(frozen=True, slots=True)
class _Reservation:
    kind: int
    parts: Parts
    start: float


class _Scheduler:
    """Repeats Algorithm 2 as long as it finds a job for something that is idle."""

    def __init__(self, situation: WorkAndMachines, alpha: float) -> None:
        self._work: Work = situation.work
        self._machines: Machines = situation.machines
        self._progress = UserProgress(situation)
        self._alpha = alpha
        self._open = list(range(len(self._work.jobs)))
        self._reservations: list[_Reservation] = []
        self.placements: dict[JobId, Allocation] = {}
        self.waiting: dict[JobId, Reason] = {}

    def run(self) -> None:
        members: frozenset[UserName] = frozenset()
        firsts: list[tuple[int, int]] = []
        while self._could_start():
            order = self._progress.order()
            if not firsts or members != self._members(order, self._alpha):
                members, firsts = self._match(order)
            if not firsts:
                break
            job, kind = firsts.pop(0)
            start, parts = self._machines.earliest(kind, int(self._work.gpus[job]))
            if start <= self._machines.now:
                self._start(job, kind, parts)
            elif not self._is_reserved(kind):
                self._reserve(job, kind, parts, start)
        self._fill_reserved()

    def _is_reserved(self, kind: int) -> bool:
        return any(reservation.kind == kind for reservation in self._reservations)

    def _members(self, order: Sequence[UserName], alpha: float) -> frozenset[UserName]:
        return frozenset(order[: eligible_users(len(order), alpha)])

    def _could_start(self) -> bool:
        kinds = [t for t in range(len(self._work.types)) if self._machines.unclaimed_devices(t)]
        return bool(np.isfinite(self._work.seconds[np.ix_(self._open, kinds)]).any())

    def _match(
        self, order: Sequence[UserName]
    ) -> tuple[frozenset[UserName], list[tuple[int, int]]]:
        """Return the users that took part, and the jobs that come first on machines, with the type.

        While there are no such jobs, alpha is raised (section 4.4, low utilisation) until all users
        take part.
        """
        alpha = self._alpha
        previous: list[int] = []
        while True:
            members = self._members(order, alpha)
            jobs = [i for i in self._open if self._work.jobs[i].user in members]
            firsts = self._firsts(jobs, order) if len(jobs) > len(previous) else []
            if firsts or len(members) == len(order):
                return members, firsts
            previous = jobs
            alpha = min(1.0, 2 * len(members) / len(order))

    def _firsts(self, jobs: Sequence[int], order: Sequence[UserName]) -> list[tuple[int, int]]:
        work, machines = self._work, self._machines
        kinds = range(len(work.types))
        earliest = self._earliest(jobs)
        some_day = np.isfinite(work.seconds[jobs] + earliest).any(axis=1)
        jobs = np.asarray(jobs)[some_day].tolist()
        if not jobs:
            return []
        bundle = max(1, round(float(work.gpus[jobs].mean())))
        ready = [np.sort(machines.ready(t))[::bundle] for t in kinds]
        kind = np.repeat(np.arange(len(ready)), [len(r) for r in ready])
        queues = Queues(
            work.seconds[jobs],
            kind,
            np.concatenate(ready),
            np.array([work.jobs[i].submit for i in jobs]),
            work.gpus[jobs] / bundle,
            earliest[some_day],
        )
        assignment = match(queues)
        first = {int(assignment.machine[i]): int(i) for i in np.argsort(assignment.place)}
        rank = {user: i for i, user in enumerate(order)}
        first_jobs = [
            (jobs[i], int(kind[machine]))
            for machine, i in first.items()
            if self._acts(jobs[i], queues.earliest[i], queues.ready[machine], int(kind[machine]))
        ]
        return sorted(first_jobs, key=lambda pair: (rank[work.jobs[pair[0]].user], pair[0]))

    def _acts(self, job: int, earliest: Floats, ready: float, kind: int) -> bool:
        """Whether a job that comes first on a machine starts or gets a reservation.

        A job of several devices gets one even if the machine that it is matched to is busy, since
        jobs of one device could otherwise occupy the rest forever.
        """
        if earliest[kind] <= self._machines.now:
            return ready <= self._machines.now
        return bool(self._work.gpus[job] > 1) and not self._is_reserved(kind)

    def _earliest(self, jobs: Iterable[int]) -> Floats:
        """Earliest time when as many devices as each job takes are free together, (jobs, types)."""
        sizes = {int(self._work.gpus[i]) for i in jobs}
        soonest = {g: self._machines.soonest(g) for g in sizes}
        return np.array([soonest[int(self._work.gpus[i])] for i in jobs])

    def _start(self, job: int, kind: int, parts: Parts) -> None:
        seconds = self._work.seconds[job]
        end = self._machines.now + float(seconds[kind])
        allocation = self._machines.start(kind, parts, end)
        self._note_placement(job, kind, allocation)

    def _note_placement(self, job: int, kind: int, allocation: Allocation) -> None:
        spec = self._work.jobs[job]
        self.placements[spec.id] = allocation
        self.waiting.pop(spec.id, None)
        self._progress.add(spec.user, allocation.gpus, self._work.seconds[job], kind)
        if job in self._open:
            self._open.remove(job)

    def _reserve(self, job: int, kind: int, parts: Parts, start: float) -> None:
        self._machines.reserve(kind, parts, start + float(self._work.seconds[job, kind]))
        self._reservations.append(_Reservation(kind, parts, start))
        self._open.remove(job)
        wait = start - self._machines.now
        text = (
            f"its turn has come: {self._work.gpus[job]} of {self._work.types[kind]} are kept for"
            f" it and free together in about {wait:.0f} s"
        )
        self.waiting[self._work.jobs[job].id] = Reason(ReasonCode.LOST_TO_OTHERS, text)

    def _fill_reserved(self) -> None:
        """Start jobs that end before a reservation begins on its devices, the shortest first."""
        for reservation in self._reservations:
            free_for = reservation.start - self._machines.now
            seconds = self._work.seconds[:, reservation.kind]
            for job in sorted(self._open, key=lambda i: float(seconds[i])):
                if seconds[job] > free_for:
                    break
                for row, _ in reservation.parts:
                    allocation = self._machines.fill(
                        reservation.kind, row, int(self._work.gpus[job])
                    )
                    if allocation is not None:
                        self._note_placement(job, reservation.kind, allocation)
                        break
