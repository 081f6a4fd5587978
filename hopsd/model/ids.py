"""Names of things, each a type of its own so that mypy tells them apart."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", str)
NodeName = NewType("NodeName", str)
GpuType = NewType("GpuType", str)
UserName = NewType("UserName", str)
WorkloadName = NewType("WorkloadName", str)
AppName = NewType("AppName", str)
RackName = NewType("RackName", str)


def job_order(job: JobId) -> tuple[int, int, str]:
    """Sort key of job ids: ids of digits compare as numbers and come first."""
    return (0, int(job), job) if job.isascii() and job.isdigit() else (1, 0, job)
