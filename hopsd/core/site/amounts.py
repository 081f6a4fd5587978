"""How much of each limited resource one GPU of a job uses."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hopsd.model.job import Job
from hopsd.model.reading import JobReading
from hopsd.model.rules import exact
from hopsd.model.site import Partition, ResourceKind, SiteRules, kind_of_type

UNLIMITED_MINUTES = 2**32 - 1
"""The minutes that Slurm counts for a job without a time limit."""


def remaining_minutes(limit_seconds: float | None, start: float, now: float) -> int:
    """Return the remaining minutes of a job's time limit; ``start`` is 0 before the job starts."""
    if limit_seconds is None:
        return UNLIMITED_MINUTES
    elapsed_seconds = max(0.0, now - start) if start else 0.0
    return ceil(max(0.0, limit_seconds - elapsed_seconds) / 60.0)


def per_gpu(  # noqa: PLR0911 - one return a kind
    kind: str, job: Job, job_reading: JobReading, rules: SiteRules, now: float
) -> Fraction | None:
    """Return how much of ``kind`` each GPU of the job uses; None if the kind does not apply.

    Memory requested per node is divided by the GPUs of the smallest requirement.
    """
    match kind:
        case ResourceKind.GPUS:
            return Fraction(1)
        case ResourceKind.CPUS:
            return exact(job.rules.cores_per_gpu)
        case ResourceKind.MEMORY:
            return _memory(job)
        case ResourceKind.BILLING:
            partition = rules.partitions.get(job_reading.partition.split(",")[0])
            return _billing_units(job, partition, largest_only=rules.billing_is_largest)
        case ResourceKind.GPU_MINUTES | ResourceKind.RUNNING_GPU_MINUTES:
            return Fraction(
                remaining_minutes(job_reading.time_limit_seconds, job_reading.start, now)
            )
        case ResourceKind.CPU_MINUTES | ResourceKind.RUNNING_CPU_MINUTES:
            minutes = remaining_minutes(job_reading.time_limit_seconds, job_reading.start, now)
            return exact(job.rules.cores_per_gpu) * minutes
    gpu_type = job_reading.options.gpu_type
    return Fraction(1) if gpu_type is not None and kind == kind_of_type(gpu_type) else None


def _memory(job: Job) -> Fraction:
    rules = job.rules
    return exact(rules.memory_mb_per_gpu) + exact(rules.memory_mb_per_node) / min(job.reqs)


def _billing_units(job: Job, partition: Partition | None, *, largest_only: bool) -> Fraction:
    """Return billing units by the partition's TRESBillingWeights, or else the number of CPUs."""
    cores = exact(job.rules.cores_per_gpu)
    if partition is None or not partition.billing:
        return cores
    amounts = {
        ResourceKind.GPUS: Fraction(1),
        ResourceKind.CPUS: cores,
        ResourceKind.MEMORY: _memory(job),
    }
    parts = [
        amounts[ResourceKind(kind)] * exact(weight)
        for kind, weight in partition.billing.items()
        if kind in amounts
    ]
    return max(parts, default=Fraction(0)) if largest_only else sum(parts, Fraction(0))
