"""What one GPU of a job takes of each resource that a site limits."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hopsd.model.job import Job
from hopsd.model.reading import JobReading
from hopsd.model.rules import exact
from hopsd.model.site import Kind, Partition, SiteRules, typed

UNLIMITED_MINUTES = 2**32 - 1
"""The minutes that Slurm counts for a job without a time limit."""


def minutes_left(limit_seconds: float | None, start: float, now: float) -> int:
    """The minutes left of a job's time limit; ``start`` 0: the job has not begun."""
    if limit_seconds is None:
        return UNLIMITED_MINUTES
    gone = max(0.0, now - start) if start else 0.0
    return ceil(max(0.0, limit_seconds - gone) / 60.0)


def per_gpu(  # noqa: PLR0911 - one return a kind
    kind: str, job: Job, read: JobReading, rules: SiteRules, now: float
) -> Fraction | None:
    """What each GPU of the job takes of ``kind``; None: the kind does not count it.

    Memory requested per node is divided by the GPUs of the smallest requirement.
    """
    match kind:
        case Kind.GPUS:
            return Fraction(1)
        case Kind.CPUS:
            return exact(job.rules.cores_per_gpu)
        case Kind.MEMORY:
            return _memory(job)
        case Kind.BILLING:
            partition = rules.partitions.get(read.partition.split(",")[0])
            return _billing(job, partition, most=rules.billing_is_largest)
        case Kind.GPU_MINUTES | Kind.RUNNING_GPU_MINUTES:
            return Fraction(minutes_left(read.time_limit_seconds, read.start, now))
        case Kind.CPU_MINUTES | Kind.RUNNING_CPU_MINUTES:
            minutes = minutes_left(read.time_limit_seconds, read.start, now)
            return exact(job.rules.cores_per_gpu) * minutes
    gpu_type = read.asked.gpu_type
    return Fraction(1) if gpu_type is not None and kind == typed(gpu_type) else None


def _memory(job: Job) -> Fraction:
    rules = job.rules
    return exact(rules.memory_mb_per_gpu) + exact(rules.memory_mb_per_node) / min(job.reqs)


def _billing(job: Job, partition: Partition | None, *, most: bool) -> Fraction:
    """Billing units by the partition's TRESBillingWeights, by default the number of CPUs."""
    cores = exact(job.rules.cores_per_gpu)
    if partition is None or not partition.billing:
        return cores
    amounts = {Kind.GPUS: Fraction(1), Kind.CPUS: cores, Kind.MEMORY: _memory(job)}
    parts = [
        amounts[Kind(kind)] * exact(weight)
        for kind, weight in partition.billing.items()
        if kind in amounts
    ]
    return max(parts, default=Fraction(0)) if most else sum(parts, Fraction(0))
