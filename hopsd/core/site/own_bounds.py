"""What a site allows a single job: its GPU counts, or why it can never run as submitted."""

from __future__ import annotations

from math import floor

from hopsd.core.site.bounds import JobBound, Place, bounds, job_bound, per_node, time_limit
from hopsd.core.site.limits import place_of
from hopsd.model.job import Job
from hopsd.model.reading import JobReading
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.site import Kind, Partition, SiteRules


def counts_allowed(job: Job, read: JobReading, rules: SiteRules) -> tuple[int, ...] | Reason:
    """The counts of ``reqs`` that Slurm would start in one of the job's partitions, or why none.

    A bound on the GPUs of one server is kept by counts that are no larger: a plan has no such row.
    """
    reasons: list[Reason | None] = []
    allowed: set[int] = set()
    for partition in read.partition.split(","):
        place = place_of(read, partition)
        refused = _refused(read, place, rules)
        if refused is not None:
            reasons.append(refused)
            continue
        counts, why = _counts(job, place, rules)
        allowed.update(counts)
        reasons.append(why)
    if allowed or not reasons:
        return tuple(r for r in job.reqs if r in allowed)
    return next(filter(None, reasons), Reason(ReasonCode.NO_CONFIGURATION, "no GPU count is left"))


def _refused(read: JobReading, place: Place, rules: SiteRules) -> Reason | None:
    partition = rules.partitions.get(place.partition)
    if partition is not None and (text := _not_allowed(partition, place)):
        return Reason(ReasonCode.NO_CONFIGURATION, f"partition {partition.name} {text}")
    bound, seconds = time_limit(rules, place), read.time_limit_seconds
    if bound is not None and seconds is not None and seconds > bound.most:
        text = (
            f"its time limit of {seconds / 60:g} minutes is above the {bound.most / 60:g} of"
            f" {bound.by}; scontrol update its TimeLimit"
        )
        return Reason(ReasonCode.NO_CONFIGURATION, text)
    return None


def _not_allowed(partition: Partition, place: Place) -> str:
    if partition.accounts is not None and place.account not in partition.accounts:
        return f"is for the accounts {', '.join(sorted(partition.accounts))}, not {place.account}"
    if place.account in partition.denied_accounts:
        return f"is not for account {place.account}"
    if partition.qos is not None and place.qos not in partition.qos:
        return f"is for the QOS {', '.join(sorted(partition.qos))}, not {place.qos}"
    if place.qos in partition.denied_qos:
        return f"is not for QOS {place.qos}"
    return ""


def _counts(job: Job, place: Place, rules: SiteRules) -> tuple[list[int], Reason | None]:
    """The counts that every bound leaves, and the bound that left none."""
    counts, reason = list(job.reqs), None
    for most, text, code in _most_gpus(job, place, rules):
        left = [count for count in counts if count <= most]
        if counts and not left:
            asks = f"it asks for {min(counts)} or more"
            reason = Reason(code, f"{text}: at most {most} GPUs; {asks}")
        counts = left
    return counts, reason


def _most_gpus(job: Job, place: Place, rules: SiteRules) -> list[tuple[int, str, ReasonCode]]:
    if not rules.limited:
        return []
    never = ReasonCode.NO_CONFIGURATION
    found: list[tuple[int, str, ReasonCode]] = []

    def add(one: JobBound | None, what: str, each: float = 1.0, code: ReasonCode = never) -> None:
        if one is not None:
            found.append((floor(one.most / each), f"{one.by}, {what}", code))

    add(job_bound(rules, place, Kind.GPUS), "GPUs of one job")
    add(job_bound(rules, place, Kind.CPUS), "CPUs of one job", job.rules.cores_per_gpu or 1.0)
    add(per_node(rules, place), "GPUs of one job on a node")
    minutes = (job.time_limit_seconds or 0.0) / 60.0
    if minutes:
        add(job_bound(rules, place, Kind.GPU_MINUTES), "GPU minutes of one job", minutes)
    for bound in bounds(rules, place):
        if bound.kind is Kind.GPU_MINUTES:
            left = max(0, bound.most - bound.used)
            named = JobBound(left, bound.counted.name)
            text = f"{bound.used} of {bound.most} GPU minutes used"
            add(named, text, minutes if minutes and rules.safe else 1.0, ReasonCode.LIMIT)
    return found
