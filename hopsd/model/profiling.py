"""Profile runs: a workload's first run on a GPU type, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """A short run of a job on one GPU of a type, to measure its workload's basic times there.

    ``run`` is the job's restart count in Slurm. ``end``: when the run was seen to be over or, if
    the job still holds the GPU, to have measured enough. ``closed``: no further result is expected.
    ``failure``: why nothing was measured, "" if nothing went wrong.
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
        """False if it could not even start, which says nothing about the workload."""
        return self.end is None or self.end > self.begin
