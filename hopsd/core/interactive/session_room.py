"""Room for sessions: idle GPUs, and GPUs that running trainings give up.

A training that saves can give up GPUs within seconds: it shrinks to a smaller count that it
accepts, on one of its nodes or, if that frees too few, stops and waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hopsd.core.placement.allowed_shapes import in_one
from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.ledger import Ledger
from hopsd.core.placement.remaining_limits import limits_after
from hopsd.core.queue.competing import staying_jobs
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, job_order
from hopsd.model.job import Job, Node
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.rules import ShapeRule

STOP_COST = 600.0
"""Cost of stopping a training instead of shrinking it, in GPU seconds per GPU: it waits for its
turn, while one that shrank continues to train."""

IDLE_SECONDS = 300.0
"""About how long a GPU that was freed unnecessarily is idle until a waiting job gets it."""

UNPROVEN_COST = 1e6
"""Cost, in GPU seconds, of a training that was never seen to save or to restart: it may use up its
whole grace."""


@dataclass(frozen=True, slots=True)
class Concession:
    """GPUs that a running job gives up.

    ``target``: the allocation that it keeps, empty if it stops; ``cost``: in GPU seconds;
    ``cause``: says for which session.
    """

    job: Job
    target: Allocation
    cost: float
    cause: str = ""

    def gpus_freed_on(self, node: NodeName) -> int:
        return self.job.running.on(node) - self.target.on(node)


class Room:
    """The GPUs that sessions may take, as they are taken one session after the other."""

    def __init__(
        self, snapshot: Snapshot, movable: Sequence[Job], proven_jobs: frozenset[JobId]
    ) -> None:
        """``movable``: jobs that may give up GPUs; ``proven_jobs``: jobs that were seen to save, or
        to continue training after a restart.
        """
        further = RoundInfo(first=False, seconds=snapshot.round.seconds)
        self._snapshot = replace(snapshot, round=further)
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._movable = {job.id: job for job in movable}
        self._proven_jobs = proven_jobs
        self.concessions: dict[JobId, Concession] = {}
        self.placements: dict[JobId, Allocation] = {}
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._ledger = self._ledger_with(self.concessions)
        self._idle = {node.name: node.idle for node in snapshot.nodes}

    def place(self, session: Job) -> Allocation | None:
        """Take room for ``session``: idle GPUs if possible, or else the cheapest concessions.

        Returns None if there is no room.
        """
        forms = list(_forms(session, self._snapshot.nodes))
        for may_move in (False, True):
            for count, gpus_per_node in forms:
                room = self._find(session, count, gpus_per_node, may_move=may_move)
                if room is not None:
                    self._take(session, *room)
                    return room[0]
        return None

    def _find(
        self, session: Job, count: int, gpus_per_node: int, *, may_move: bool
    ) -> tuple[Allocation, dict[JobId, Concession], Ledger] | None:
        """Find ``gpus_per_node`` GPUs on ``count`` nodes of one type, and who gives them up."""
        best: tuple[float, Allocation, dict[JobId, Concession], Ledger] | None = None
        for kind in session.throughput:
            gpus_by_node: dict[NodeName, int] = {}
            taken_concessions: dict[JobId, Concession] = {}
            for name, concessions in self._by_cost(session, kind, gpus_per_node, may_move=may_move):
                if taken_concessions.keys() & concessions.keys():
                    continue
                allocation = Allocation.of({**gpus_by_node, name: gpus_per_node})
                total = {**taken_concessions, **concessions}
                ledger = self._ledger if not total else self._ledger_with(self.concessions | total)
                if len(allocation.nodes) < count:
                    gpus_by_node[name], taken_concessions = gpus_per_node, total
                elif ledger.may(session, allocation):
                    cost = sum(concession.cost for concession in total.values())
                    if best is None or cost < best[0]:
                        best = cost, allocation, total, ledger
                    break
        return best and best[1:]

    def _by_cost(
        self, session: Job, kind: str, gpus_per_node: int, *, may_move: bool
    ) -> Iterator[tuple[NodeName, dict[JobId, Concession]]]:
        """Yield the nodes that can give ``gpus_per_node`` GPUs, and the concessions needed.

        The cheapest come first; of equally cheap ones, those with the fewest idle GPUs, so that
        large jobs still find whole nodes.
        """
        offers = []
        for position, node in enumerate(self._snapshot.nodes):
            nodes = session.rules.nodes
            if node.gpu_type != kind or (nodes is not None and node.name not in nodes):
                continue
            concessions = self._concessions(
                node, gpus_per_node - self._idle[node.name], may_move=may_move
            )
            if concessions is not None:
                cost = sum(concession.cost for concession in concessions.values())
                offers.append((cost, self._idle[node.name], position, node.name, concessions))
        for _, _, _, name, concessions in sorted(offers, key=lambda concession: concession[:3]):
            yield name, concessions

    def _concessions(
        self, node: Node, shortage: int, *, may_move: bool
    ) -> dict[JobId, Concession] | None:
        """Choose the jobs that give up ``shortage`` GPUs on ``node``; None if they cannot.

        This is the cheapest job that suffices alone, or else jobs by their cost per GPU until they
        suffice.
        """
        if shortage <= 0:
            return {}
        options = list(self._options(node.name, shortage)) if may_move else []
        alone = [option for option in options if option.gpus_freed_on(node.name) >= shortage]
        if alone:
            option = min(alone, key=lambda option: (option.cost, job_order(option.job.id)))
            return {option.job.id: option}
        concessions: dict[JobId, Concession] = {}

        def cost_of_each(option: Concession) -> tuple[float, object]:
            return option.cost / option.gpus_freed_on(node.name), job_order(option.job.id)

        for option in sorted(options, key=cost_of_each):
            smaller = concessions.get(option.job.id)
            extra_gpus = option.gpus_freed_on(node.name) - (
                smaller.gpus_freed_on(node.name) if smaller else 0
            )
            if extra_gpus > 0:
                concessions[option.job.id] = option
                shortage -= extra_gpus
                if shortage <= 0:
                    return concessions
        return None

    def _options(self, node: NodeName, shortage: int) -> Iterator[Concession]:
        for job in self._movable.values():
            if job.id in self.concessions or not job.running.on(node):
                continue
            for target in _smaller(job):
                freed_gpus = job.running.on(node) - target.on(node)
                if freed_gpus > 0:
                    yield Concession(job, target, self._cost(job, target, freed_gpus, shortage))

    def _cost(self, job: Job, target: Allocation, freed_gpus: int, shortage: int) -> float:
        running_gpus = job.running.gpus
        cost = running_gpus * job.restart_seconds + max(0, freed_gpus - shortage) * IDLE_SECONDS
        if not target:
            cost += running_gpus * STOP_COST
        return cost if job.id in self._proven_jobs else cost + UNPROVEN_COST

    def _take(
        self,
        session: Job,
        allocation: Allocation,
        concessions: Mapping[JobId, Concession],
        ledger: Ledger,
    ) -> None:
        cause = f"to make room for session {session.id}"
        self.concessions |= {
            job: replace(concession, cause=cause) for job, concession in concessions.items()
        }
        self.placements[session.id] = allocation
        self._ledger = ledger
        ledger.take(session, allocation)
        for node, gpus in allocation:
            self._idle[node] -= gpus
        for concession in concessions.values():
            for node in concession.job.running.nodes:
                if node in self._idle:
                    self._idle[node] += concession.gpus_freed_on(node)

    def _ledger_with(self, concessions: Mapping[JobId, Concession]) -> Ledger:
        """Return what all running jobs and the sessions placed so far leave.

        Jobs with concessions count on their targets.
        """
        snapshot = self._snapshot
        unaffected_jobs = [job for job in staying_jobs(snapshot) if job.id not in concessions]
        moving_jobs = [concession.job for concession in concessions.values()]
        available = AvailableResources.from_jobs(snapshot.nodes, moving_jobs, unaffected_jobs)
        ledger = Ledger(available, limits_after(snapshot.limits, unaffected_jobs))
        for concession in concessions.values():
            if concession.target:
                ledger.take(concession.job, concession.target)
        for job, allocation in self.placements.items():
            ledger.take(self._jobs[job], allocation)
        return ledger


def _forms(session: Job, nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of nodes, and of GPUs on each, for a session; the fewest nodes first."""
    gpus, rules = session.reqs[0], session.rules
    largest = max((node.gpus for node in nodes), default=0)
    for count in range(1, gpus + 1):
        gpus_per_node, remainder = divmod(gpus, count)
        if (
            remainder
            or gpus_per_node > largest
            or (rules.per_node is not None and gpus_per_node != rules.per_node)
        ):
            continue
        yield count, gpus_per_node
        if rules.shape is ShapeRule.NODE or count > len(nodes):
            return


def _smaller(job: Job) -> Iterator[Allocation]:
    """Yield what a running job may keep: a smaller count on one of its nodes, or nothing."""
    for node, gpus in job.running:
        for count in job.reqs:
            if count <= gpus and count < job.running.gpus and in_one(job.rules, count):
                yield Allocation.of({node: count})
    yield Allocation()
