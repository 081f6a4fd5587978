"""What one round saw and did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.core.placement.pools import RunnableFilter, job_cache, pools_of
from hopsd.core.snapshot.build import SnapshotBuild
from hopsd.model.history import ProfileRun
from hopsd.model.ids import JobId
from hopsd.model.plan import Plan
from hopsd.model.step import OutcomeStatus, StepOutcome
from hopsd.round.observation import Observation
from hopsd.round.window import RoundWindow


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round saw and did. ``profile_runs``: profile runs that it began or changed.

    ``defects``: the errors of the jobs that were set aside.
    """

    window: RoundWindow
    first: bool
    observation: Observation
    build: SnapshotBuild
    plan: Plan
    outcomes: tuple[StepOutcome, ...]
    profile_runs: tuple[ProfileRun, ...] = ()
    defects: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def never_runnable(self) -> frozenset[JobId]:
        """Waiting jobs that the cluster as it is now could not run even if it were idle."""
        snapshot = self.build.snapshot
        could_run = RunnableFilter(pools_of(snapshot.nodes), cache=job_cache(snapshot.nodes))
        candidates = (job.id for job in snapshot.jobs if not job.running and not could_run(job))
        return frozenset(candidates) | self.build.refusals.keys()

    @property
    def put_off(self) -> frozenset[JobId]:
        """Jobs whose start was put off, since Slurm was too busy."""
        put_off_status = OutcomeStatus.PUT_OFF
        return frozenset(o.step.job for o in self.outcomes if o.status is put_off_status)
