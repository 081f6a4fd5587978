"""Records a decision, applies its steps, and records their outcomes."""

from __future__ import annotations

from hopsd.core.queue.history import with_ages
from hopsd.core.queue.profile_runs import unstarted_runs
from hopsd.model.history import ProfileRun
from hopsd.model.step import StepOutcome
from hopsd.round.decide import Decision
from hopsd.round.window import RoundWindow
from hopsd.slurm.port import SHADOW, Port
from hopsd.store.port import PlanRecord, Store


def carry_out(
    port: Port, store: Store, decision: Decision, window: RoundWindow, *, first: bool
) -> tuple[tuple[StepOutcome, ...], tuple[ProfileRun, ...]]:
    """Record a decision, apply its steps and record their outcomes.

    If hopsd is interrupted in between, the next start finds the unfinished plan. A shadow's steps
    are not recorded: none is ever applied, and every tick yields the same ones. Returns the
    outcomes of the steps, and the profile runs that changed.
    """
    now, changed_runs = decision.observation.reading.now, decision.profiles.updates
    store.save_jobs(with_ages(decision.observation.records, decision.ages))
    store.save_profile_runs(changed_runs)
    if not decision.steps and not first:
        return (), changed_runs
    steps = decision.steps if port.name != SHADOW else ()
    plan_id = None
    if steps or first:
        plan_id = store.begin_plan(
            PlanRecord(window.start, window.end, first, now, decision.plan, steps)
        )
    outcomes = tuple(port.apply(decision.steps))
    if under_way := port.under_way:
        store.save_transitions(under_way)
    store.save_ended_by_signal([outcome.step.job for outcome in outcomes if outcome.warned])
    if plan_id is not None:
        end = now + max((outcome.seconds for outcome in outcomes), default=0.0)
        store.finish_plan(plan_id, outcomes if steps else (), end)
    changed_runs = unstarted_runs(changed_runs, outcomes)
    store.save_profile_runs(changed_runs)
    return outcomes, changed_runs
