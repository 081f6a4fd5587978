"""Runs the daemon's rounds in virtual time: rounds at fixed times, further plans at events."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType

from hopsd.core.interactive.settings import SessionSettings
from hopsd.core.queue.restarts import needless_restarts
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.model.ids import JobId, UserName
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.scenario import Cluster, Workload
from hopsd.model.step import StepKind
from hopsd.policies.protocol import Policy
from hopsd.round.observe import observe
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow
from hopsd.sim.cluster import (
    BrokenPlanError,
    ClusterSettings,
    Failure,
    ProgressReport,
    VirtualCluster,
)
from hopsd.sim.information.knowledge import KnowledgeSettings, PublicKnowledge, public_knowledge
from hopsd.sim.metrics import AllocationChange
from hopsd.sim.prediction.watcher import Watcher
from hopsd.sim.speed import AllocationSpeeds
from hopsd.sim.store import MemoryStore

MOMENT = 1e-6
"""An event at most this many seconds before a round's start belongs to that round."""

MAX_PLAN_SECONDS = 120.0
"""A guard against endless planning, not a limit that plans should reach."""

MAX_PLANS_AT_ONCE = 8
"""Maximum further plans at one instant, each on the GPUs that the previous one left idle."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Settings of a simulation.

    Rounds start at multiples of ``round_seconds``. Further plans are made at multiples of
    ``refresh_seconds``, as in the daemon; if it is 0, as soon as something happens. A run ends when
    nothing can happen for ``idle_rounds`` rounds, or when jobs are moved but none trains for as
    many rounds plus a restart. No round starts at or after ``horizon``.

    With ``count_planning``, jobs placed by a plan train later by the time that planning took, so
    the run depends on this computer's speed. ``knowledge`` is what the policy knows. In ``plan``,
    the solver's effort is by default limited by work, not by time, so that a run is the same on a
    slow or busy computer.
    """

    round_seconds: float = 360.0
    refresh_seconds: float = 0.0
    plan: PlanSettings = field(
        default_factory=lambda: PlanSettings(effort=0, time_limit_seconds=MAX_PLAN_SECONDS)
    )
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    knowledge: KnowledgeSettings = field(default_factory=KnowledgeSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    idle_rounds: int = 50
    horizon: float = math.inf
    count_planning: bool = False


@dataclass(frozen=True, slots=True)
class PlanMade:
    """One call of the policy. ``seconds`` of this computer's time are those that the plan reports
    or, if it reports none, those of the whole round.
    """

    time: float
    seconds: float
    gap: float
    placed: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a simulation. ``rounds``: the times at which rounds started; ``unfinished``:
    jobs submitted and not ended; ``needless_restarts``: moves and stops from which no job gained.
    """

    changes: tuple[AllocationChange, ...]
    rounds: tuple[float, ...]
    plans: tuple[PlanMade, ...]
    finished: int
    unfinished: frozenset[JobId]
    wall_seconds: float
    needless_restarts: int = 0


Progress = Callable[[float, int, int], None]
"""Called in each round with the virtual time, the number of ended jobs and that of all jobs."""


class Simulation:
    """Simulates one policy on one workload. ``run`` may be called once."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        policy: Policy,
        settings: SimulationSettings,
        failures: Sequence[Failure] = (),
        progress: Progress | None = None,
        known_workload: Workload | None = None,
        progress_reports: Mapping[JobId, ProgressReport] = MappingProxyType({}),
        shares: Mapping[UserName, float] = MappingProxyType({}),
        learns: Knowledge | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """If users lie, ``known_workload`` is what the scheduler is told about jobs and speeds,
        instead of ``settings.knowledge``, and ``progress_reports`` what jobs then report.
        ``shares``: the users' shares of the cluster. ``learns``: what is known about speeds at
        first, instead of tables; jobs' reports are added. ``watcher`` predicts during the run,
        without changing it.
        """
        self._workload = workload
        self._settings = settings
        self._policy = self._count_calls(policy) if settings.count_planning else policy
        self._only_first = bool(getattr(policy, "only_first", False))
        self._every_first = bool(getattr(policy, "every_first", False))
        self._settles = bool(getattr(policy, "settles", False))
        self._steady = bool(getattr(policy, "steady", False))
        self._ends_early = bool(getattr(policy, "ends_early", False))
        self._progress = progress
        knowledge = (
            PublicKnowledge(known_workload)
            if known_workload
            else public_knowledge(cluster, workload, settings.knowledge)
        )
        self.port = VirtualCluster(
            cluster,
            workload,
            settings.cluster,
            failures,
            {job.id: job for job in knowledge.workload.jobs},
            progress_reports,
            knowledge.declares,
            knowledge.time_limits,
            shares=shares,
        )
        self._store = MemoryStore(
            learns or AllocationSpeeds(cluster, knowledge.workload).knowledge(),
            {job.id: settings.cluster.restart_of(job) for job in workload.jobs},
            knowledge.past_runs,
        )
        self._learns = learns is not None
        self._round = RoundSettings(
            settings.round_seconds,
            settings.plan,
            snapshot=settings.snapshot,
            sessions=settings.sessions,
        )
        self._plans: list[PlanMade] = []
        self._needless = 0
        self._watcher = watcher
        self._rounds: list[float] = []
        self._window = RoundWindow(0.0, 0.0)
        self._known_until = 0.0
        self._smallest = min((min(j.reqs) for j in workload.jobs), default=1)

    def run(self) -> Run:
        """Run the workload to its end, or until nothing can happen any more.

        Raises:
            BrokenPlanError: if a plan of the policy cannot be carried out.
        """
        began = perf_counter()
        length = self._settings.round_seconds
        first_submit = min((job.submit for job in self._workload.jobs), default=0.0)
        index = math.floor(first_submit / length)
        stuck, trained_samples = 0, 0.0
        while self.port.finished < len(self._workload.jobs) and stuck < self._patience:
            start, end = index * length, (index + 1) * length
            if start >= self._settings.horizon:
                break
            news = self.port.advance(start)
            if self.port.finished == len(self._workload.jobs):
                break
            changes = len(self.port.changes)
            self._rounds.append(start)
            self._play_round(RoundWindow(start, end), news=news)
            stuck = 0 if self._alive(changes, trained_samples) else stuck + 1
            trained_samples = self.port.trained_samples
            if self._progress is not None:
                self._progress(self.port.now, self.port.finished, len(self._workload.jobs))
            index += 1
        return Run(
            tuple(self.port.changes),
            tuple(self._rounds),
            tuple(self._plans),
            self.port.finished,
            self.port.unfinished_jobs,
            perf_counter() - began,
            self._needless,
        )

    def _count_calls(self, policy: Policy) -> Policy:
        """Wrap ``policy`` so that the cluster learns how long planning took."""

        def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:
            began = perf_counter()
            new_plan = policy(snapshot, settings)
            self.port.planning_seconds = new_plan.seconds.get("total", perf_counter() - began)
            return new_plan

        return plan

    def _alive(self, changes: int, trained_samples: float) -> bool:
        """Whether jobs have trained since the last round, or an event is still to come.

        The expected ends of moved jobs do not count, since with restarts longer than a round, a
        policy may move jobs forever.
        """
        any_change = len(self.port.changes) > changes
        to_come = self.port.news_to_come if any_change else self.port.next_event is not None
        return to_come or self.port.trained_samples > trained_samples

    @property
    def _patience(self) -> int:
        """Rounds to wait: a job moved in the first of them trains before the last if it stays."""
        cluster = self._settings.cluster
        restart = max(map(cluster.restart_of, self._workload.jobs), default=0.0)
        overhead = max(restart, cluster.profiling_seconds)
        return self._settings.idle_rounds + math.ceil(overhead / self._settings.round_seconds)

    def _play_round(self, window: RoundWindow, *, news: bool) -> None:
        """Play one round, and those that take the rest of its time if it ends early. ``news`` says
        whether something happened since the last reading.
        """
        self._window = window
        self._watch_arrivals()
        if self.port.present and (news or not self._steady):
            self._plan(None)
            if not self._settles:
                self._fill()
        if self._watcher is not None and self.port.present:
            self._watcher.round(self.port, self._store, self._round, self._window)
        while (look := self._next_look()) < window.end - MOMENT:
            self.port.advance(look)
            self._watch_arrivals()
            self._fill()

    def _watch_arrivals(self) -> None:
        if self._watcher is not None:
            self._watcher.arrivals(self.port, self._store, self._round, self._window)

    def _next_look(self) -> float:
        """Time when the scheduler next sees something to plan for; infinity if never."""
        event, now = self.port.next_event, self.port.now
        next_time = self._early_end()
        if next_time <= now:
            next_time = math.inf
        if event is not None:
            next_time = min(next_time, event)
        tick = self._settings.refresh_seconds
        return (
            next_time
            if tick <= 0 or next_time == math.inf
            else max(next_time, math.ceil(next_time / tick) * tick)
        )

    def _early_end(self) -> float:
        """When the round may end early, for idle GPUs or for jobs that have arrived; infinity if
        there is no such reason.
        """
        if not self._ends_early:
            return math.inf
        window, length = self._window, self._settings.round_seconds
        earliest = window.may_end(length)
        wastes = window.wastes(
            self.port.idle_gpus, self.port.gpus, max(earliest, self.port.now), length
        )
        comes = any(job.submit > self._known_until for job in self.port.waiting())
        return earliest if wastes or comes else math.inf

    def _note_window(self, window: RoundWindow) -> None:
        """Note the window after a plan. Jobs too long to end the round now will remain too long."""
        now, self._window = self.port.now, window
        is_due = now >= window.may_end(self._settings.round_seconds)
        self._known_until = now if is_due else max(self._known_until, window.start)

    def _fill(self) -> None:
        """Make further plans for idle GPUs until one places nothing."""
        if self._only_first:
            return
        for _ in range(1 if self._settles else MAX_PLANS_AT_ONCE):
            if not self._could_place() or not self._plan(
                None if self._every_first else self._window
            ):
                return

    def _could_place(self) -> bool:
        if self._every_first:
            return self.port.present > 0
        if self._early_end() <= self.port.now:
            return True
        idle = self.port.idle_gpus
        if any(job.interactive for job in self.port.waiting()):
            return True
        return idle >= self._smallest and any(job.reqs[0] <= idle for job in self.port.waiting())

    def _learn(self) -> None:
        """Store the speeds that jobs reported since their last start, once per shape and node."""
        measured_shapes = {
            (r.workload, r.gpu_type, r.node, r.gpus, r.nodes)
            for r in self._store.known_tables.records
        }
        min_records = self._round.snapshot.estimator.min_records
        for record in self.port.reports():
            if (
                record.workload,
                record.gpu_type,
                record.node,
                record.gpus,
                record.nodes,
            ) not in measured_shapes:
                self._store.add_throughput([record] * min_records)

    def _plan(self, window: RoundWindow | None) -> int:
        """Run one round of the daemon; return the number of its steps."""
        self._store.report(self.port.samples_done())
        began = perf_counter()
        if self._learns:
            self._learn()
        result = run_round(self.port, self._store, self._policy, self._round, window)
        if self._ends_early:
            self._note_window(result.window)
        for job, defect in result.defects.items():
            raise BrokenPlanError(f"no plan can be made with job {job}: {defect}")
        self._needless += len(needless_restarts(result.build.snapshot, result.plan))
        step_count = len(result.outcomes)
        seconds = result.plan.seconds.get("total", perf_counter() - began)
        self._plans.append(PlanMade(self.port.now, seconds, result.plan.gap, step_count))
        if any(outcome.step.kind is StepKind.PREEMPT for outcome in result.outcomes):
            observe(self.port, self._store, self._round.requirements_max)
        return step_count
