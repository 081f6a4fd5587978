"""A workload's first run on a GPU type: what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """One job's time on one GPU of a type, to measure its workload's basic times there.

    ``run`` is Slurm's restart count of it. ``end``: when it was seen to be over or, while the
    job has not left yet, to have measured enough. ``closed``: nothing more is to come of it.
    ``failure`` says why nothing was measured, "" where nothing went wrong.
    """

    job: JobId
    run: int
    workload: WorkloadName
    gpu_type: GpuType
    node: NodeName
    begin: float
    end: float | None = None
    closed: bool = False
    failure: str = ""

    @property
    def ran(self) -> bool:
        """False where it could not even start: that tells nothing of the workload."""
        return self.end is None or self.end > self.begin
