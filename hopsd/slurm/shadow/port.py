"""A read-only port: it logs what hops would do, and changes nothing in Slurm."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, Reading
from hopsd.model.step import OutcomeStatus, Step, StepOutcome
from hopsd.slurm.port import SHADOW, InstantPort, Port

log = structlog.get_logger()


class ShadowPort(InstantPort):
    """Reads through another port and refuses to write."""

    name = SHADOW

    def __init__(self, port: Port) -> None:
        self._port = port

    def read(self) -> Reading:
        return self._port.read()

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        return self._port.ended_jobs(records)

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        """Log the steps; every outcome is UNCHANGED, since nothing was done and nothing failed."""
        for step in steps:
            log.info(
                "would",
                step=str(step.kind),
                job=step.job,
                current=str(step.current),
                target=str(step.target),
            )
        return [StepOutcome(step, OutcomeStatus.UNCHANGED, step.current) for step in steps]
