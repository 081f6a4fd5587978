"""AlloX+ and the schedulers AlloX is compared with (EuroSys 2020, sections 2.2, 4.4 and 5.1.1).

All of them run each job, rigid, on one device type and never preempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId, UserName
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.allox.machines import WorkAndMachines
from hopsd.policies.allox.policy import plan_of


class _Starts:
    """Jobs started so far, and what each user holds of each type."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.situation = WorkAndMachines(snapshot)
        self.work, self.machines = self.situation.work, self.situation.machines
        self.kinds = range(len(self.work.types))
        self.open = dict.fromkeys(range(len(self.work.jobs)))
        self.placements: dict[JobId, Allocation] = {}
        self.held: Counter[tuple[UserName, int]] = Counter()
        for run in self.situation.running:
            self.held[run.job.user, run.kind] += run.gpus
        present = [run.job for run in self.situation.running] + list(self.work.jobs)
        self.users = sorted({job.user for job in present})

    def give(self, job: int, kind: int) -> bool:
        """Start the job on type ``kind`` if it fits now."""
        gpus, seconds = int(self.work.gpus[job]), float(self.work.seconds[job, kind])
        if gpus > self.machines.unclaimed_devices(kind) or not np.isfinite(seconds):
            return False
        start, parts = self.machines.earliest(kind, gpus)
        if start > self.machines.now:
            return False
        spec = self.work.jobs[job]
        end = self.machines.now + seconds
        self.placements[spec.id] = self.machines.start(kind, parts, end)
        self.held[spec.user, kind] += gpus
        del self.open[job]
        return True

    def shortest(self) -> Iterator[tuple[int, int]]:
        """Yield (job, type) of waiting jobs, by run time."""
        seconds = self.work.seconds
        for flat in np.argsort(seconds, axis=None, kind="stable").tolist():
            job, kind = divmod(flat, len(self.kinds))
            if job in self.open and np.isfinite(seconds[job, kind]):
                yield job, kind

    def plan(self) -> Plan:
        return plan_of(self.situation, self.placements, {})


