"""What hops did to a job, as an event for its user."""

from __future__ import annotations

from hopsd.model.step import OutcomeStatus, StepKind, StepOutcome


def intervention(outcome: StepOutcome) -> tuple[str, str] | None:
    """Return the event's kind and text; None if nothing failed and no running job was touched."""
    step = outcome.step
    if outcome.status is OutcomeStatus.FAILED:
        return "step_failed", f"{step.kind} {step.target}: {outcome.error}"
    if outcome.status is OutcomeStatus.GONE and outcome.warned:
        return "ended_by_signal", outcome.error
    if outcome.status is not OutcomeStatus.DONE or not step.current:
        return None
    cause = f" {step.cause}" if step.cause else ""
    if step.kind is StepKind.MOVE:
        return "moved", f"hops moved it from {step.current} to {outcome.actual}{cause}"
    if step.kind is StepKind.PREEMPT:
        return "stopped", f"hops stopped it on {step.current}{cause}; it waits for its next turn"
    return None
