"""What one round saw and did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.core.queue.trials import Trial
from hopsd.core.snapshot.build import SnapshotBuild
from hopsd.model.history import ProfileRun
from hopsd.model.ids import JobId
from hopsd.model.plan import Plan
from hopsd.model.step import OutcomeStatus, StepOutcome
from hopsd.round.observation import Observation
from hopsd.round.window import RoundWindow


@dataclass(frozen=True, slots=True)
class RoundResult:
    """All that a round saw and did. ``profiled``: profile runs that it began or changed.

    ``defects``: the exceptions of the jobs that were set aside. ``trials``: of shapes, begun by
    this plan.
    """

    window: RoundWindow
    first: bool
    seen: Observation
    built: SnapshotBuild
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
