"""The time of a round, and when it ends early so that running jobs compete again."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from math import inf

from hopsd.core.placement.pools import could_run, pools_of
from hopsd.core.queue.competing import competes, idle_gpus
from hopsd.core.queue.priority import ages, remaining_seconds
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.plan import Plan, Snapshot
from hopsd.model.reason import ReasonCode

MIN_SECONDS = 60.0
"""A round does not end early before this time has passed, or if less than this time remains: a job
is to train for longer than its restart takes."""

MIN_SHARE = 1 / 6
"""The same as a share of a round's length, which a site chooses so that jobs seldom move."""

WASTE = 0.03
"""The share of the GPUs' time in a round that idle GPUs may waste: of 64 GPUs, two for the whole
round or four for half of it. With less, a large cluster, where some job ends every minute, would
plan all the time.
"""

_BESIDE_OTHERS = (
    ReasonCode.OUTSIDE_WINDOW,
    ReasonCode.LOST_TO_OTHERS,
    ReasonCode.NO_CONFIGURATION,
)
"""The reasons of waiting jobs that could start if others made room; not limits, holds or errors."""


@dataclass(frozen=True, slots=True)
class RoundWindow:
    """The time of one round. Its first plan opens it; what further plans grant ends with it.

    ``idle``: the fewest GPUs that a plan of the round left idle on nodes that movable jobs could
    use; infinity if no plan has been considered.
    """

    start: float
    end: float
    idle: float = inf

    def lasts(self, now: float) -> bool:
        """Whether ``now`` is in the round; after a clock is set back, a new round begins."""
        return self.start <= now < self.end

    def after(self, plan: Plan, snapshot: Snapshot) -> RoundWindow:
        """Return the window with ``idle`` updated by ``plan``."""
        return replace(self, idle=min(self.idle, idle_beside(plan, snapshot)[0]))

    def rest(self, now: float) -> RoundWindow:
        """Return a new round for the remaining time."""
        return RoundWindow(now, self.end)

    def may_end(self, seconds: float) -> float:
        """Return the earliest time at which the round may end; ``seconds``: its usual length."""
        return self.start + _min_seconds(seconds)

    def wastes(self, idle: int, gpus: int, now: float, seconds: float) -> bool:
        """Whether GPUs that have become idle would waste too much of the time of ``gpus`` GPUs."""
        return (idle - self.idle) * (self.end - now) > WASTE * gpus * seconds

    def ends_early(self, plan: Plan, snapshot: Snapshot, seconds: float) -> bool:
        """Whether to begin a new round instead of using ``plan``, a further plan of this round.

        That is so if GPUs have become idle that no waiting job gets, or if a job that arrived in
        the round gets no GPUs but would be done before its end.
        """
        now = snapshot.now
        if now < self.may_end(seconds) or self.end - now < _min_seconds(seconds):
            return False
        idle, gpus = idle_beside(plan, snapshot)
        return self.wastes(idle, gpus, now, seconds) or _passes_over(plan, snapshot, self)


def _min_seconds(seconds: float) -> float:
    return max(MIN_SECONDS, MIN_SHARE * seconds)


def _passes_over(plan: Plan, snapshot: Snapshot, window: RoundWindow) -> bool:
    """Whether a job that arrived in ``window`` gets no GPUs and would be done before its end."""
    pools = pools_of(snapshot.nodes)
    new = [
        job
        for job in snapshot.jobs
        if job.wait_seconds < snapshot.now - window.start
        and not job.running
        and not job.run_seconds
        and job.id not in plan.placements
        and (reason := plan.waiting.get(job.id)) is not None
        and reason.code in _BESIDE_OTHERS
        and could_run(job, pools, sigma=inf)
    ]
    expected = ages(new, snapshot.nodes)
    remaining = window.end - snapshot.now
    return any(remaining_seconds(job, expected[job.id]) < remaining for job in new)


def idle_beside(plan: Plan, snapshot: Snapshot) -> tuple[int, int]:
    """Return how many GPUs ``plan`` leaves idle, and how many there are, on relevant nodes.

    These are the nodes open to some movable job that runs under the plan.
    """
    idle = Counter(dict(zip((n.name for n in snapshot.nodes), idle_gpus(snapshot), strict=True)))
    allocations = {job.id: job.running for job in snapshot.jobs}
    for job_id, allocation in plan.placements.items():
        # The snapshot already counts a session's GPUs as taken.
        if allocations.get(job_id) != allocation:
            idle.subtract(dict(allocation))
    open_to: dict[GpuType, set[frozenset[NodeName] | None]] = defaultdict(set)
    for job in snapshot.jobs:
        if (job.running or job.id in plan.placements) and competes(job, first=True):
            for kind in job.throughput:
                open_to[kind].add(job.rules.nodes)
    nodes = [
        node
        for node in snapshot.nodes
        if any(names is None or node.name in names for names in open_to[node.gpu_type])
    ]
    return sum(max(0, idle[node.name]) for node in nodes), sum(node.gpus for node in nodes)


def current_window(
    window: RoundWindow | None, now: float, seconds: float
) -> tuple[RoundWindow, bool]:
    """Return the round that contains ``now``, and whether it begins now."""
    if window is not None and window.lasts(now):
        return window, False
    return RoundWindow(now, now + seconds), True
