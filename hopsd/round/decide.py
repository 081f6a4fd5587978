"""Estimates, profiles, plans and diffs: all between reading and recording, without side effects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from hopsd.core.interactive.sessions import plan_sessions
from hopsd.core.queue.priority import ages, queue
from hopsd.core.queue.profiling import ClusterView, Profiling, known_pairs, profiling
from hopsd.core.snapshot.build import SnapshotBuild, build_snapshot
from hopsd.core.speed.inferred import with_implied_bandwidths
from hopsd.core.speed.type_speeds import with_type_speeds
from hopsd.model.history import ProfileRun
from hopsd.model.ids import JobId, WorkloadName, script_of
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan, RoundInfo, Snapshot
from hopsd.model.step import Step
from hopsd.policies.protocol import Policy
from hopsd.round.diff import diff
from hopsd.round.observation import Observation
from hopsd.round.settings import RoundSettings
from hopsd.round.under_way import planning_reading
from hopsd.store.port import Store


@dataclass(frozen=True, slots=True)
class Decision:
    """What a round is going to do, computed from its observation."""

    observation: Observation
    build: SnapshotBuild
    ages: Mapping[JobId, float]
    profiles: Profiling
    plan: Plan
    steps: tuple[Step, ...]
    defects: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that the policy planned, without sessions and profile runs."""
        return self.profiles.snapshot


@dataclass(frozen=True, slots=True)
class PlanningInputs:
    """The inputs of a decision besides the reading of the cluster, and the policy."""

    knowledge: Knowledge
    profile_runs: Sequence[ProfileRun]
    policy: Policy


def planning_inputs(
    store: Store, policy: Policy, now: float, settings: RoundSettings
) -> PlanningInputs:
    runs = store.profile_runs(now - settings.profiling.retry_seconds)
    return PlanningInputs(knowledge_now(store, now, settings), runs, policy)


def knowledge_now(store: Store, now: float, settings: RoundSettings) -> Knowledge:
    """Return the stored knowledge about speeds and run times, with what can be derived from it."""
    knowledge = with_implied_bandwidths(store.knowledge(), settings.snapshot.estimator, now)
    return with_type_speeds(knowledge, settings.snapshot.estimator)


def decide(
    observation: Observation, info: RoundInfo, inputs: PlanningInputs, settings: RoundSettings
) -> Decision:
    """Estimate, profile, plan and diff, without side effects."""
    knowledge = _relevant_knowledge(
        inputs.knowledge, {observation.records[job].workload for job in observation.comments}
    )
    reading = planning_reading(
        observation.reading, observation.under_way, settings.snapshot.cpus_per_gpu
    )
    build = build_snapshot(
        reading, observation.records, observation.comments, knowledge, info, settings.snapshot
    )
    jobs, nodes = build.snapshot.jobs, build.snapshot.nodes
    # These ages are recorded for people only: policies compute them from the snapshot.
    jobs_to_age = [
        job for job in jobs if info.first or observation.records[job.id].age_seconds is None
    ]
    expected = ages(jobs_to_age, nodes)
    view = ClusterView(reading, observation.records, observation.comments)
    sessions = plan_sessions(build.snapshot, view, settings.sessions)
    profiles = _profile(view, sessions.snapshot, inputs, settings)
    plan = inputs.policy(profiles.snapshot, settings.plan)
    profiles, sessions = profiles.compatible_with(plan), sessions.compatible_with(plan)
    plan = replace(plan, placements={**plan.placements, **sessions.placements})
    waiting = {**plan.waiting, **build.refusals, **observation.errors, **sessions.waiting}
    plan = replace(plan, waiting=profiles.explain(waiting))
    build = build.with_notes(profiles.unmeasurable).with_notes(sessions.notes)
    _check_finite(plan, expected)
    steps = diff(
        observation.reading,
        plan,
        pinned_jobs=build.pinned_jobs | profiles.staying,
        released_jobs=observation.released
        | profiles.moving
        | {step.job for step in sessions.stops}
        | {transition.step.job for transition in observation.under_way},
        first=info.first,
    )
    relevant = tuple(
        replace(
            step,
            partition=build.partitions.get(step.job, ""),
            cause=sessions.causes.get(step.job, ""),
        )
        if step.target
        else step
        for step in (*sessions.stops, *profiles.steps, *steps)
    )
    return Decision(observation, build, expected, profiles, plan, relevant)


def _relevant_knowledge(knowledge: Knowledge, workloads: Collection[WorkloadName]) -> Knowledge:
    """Keep only what is known of ``workloads`` and of other versions of their programs.

    Bad data about any other workload then does no harm.
    """
    scripts = {script for script in map(script_of, workloads) if script}

    def is_relevant(workload: WorkloadName) -> bool:
        return workload in workloads or script_of(workload) in scripts

    return replace(
        knowledge,
        records=tuple(r for r in knowledge.records if is_relevant(r.workload)),
        theory=tuple(fit for fit in knowledge.theory if is_relevant(fit.workload)),
    )


def _check_finite(plan: Plan, expected: Mapping[JobId, float]) -> None:
    """Raise ArithmeticError for a number in the plan that cannot be recorded and compared."""
    for job, numbers in plan.jobs.items():
        for value in (numbers.priority, numbers.gain, numbers.throughput, numbers.sensitivity):
            if value is not None and not isfinite(value):
                raise ArithmeticError(f"job {job} has a number that is not finite: {numbers}")
    for job, seconds in expected.items():
        if not 0.0 < seconds < inf:
            raise ArithmeticError(f"job {job} is expected to run {seconds} s")


def _profile(
    view: ClusterView, snapshot: Snapshot, inputs: PlanningInputs, settings: RoundSettings
) -> Profiling:
    """Plan the profile runs, which come before the policy's plan."""
    return profiling(
        snapshot,
        view,
        inputs.profile_runs,
        known_pairs(
            inputs.knowledge,
            {node.gpu_type for node in view.reading.nodes},
            settings.snapshot.estimator.min_records,
        ),
        settings.profiling,
        queue(snapshot, settings.plan).jobs if settings.profiling.enabled else (),
        inputs.knowledge.shortages,
    )
