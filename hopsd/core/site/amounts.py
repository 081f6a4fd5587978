"""What one GPU of a job takes of each resource that a site limits."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hopsd.model.job import Job
from hopsd.model.reading import JobReading
from hopsd.model.site import Kind, Partition, SiteRules, typed

UNLIMITED_MINUTES = 2**32 - 1
"""The minutes that Slurm counts for a job without a time limit."""


def minutes_left(limit_seconds: float | None, start: float, now: float) -> int:
    """The minutes left of a job's time limit; ``start`` 0: the job has not begun."""
    if limit_seconds is None:
        return UNLIMITED_MINUTES
    gone = max(0.0, now - start) if start else 0.0
    return ceil(max(0.0, limit_seconds - gone) / 60.0)


def per_gpu(kind: str, job: Job, read: JobReading, rules: SiteRules, now: float) -> Fraction | None:
    """What each GPU of the job takes of ``kind``; None: the kind does not count it.

    Memory requested per node is divided by the GPUs of the smallest requirement.
    """
    cores = Fraction(str(job.rules.cores_per_gpu))
    minutes = minutes_left(read.time_limit_seconds, read.start, now)
    partition = rules.partitions.get(read.partition.split(",")[0])
    amounts: dict[str, Fraction] = {
        Kind.GPUS: Fraction(1),
        Kind.CPUS: cores,
        Kind.MEMORY: _memory(job),
        Kind.BILLING: _billing(job, partition, most=rules.billing_is_largest),
        Kind.GPU_MINUTES: Fraction(minutes),
        Kind.RUNNING_GPU_MINUTES: Fraction(minutes),
        Kind.CPU_MINUTES: cores * minutes,
        Kind.RUNNING_CPU_MINUTES: cores * minutes,
    }
    if read.asked.gpu_type is not None:
        amounts[typed(read.asked.gpu_type)] = Fraction(1)
    return amounts.get(kind)


def _memory(job: Job) -> Fraction:
    rules = job.rules
    return Fraction(str(rules.memory_mb_per_gpu)) + Fraction(str(rules.memory_mb_per_node)) / min(
        job.reqs
    )


def _billing(job: Job, partition: Partition | None, *, most: bool) -> Fraction:
    """Billing units by the partition's TRESBillingWeights, by default the number of CPUs."""
    cores = Fraction(str(job.rules.cores_per_gpu))
    if partition is None or not partition.billing:
        return cores
    amounts = {Kind.GPUS: Fraction(1), Kind.CPUS: cores, Kind.MEMORY: _memory(job)}
    parts = [
        amounts[Kind(kind)] * Fraction(str(weight))
        for kind, weight in partition.billing.items()
        if kind in amounts
    ]
    return max(parts, default=Fraction(0)) if most else sum(parts, Fraction(0))