def shortest_first(snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG001
    """SJF+ (section 2.2): start the shortest run on any idle device first."""
    starts = _Starts(snapshot)
    for job, kind in starts.shortest():
        starts.give(job, kind)
    return starts.plan()


def allox_plus(snapshot: Snapshot, settings: PlanSettings) -> Plan:
    """AlloX+ (section 4.4): as SJF+, but jobs that have waited longer than its patience come first.

    Such a job reserves the devices where it would end first, so that no shorter job takes them.
    """
    starts = _Starts(snapshot)
    for job, spec in enumerate(starts.work.jobs):
        if spec.wait_seconds > settings.patience_seconds:
            _soonest(starts, job)
    for job, kind in starts.shortest():
        starts.give(job, kind)
    return starts.plan()


def join_shortest_queue(snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG001
    """JSQ+ (section 2.2): in order of arrival, each job joins the queue where it would end first.

    Queues are recomputed for each plan; with accurate run times they are the same as stored ones.
    """
    starts = _Starts(snapshot)
    for job in range(len(starts.work.jobs)):
        _soonest(starts, job)
    return starts.plan()


def _soonest(starts: _Starts, job: int) -> None:
    """Start the job where it would end first, or reserve those devices."""
    gpus, seconds = int(starts.work.gpus[job]), starts.work.seconds[job]
    begins = [starts.machines.earliest(kind, gpus) for kind in starts.kinds]
    ends = np.array([start for start, _ in begins]) + seconds
    kind = int(ends.argmin())
    if not starts.give(job, kind) and np.isfinite(ends[kind]):
        starts.machines.reserve(kind, begins[kind][1], float(ends[kind]))
        del starts.open[job]


@dataclass(frozen=True, slots=True)
class EqualShare:
    """ES: every present user gets an equal part of each type, and uses it shortest run first.

    With ``in_order`` jobs are instead served in order of arrival, each on the fastest type that is
    idle in its user's part, as in the paper's table 1.
    """

    in_order: bool = False

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG002
        starts = _Starts(snapshot)
        part = -(-starts.work.capacity // max(1, len(starts.users)))
        for job, kind in self._order(starts):
            if job not in starts.open:
                continue
            user, gpus = starts.work.jobs[job].user, int(starts.work.gpus[job])
            machines_held = starts.held[user, kind]
            if machines_held == 0 or machines_held + gpus <= part[kind]:
                starts.give(job, kind)
        return starts.plan()

    def _order(self, starts: _Starts) -> Iterator[tuple[int, int]]:
        if not self.in_order:
            yield from starts.shortest()
            return
        for job, seconds in enumerate(starts.work.seconds):
            yield from ((job, kind) for kind in np.argsort(seconds, kind="stable").tolist())


@dataclass(frozen=True, slots=True)
class DominantShare:
    """Online DRF: the user with the least dominant share is next, on the job's fastest type.

    With ``shortest``, a user's shortest job is first (DRFS), else they are in order of arrival
    (DRFF). A user whose next job does not fit is passed over.
    """

    shortest: bool

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG002
        starts = _Starts(snapshot)
        fastest = starts.work.seconds.argmin(axis=1) if starts.open else np.empty(0, int)
        best = starts.work.seconds.min(axis=1) if starts.open else np.empty(0)
        blocked_users: set[UserName] = set()
        while True:
            queues = _queues(starts, blocked_users)
            if not queues:
                return starts.plan()
            user = min(queues, key=lambda u: (self._share(starts, u), queues[u][0]))
            job = min(queues[user], key=lambda i: best[i]) if self.shortest else queues[user][0]
            if not starts.give(job, int(fastest[job])):
                blocked_users.add(user)

    def _share(self, starts: _Starts, user: UserName) -> float:
        machines_held = np.array([starts.held[user, kind] for kind in starts.kinds])
        return float((machines_held / starts.work.capacity).max())


def converted_share(snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG001
    """DRFA: devices are weighted by mean speed, so that there is a single resource to share.

    The user with the smallest share is next, with the shortest run on any idle device.
    """
    starts = _Starts(snapshot)
    worth = _mean_speedups(starts)
    blocked_users: set[UserName] = set()
    while True:
        queues = _queues(starts, blocked_users)
        if not queues:
            return starts.plan()
        user = min(
            queues,
            key=lambda u: (sum(starts.held[u, t] * worth[t] for t in starts.kinds), queues[u][0]),
        )
        seconds = starts.work.seconds[queues[user]]
        order = [
            divmod(flat, len(starts.kinds)) for flat in np.argsort(seconds, axis=None).tolist()
        ]
        if not any(starts.give(queues[user][row], kind) for row, kind in order):
            blocked_users.add(user)


def _mean_speedups(starts: _Starts) -> Floats:
    """Mean speed of each type relative to the slowest, over jobs that can run on all, (types,)."""
    all_seconds = [run.seconds for run in starts.situation.running] + list(starts.work.seconds)
    finite_seconds = [seconds for seconds in all_seconds if np.isfinite(seconds).all()]
    if not finite_seconds:
        return np.ones(len(starts.kinds))
    times = np.array(finite_seconds)
    worth: Floats = (times.max(axis=1, keepdims=True) / times).mean(axis=0)
    return worth


def _queues(starts: _Starts, blocked_users: set[UserName]) -> dict[UserName, list[int]]:
    """Waiting jobs by user, in order of arrival, without the blocked users."""
    queues: dict[UserName, list[int]] = {}
    for job in starts.open:
        user = starts.work.jobs[job].user
        if user not in blocked_users:
            queues.setdefault(user, []).append(job)
    return queues


drff = DominantShare(shortest=False)
drfs = DominantShare(shortest=True)
equal_share = EqualShare()
