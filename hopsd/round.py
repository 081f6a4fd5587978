"""One round: read, estimate, profile, plan (the policy), diff, record, apply, record.

The daemon and the simulator run this very code; they differ in port, store and clock alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hopsd.core.diff import diff
from hopsd.core.queue.history import with_ages
from hopsd.core.queue.priority import ages
from hopsd.core.queue.profile_runs import ProfilingSettings, unstarted
from hopsd.core.queue.profiling import Profiling, known_pairs, profiling
from hopsd.core.queue.setback import Setback, resting
from hopsd.core.snapshot import Built, SnapshotSettings, build_snapshot
from hopsd.model.ids import JobId
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.model.profiling import ProfileRun
from hopsd.model.reading import Reading
from hopsd.model.step import StepKind, StepOutcome
from hopsd.observation import Observation, observe
from hopsd.policies.protocol import Policy
from hopsd.slurm.port import Port
from hopsd.store.port import PlanRecord, Store


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """``seconds``: a round's length. ``requirements_max``: R_num, GPU counts cut from a range."""

    seconds: float
    plan: PlanSettings = field(default_factory=PlanSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    profiling: ProfilingSettings = field(default_factory=ProfilingSettings)
    requirements_max: int = 8


@dataclass(frozen=True, slots=True)
class RoundWindow:
    """The time of one round. A first plan opens it; what further plans give ends with it."""

    start: float
    end: float

    def lasts(self, now: float) -> bool:
        """False also before its start: a clock that was set back opens a new round."""
        return self.start <= now < self.end


@dataclass(frozen=True, slots=True)
class RoundResult:
    """All that a round saw and did. ``profiled``: profile runs that it began or that changed."""

    window: RoundWindow
    first: bool
    seen: Observation
    built: Built
    plan: Plan
    outcomes: tuple[StepOutcome, ...]
    profiled: tuple[ProfileRun, ...] = ()


def run_round(
    port: Port,
    store: Store,
    policy: Policy,
    settings: RoundSettings,
    window: RoundWindow | None,
    setbacks: Mapping[JobId, Setback] = MappingProxyType({}),
) -> RoundResult:
    """Plan and apply once; a new round begins where ``window`` is None or has ended.

    Jobs with ``setbacks`` that last are left out of the plan.

    Raises:
        SlurmUnavailableError, StoreUnavailableError: a plan already begun may be half applied;
            :func:`recover` finishes or undoes it.
        PlanLateError: the policy was too slow; nothing was changed.
    """
    seen = observe(port, store, settings.requirements_max)
    seen = seen.without(resting(setbacks, seen.reading.now))
    window, first = _window(window, seen.reading.now, settings.seconds)
    info = RoundInfo(first=first, seconds=window.end - seen.reading.now)
    knowledge = store.knowledge()
    built = _estimate(store, seen, knowledge, info, settings)
    profiles = _profile(store, seen, built.snapshot, knowledge, settings)
    plan = policy(profiles.snapshot, settings.plan)
    profiles = profiles.beside(plan)
    plan = replace(plan, waiting=profiles.explained({**plan.waiting, **seen.errors}))
    steps = diff(
        seen.reading,
        plan,
        pinned=built.pinned | profiles.staying,
        ignored=seen.released | profiles.moving,
        first=first,
    )
    record = PlanRecord(
        window.start, window.end, first, seen.reading.now, plan, (*profiles.steps, *steps)
    )
    store.save_profile_runs(profiles.changed)
    outcomes, changed = tuple[StepOutcome, ...](), profiles.changed
    if record.steps or first:
        outcomes = _carry_out(port, store, record)
        changed = unstarted(changed, outcomes)
        store.save_profile_runs(changed)
    return RoundResult(window, first, seen, built, plan, outcomes, changed)


def _window(window: RoundWindow | None, now: float, seconds: float) -> tuple[RoundWindow, bool]:
    """The round that ``now`` lies in, and whether it begins now."""
    if window is not None and window.lasts(now):
        return window, False
    return RoundWindow(now, now + seconds), True


def _estimate(
    store: Store,
    seen: Observation,
    knowledge: Knowledge,
    info: RoundInfo,
    settings: RoundSettings,
) -> Built:
    """What the policy may look at. Expected run times are recorded for people alone: policies
    work them out from the snapshot."""
    built = build_snapshot(
        seen.reading, seen.records, seen.comments, knowledge, info, settings.snapshot
    )
    jobs, nodes = built.snapshot.jobs, built.snapshot.nodes
    anew = [job for job in jobs if info.first or seen.records[job.id].age_seconds is None]
    store.save_jobs(with_ages(seen.records, ages(anew, nodes)))
    return built


def _profile(
    store: Store,
    seen: Observation,
    snapshot: Snapshot,
    knowledge: Knowledge,
    settings: RoundSettings,
) -> Profiling:
    """The profiling queue comes before the policy."""
    return profiling(
        snapshot,
        seen.reading,
        seen.records,
        seen.comments,
        store.profile_runs(snapshot.now - settings.profiling.retry_seconds),
        known_pairs(
            knowledge,
            {node.gpu_type for node in seen.reading.nodes},
            settings.snapshot.estimator.min_records,
        ),
        settings.profiling,
    )


def recover(port: Port, store: Store, requirements_max: int) -> tuple[StepOutcome, ...] | None:
    """Finish the plan that was begun and not finished, while its round lasts; else undo it.

    Steps are worked out anew from what Slurm says now, so what was done is not done again.
    Undoing means to hold what Slurm could start by itself; jobs that run go on.
    None where no plan was left open.
    """
    left = store.unfinished_plan()
    if left is None:
        return None
    plan_id, record = left
    seen = observe(port, store, requirements_max)
    now = seen.reading.now
    lasts = RoundWindow(record.round_start, record.round_end).lasts(now)
    planned = {step.job for step in record.steps if not step.profiling}
    plan, lost = _still_there(record.plan if lasts else Plan({}), seen.reading)
    steps = diff(
        seen.reading,
        plan,
        pinned=frozenset(job.id for job in seen.reading.jobs) - planned | lost,
        ignored=seen.released,
        first=record.first and lasts,
    )
    steps = [step for step in steps if step.kind is StepKind.HOLD or step.job in planned]
    outcomes = tuple(port.apply(steps))
    store.finish_plan(plan_id, outcomes, finished=now)
    observe(port, store, requirements_max)
    return outcomes


def _still_there(plan: Plan, reading: Reading) -> tuple[Plan, frozenset[JobId]]:
    """The plan without what it gives on nodes lost meanwhile, and the jobs that it was for."""
    usable = {node.name for node in reading.nodes if node.usable}
    lost = frozenset(
        job for job, given in plan.placements.items() if not usable.issuperset(given.nodes)
    )
    kept = {job: given for job, given in plan.placements.items() if job not in lost}
    return replace(plan, placements=kept), lost


def _carry_out(port: Port, store: Store, record: PlanRecord) -> tuple[StepOutcome, ...]:
    """Record, apply, record: whatever stops hops between the two is found at its next start."""
    plan_id = store.begin_plan(record)
    outcomes = tuple(port.apply(record.steps))
    finished = max((o.started + o.seconds for o in outcomes), default=record.made)
    store.finish_plan(plan_id, outcomes, finished)
    return outcomes
