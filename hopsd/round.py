"""One round: read, estimate, profile, plan (the policy), diff, record, apply, record.

The daemon and the simulator run this same code; only their port, store and clock differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from types import MappingProxyType

from hopsd.bulkhead import NOBODYS_FAULT, describe_error, isolate
from hopsd.core.diff import diff
from hopsd.core.queue.backoff import Backoff, avoided_nodes, backing_off, with_avoided
from hopsd.core.queue.history import with_ages
from hopsd.core.queue.priority import ages, queue
from hopsd.core.queue.profile_runs import ProfilingSettings, unstarted
from hopsd.core.queue.profiling import Profiling, Seen, known_pairs, profiling
from hopsd.core.queue.round_window import RoundWindow
from hopsd.core.queue.trials import Trial, TrialSettings, begun, hopeful, measured, trials
from hopsd.core.snapshot import Built, build_snapshot
from hopsd.core.snapshot_settings import SnapshotSettings
from hopsd.core.speed.inferred import with_implied_bandwidths
from hopsd.errors import PlanLateError
from hopsd.model.ids import JobId, NodeName, WorkloadName, script_of
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.model.profiling import ProfileRun
from hopsd.model.reading import NodeReading, Reading, SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.observation import SET_ASIDE, Observation, observe
from hopsd.policies.protocol import Policy
from hopsd.slurm.port import SHADOW, Port
from hopsd.store.port import PlanRecord, Store


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """``seconds``: a round's length. ``requirements_max``: R_num, GPU counts cut from a range."""

    seconds: float
    plan: PlanSettings = field(default_factory=PlanSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    profiling: ProfilingSettings = field(default_factory=ProfilingSettings)
    trials: TrialSettings = field(default_factory=TrialSettings)
    requirements_max: int = 8


@dataclass(frozen=True, slots=True)
class RoundResult:
    """All that a round saw and did. ``profiled``: profile runs that it began or changed.

    ``defects``: the exceptions of the jobs that were set aside. ``trials``: of shapes, begun by
    this plan.
    """

    window: RoundWindow
    first: bool
    seen: Observation
    built: Built
    plan: Plan
    outcomes: tuple[StepOutcome, ...]
    profiled: tuple[ProfileRun, ...] = ()
    defects: Mapping[JobId, str] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()

    @property
    def put_off(self) -> frozenset[JobId]:
        """Jobs whose start Slurm was too busy for."""
        late = OutcomeStatus.PUT_OFF
        return frozenset(o.step.job for o in self.outcomes if o.status is late)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a round wants, computed from what it saw; none of it is done yet."""

    seen: Observation
    built: Built
    ages: Mapping[JobId, float]
    profiles: Profiling
    plan: Plan
    steps: tuple[Step, ...]
    trials: tuple[Trial, ...] = ()
    defects: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot:
        """What was left for the policy to plan."""
        return self.profiles.snapshot


def run_round(
    port: Port,
    store: Store,
    policy: Policy,
    settings: RoundSettings,
    window: RoundWindow | None,
    backoffs: Mapping[JobId, Backoff] = MappingProxyType({}),
    tried: Collection[Trial] = (),
) -> RoundResult:
    """Plan and apply once; a new round begins where ``window`` is None or has ended, or ends early
    (:meth:`RoundWindow.ends_early`) under a policy that says so.

    Jobs whose back-off is not over are left out of the plan, and so is any job or node that makes
    planning raise. What ``tried`` has is not tried again.

    Raises:
        SlurmUnavailableError, StoreUnavailableError: a plan already begun may be half applied;
            :func:`recover` finishes or undoes it.
        PlanLateError: the policy was too slow; nothing was changed.
    """
    seen = observe(port, store, settings.requirements_max, _read(port, store))
    now = seen.reading.now
    seen = seen.without(backing_off(backoffs, now)).avoiding(avoided_nodes(backoffs, now))
    window, first = _window(window, now, settings.seconds)
    info = RoundInfo(first=first, seconds=window.end - now)
    known = replace(_known(store, policy, now, settings), tried=tuple(tried))
    decided = _decide_without_culprits(seen, info, known, settings)
    if _may_end_early(port, policy):
        if not first and window.ends_early(decided.plan, decided.snapshot, settings.seconds):
            window = window.rest(now)
            with suppress(PlanLateError):  # the round goes on, and is not asked again at each look
                info = RoundInfo(first=True, seconds=settings.seconds)
                decided = _decide_without_culprits(seen, info, known, settings)
                first = True
        window = window.after(decided.plan, decided.snapshot)
    told = with_avoided(decided.plan.waiting, backoffs, now)
    decided = replace(decided, plan=replace(decided.plan, waiting=told))
    outcomes, profiled = _carry_out(port, store, decided, window, first=first)
    return RoundResult(
        window,
        first,
        decided.seen,
        decided.built,
        decided.plan,
        outcomes,
        profiled,
        decided.defects,
        decided.trials,
    )


def _read(port: Port, store: Store) -> Reading:
    """The cluster, with what died of our signal later than hops waited for it put back.

    Such a job was still completing when its step was given up. In the first reading it has ended,
    and would be recorded so: where one was put back, Slurm is read once more.
    """
    reading = port.read()
    died = [job.id for job in reading.jobs if job.was_killed]
    given_up = [
        job
        for job, outcome in (store.last_outcomes(died) if died else {}).items()
        if outcome.status is OutcomeStatus.FAILED and _vacates(outcome.step)
    ]
    if not given_up:
        return reading
    port.apply([Step(job, StepKind.REQUEUE) for job in given_up])
    return port.read()


def _vacates(step: Step) -> bool:
    return bool(step.current) and not step.profiling


def _carry_out(
    port: Port, store: Store, decided: _Decision, window: RoundWindow, *, first: bool
) -> tuple[tuple[StepOutcome, ...], tuple[ProfileRun, ...]]:
    """Record, apply, record: an interruption between the two is found at the next start.

    A shadow's steps are never recorded: none is ever done, and the same ones come at every look.
    Returns the outcomes of the steps, and the profile runs that changed.
    """
    now, profiled = decided.seen.reading.now, decided.profiles.changed
    store.save_jobs(with_ages(decided.seen.records, decided.ages))
    store.save_profile_runs(profiled)
    if not decided.steps and not first:
        return (), profiled
    steps = decided.steps if port.name != SHADOW else ()
    plan_id = None
    if steps or first:
        plan_id = store.begin_plan(
            PlanRecord(window.start, window.end, first, now, decided.plan, steps)
        )
    outcomes = tuple(port.apply(decided.steps))
    if plan_id is not None:
        finished = now + max((outcome.seconds for outcome in outcomes), default=0.0)
        store.finish_plan(plan_id, outcomes if steps else (), finished)
    profiled = unstarted(profiled, outcomes)
    store.save_profile_runs(profiled)
    return outcomes, profiled


def _may_end_early(port: Port, policy: Policy) -> bool:
    """Whether rounds may. A shadow's never do: what its plans give stays idle."""
    return bool(getattr(policy, "ends_early", False)) and port.name != SHADOW


def _window(window: RoundWindow | None, now: float, seconds: float) -> tuple[RoundWindow, bool]:
    """The round that ``now`` lies in, and whether it begins now."""
    if window is not None and window.lasts(now):
        return window, False
    return RoundWindow(now, now + seconds), True


@dataclass(frozen=True, slots=True)
class _Known:
    """What a decision rests on besides the reading of the cluster, and the policy."""

    knowledge: Knowledge
    profile_runs: Sequence[ProfileRun]
    policy: Policy
    tried: tuple[Trial, ...] = ()


def _known(store: Store, policy: Policy, now: float, settings: RoundSettings) -> _Known:
    runs = store.profile_runs(now - settings.profiling.retry_seconds)
    knowledge = with_implied_bandwidths(store.knowledge(), settings.snapshot.estimator, now)
    return _Known(knowledge, runs, policy)


def _decide_without_culprits(
    seen: Observation, info: RoundInfo, known: _Known, settings: RoundSettings
) -> _Decision:
    """The decision for all jobs and nodes except those that make it raise: they are set aside.

    Such a job stays where it runs, or waits; such a node keeps what runs there.
    """
    try:
        return _decide(seen, info, known, settings)
    except NOBODYS_FAULT:
        raise
    except Exception:  # the culprits are found below, or it is raised there
        bad = _bad_nodes(seen, info, known, settings)
    left = replace(
        seen.reading, nodes=tuple(node for node in seen.reading.nodes if node.name not in bad)
    )
    decision, failed = isolate(
        tuple(seen.comments),
        lambda jobs: _decide(replace(seen, reading=left).only(jobs), info, known, settings),
    )
    defects = {job: describe_error(error) for job, error in failed}
    return _with_asides(decision, seen.reading, bad, defects)


def _bad_nodes(
    seen: Observation, info: RoundInfo, known: _Known, settings: RoundSettings
) -> dict[NodeName, str]:
    """The nodes that make the decision raise even without any job, and what each raised."""

    def with_nodes(nodes: Sequence[NodeReading]) -> _Decision:
        reading = replace(seen.reading, nodes=tuple(nodes))
        return _decide(replace(seen, reading=reading).only(()), info, known, settings)

    _, bad = isolate(seen.reading.nodes, with_nodes)
    return {node.name: describe_error(error) for node, error in bad}


def _with_asides(
    decision: _Decision,
    reading: Reading,
    bad: Mapping[NodeName, str],
    defects: Mapping[JobId, str],
) -> _Decision:
    """``decision``, with the reasons for the nodes and jobs that it leaves out."""
    nodes = tuple(
        replace(node, usable=False, state_text=f"{node.state_text} ({SET_ASIDE}: {bad[node.name]})")
        if node.name in bad
        else node
        for node in reading.nodes
    )
    reasons = {
        job: Reason(ReasonCode.ERROR, f"{SET_ASIDE}: {text}") for job, text in defects.items()
    }
    seen = replace(
        decision.seen,
        reading=replace(reading, nodes=nodes),
        errors={**decision.seen.errors, **reasons},
    )
    plan = replace(decision.plan, waiting={**decision.plan.waiting, **reasons})
    return replace(decision, seen=seen, plan=plan, defects=defects)


def _decide(
    seen: Observation, info: RoundInfo, known: _Known, settings: RoundSettings
) -> _Decision:
    """Estimate, profile, plan, diff: everything between reading and recording, no side effect."""
    knowledge = _about(known.knowledge, {seen.records[job].workload for job in seen.comments})
    built = build_snapshot(
        seen.reading, seen.records, seen.comments, knowledge, info, settings.snapshot
    )
    jobs, nodes = built.snapshot.jobs, built.snapshot.nodes
    # Recorded for people only: policies compute them from the snapshot.
    anew = [job for job in jobs if info.first or seen.records[job.id].age_seconds is None]
    expected = ages(anew, nodes)
    profiles = _profile(seen, built.snapshot, known, settings)
    hopes = _hopes(seen, built, profiles, knowledge, known.tried, settings)
    plan = known.policy(hopeful(profiles.snapshot, hopes), settings.plan)
    plan, trying = begun(plan, profiles.snapshot, hopes)
    profiles = profiles.beside(plan)
    waiting = {**plan.waiting, **built.refused, **seen.errors}
    plan = replace(plan, waiting=profiles.explained(waiting))
    built = built.with_notes(profiles.unmeasurable)
    told = measured(knowledge) if known.tried else set()
    tried = [trial for trial in known.tried if trial.key not in told]
    built = built.with_notes(_trial_notes(built.snapshot, plan, (*tried, *trying)))
    _check_finite(plan, expected)
    steps = diff(
        seen.reading,
        plan,
        pinned=built.pinned | profiles.staying,
        ignored=seen.released | profiles.moving,
        first=info.first,
    )
    wanted = tuple(
        replace(step, partition=built.partitions.get(step.job, "")) if step.target else step
        for step in (*profiles.steps, *steps)
    )
    return _Decision(seen, built, expected, profiles, plan, wanted, trying)


def _hopes(
    seen: Observation,
    built: Built,
    profiles: Profiling,
    knowledge: Knowledge,
    tried: Iterable[Trial],
    settings: RoundSettings,
) -> tuple[Trial, ...]:
    """The shapes that this plan may try, of workloads whose speed is reported."""
    if not settings.trials.enabled:
        return ()
    told = {r.workload for r in knowledge.records} | {fit.workload for fit in knowledge.theory}
    workloads = {job: seen.records[job].workload for job in built.movable}
    return trials(
        profiles.snapshot,
        {job: workload for job, workload in workloads.items() if workload in told},
        measured(knowledge) | {trial.key for trial in tried},
        settings.trials,
        settings.plan.sigma,
    )


def _trial_notes(snapshot: Snapshot, plan: Plan, tried: Iterable[Trial]) -> dict[JobId, str]:
    """Of the jobs that run in the shape that they try, or will with this plan."""
    at = {job.id: plan.placements.get(job.id, job.running) for job in snapshot.jobs}
    return {
        trial.job: trial.note
        for trial in tried
        if (given := at.get(trial.job)) and (given.gpus, len(given.parts)) == trial.shape
    }


def _about(knowledge: Knowledge, workloads: Collection[WorkloadName]) -> Knowledge:
    """Only what is known of ``workloads`` and other versions of their programs, so that bad data of
    another does no harm.
    """
    scripts = {script for script in map(script_of, workloads) if script}

    def wanted(workload: WorkloadName) -> bool:
        return workload in workloads or script_of(workload) in scripts

    return replace(
        knowledge,
        records=tuple(r for r in knowledge.records if wanted(r.workload)),
        theory=tuple(fit for fit in knowledge.theory if wanted(fit.workload)),
    )


def _check_finite(plan: Plan, expected: Mapping[JobId, float]) -> None:
    """Every number in the plan must be one that can be recorded and compared."""
    for job, numbers in plan.jobs.items():
        for value in (numbers.priority, numbers.gain, numbers.throughput, numbers.sensitivity):
            if value is not None and not isfinite(value):
                raise ArithmeticError(f"job {job} has a number that is not finite: {numbers}")
    for job, seconds in expected.items():
        if not 0.0 < seconds < inf:
            raise ArithmeticError(f"job {job} is expected to run {seconds} s")


def _profile(
    seen: Observation, snapshot: Snapshot, known: _Known, settings: RoundSettings
) -> Profiling:
    """The profiling queue comes before the policy."""
    return profiling(
        snapshot,
        Seen(seen.reading, seen.records, seen.comments),
        known.profile_runs,
        known_pairs(
            known.knowledge,
            {node.gpu_type for node in seen.reading.nodes},
            settings.snapshot.estimator.min_records,
        ),
        settings.profiling,
        queue(snapshot, settings.plan).jobs if settings.profiling.enabled else (),
        known.knowledge.shortages,
    )


def recover(port: Port, store: Store, requirements_max: int) -> tuple[StepOutcome, ...] | None:
    """Finish an interrupted plan while its round lasts; after that, undo it.

    Steps are derived again from Slurm's current state, so what was done is not done again.
    To undo means to hold what Slurm could start by itself; running jobs continue.
    None if no plan was left open.
    """
    left = store.unfinished_plan()
    if left is None:
        return None
    plan_id, record = left
    _put_back(port, record)
    seen = observe(port, store, requirements_max)
    now = seen.reading.now
    lasts = RoundWindow(record.round_start, record.round_end).lasts(now)
    planned = {step.job for step in record.steps if not step.profiling}
    plan, lost = _still_there(record.plan if lasts else Plan({}), seen)
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


def _put_back(port: Port, record: PlanRecord) -> None:
    """Requeue jobs that died of the plan's checkpoint signal, before they are taken for ended.

    Of one that is still completing, only the port can tell, once it has ended.
    """
    vacating = {step.job for step in record.steps if _vacates(step)}
    over = (SlurmState.FAILED, SlurmState.COMPLETING)
    ended = (job.id for job in port.read().jobs if job.state in over)
    if steps := [Step(job, StepKind.REQUEUE) for job in ended if job in vacating]:
        port.apply(steps)


def _still_there(plan: Plan, seen: Observation) -> tuple[Plan, frozenset[JobId]]:
    """The plan without what it gives on nodes lost meanwhile, or to a job that does not accept it,
    and the jobs that it was for.

    A slurmctld that lost its state gives the same number to another job.
    """
    usable = {node.name for node in seen.reading.nodes if node.usable}
    lost = frozenset(
        job
        for job, given in plan.placements.items()
        if not usable.issuperset(given.nodes)
        or (job in seen.comments and given.gpus not in seen.comments[job].reqs)
    )
    kept = {job: given for job, given in plan.placements.items() if job not in lost}
    return replace(plan, placements=kept), lost
