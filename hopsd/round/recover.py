"""Finishes or undoes a plan that was interrupted."""

from __future__ import annotations

from dataclasses import replace

from hopsd.model.ids import JobId
from hopsd.model.plan import Plan
from hopsd.model.reading import Reading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.round.diff import diff
from hopsd.round.observation import Observation
from hopsd.round.observe import observe
from hopsd.round.under_way import read_settled, resume
from hopsd.round.window import RoundWindow
from hopsd.slurm.port import Port
from hopsd.store.port import PlanRecord, Store

_GIVEN_UP = (OutcomeStatus.FAILED, OutcomeStatus.PUT_OFF)


def vacates(step: Step) -> bool:
    return bool(step.current) and not step.profiling


def recover(port: Port, store: Store, requirements_max: int) -> tuple[StepOutcome, ...] | None:
    """Finish an interrupted plan while its round lasts; after that, undo it.

    Steps are derived again from Slurm's current state, so none is carried out twice. To undo a plan
    is to hold the jobs that Slurm could start by itself; running jobs continue. Steps of finished
    plans that were under way are resumed where they were. Returns None if no plan was interrupted.
    """
    resume(port, store)
    interruption = store.unfinished_plan()
    if interruption is None:
        return None
    plan_id, record = interruption
    _requeue_killed(port, record)
    reading, _ = read_settled(port, store)
    observation = observe(port, store, requirements_max, reading)
    now = observation.reading.now
    lasts = RoundWindow(record.round_start, record.round_end).lasts(now)
    plan_jobs = {step.job for step in record.steps if not step.profiling}
    plan, lost_jobs = _surviving_plan(record.plan if lasts else Plan({}), observation)
    steps = diff(
        observation.reading,
        plan,
        pinned_jobs=frozenset(job.id for job in observation.reading.jobs) - plan_jobs | lost_jobs,
        released_jobs=observation.released | {transition.step.job for transition in port.under_way},
        first=record.first and lasts,
    )
    steps = [step for step in steps if step.kind is StepKind.HOLD or step.job in plan_jobs]
    moving_jobs = {step.job for step in steps}
    port.let_go_on([s.job for s in record.steps if vacates(s) and s.job not in moving_jobs])
    outcomes = tuple(port.apply(steps))
    store.save_transitions(port.under_way)
    store.save_ended_by_signal([outcome.step.job for outcome in outcomes if outcome.warned])
    store.finish_plan(plan_id, outcomes, finished=now)
    reading, _ = read_settled(port, store)
    observe(port, store, requirements_max, reading)
    return outcomes


def _requeue_killed(port: Port, record: PlanRecord) -> None:
    """Requeue jobs that died of the plan's checkpoint signal, before they are recorded as ended.

    This includes jobs that are still completing: only the port sees, when they end, how they died.
    """
    jobs_to_vacate = {step.job for step in record.steps if vacates(step)}
    end_states = (SlurmState.FAILED, SlurmState.COMPLETING)
    end_jobs = (job.id for job in port.read().jobs if job.state in end_states)
    if steps := [Step(job, StepKind.REQUEUE) for job in end_jobs if job in jobs_to_vacate]:
        port.apply(steps)


def _surviving_plan(plan: Plan, observation: Observation) -> tuple[Plan, frozenset[JobId]]:
    """Drop placements on nodes lost meanwhile, and those with a GPU count the job does not accept.

    Returns the remaining plan, and the jobs whose placements were dropped. A job may not accept the
    count because a slurmctld that lost its state gave the same number to another job.
    """
    usable = {node.name for node in observation.reading.nodes if node.usable}
    lost_jobs = frozenset(
        job
        for job, allocation in plan.placements.items()
        if not usable.issuperset(allocation.nodes)
        or (job in observation.comments and allocation.gpus not in observation.comments[job].reqs)
    )
    placements = {
        job: allocation for job, allocation in plan.placements.items() if job not in lost_jobs
    }
    return replace(plan, placements=placements), lost_jobs


def read_cluster(port: Port, store: Store) -> tuple[Reading, tuple[StepOutcome, ...]]:
    """Read the cluster, after requeueing jobs that our signal killed when we no longer waited.

    Such a job was still completing when its step was given up. In the first reading it has ended,
    and would be recorded as ended, so Slurm is read again if a job was requeued. Also returns the
    outcomes of steps under way that finished in the meantime.
    """
    reading, outcomes = read_settled(port, store)
    killed_jobs = [job.id for job in reading.jobs if job.was_killed]
    given_up = [
        job
        for job, outcome in (store.last_outcomes(killed_jobs) if killed_jobs else {}).items()
        if outcome.status in _GIVEN_UP and vacates(outcome.step)
    ]
    if not given_up:
        return reading, outcomes
    port.apply([Step(job, StepKind.REQUEUE) for job in given_up])
    return port.read(), outcomes
