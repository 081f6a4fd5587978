"""What a site allows a single job: its GPU counts and servers, or why it cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import floor
from typing import Any

from hopsd.core.site.amounts import per_gpu, remaining_minutes
from hopsd.core.site.applicable_limits import (
    JobLimit,
    LimitSubject,
    association_chain,
    bounds,
    job_limits,
    max_nodes_limit,
    minimum_limits,
    node_limits,
    time_limit,
)
from hopsd.core.site.limits import limit_subject
from hopsd.model.devices import is_cpu
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, NodeReading, Reading, SiteMemory
from hopsd.model.reason import Reason, ReasonCode, count_of
from hopsd.model.rules import Rules, ShapeRule
from hopsd.model.site import Partition, ResourceKind, SiteRules

_NEVER_CODE = ReasonCode.NO_CONFIGURATION


def open_partitions(job_reading: JobReading, reading: Reading) -> str | Reason:
    """Return the requested partitions in which Slurm would accept the job, or why there are none.

    They are in the order in which Slurm tries them: the highest tier first.
    """
    rules = reading.site
    names = sorted(job_reading.partition.split(","), key=lambda name: -_tier(name, rules))
    refusals = {
        name: _refusal(job_reading, limit_subject(job_reading, name), rules)
        or _over_memory(job_reading, name, reading)
        or _missing(job_reading, name, reading)
        for name in names
    }
    open_names = [name for name in names if refusals[name] is None]
    return ",".join(open_names) or _combined_reason(refusals)


def within_site(
    job: Job, job_reading: JobReading, rules: SiteRules, largest: int, now: float
) -> Job | Reason:
    """Return the job with the GPU counts and servers that the site allows, or why it may have none.

    ``largest``: the number of GPUs of the largest server. Of several partitions, the most
    permissive one counts: Slurm may use any of them.
    """
    by_partition: dict[str, Job | Reason] = {}
    for name in job_reading.partition.split(","):
        subject = limit_subject(job_reading, name)
        bound_job = _with_server_limits(job, subject, rules)
        by_partition[name] = (
            bound_job
            if isinstance(bound_job, Reason)
            else _with_counts(bound_job, job_reading, subject, rules, largest, now)
        )
    runnable = [option for option in by_partition.values() if isinstance(option, Job)]
    if not runnable:
        return _combined_reason(by_partition)
    return max(runnable, key=lambda option: (len(option.reqs), option.rules.max_nodes or 2**16))


def _over_memory(job_reading: JobReading, partition: str, reading: Reading) -> Reason | None:
    nodes = (node for node in reading.nodes if node.gpus and partition in node.partitions)
    return over_memory(job_reading, reading.memory_in(partition), nodes)


def _missing(job_reading: JobReading, partition: str, reading: Reading) -> Reason | None:
    """Refuse a GPU type or amount of memory that no node of the partition has, drained or not."""
    nodes = [n for n in reading.nodes if not n.partitions or partition in n.partitions]
    kind, wanted_mb = job_reading.options.gpu_type, job_reading.requested_node_mb
    types = sorted({node.gpu_type for node in nodes if not is_cpu(node.gpu_type)})
    if kind is not None and nodes and kind not in types:
        text = f"it asks for GPUs of type {kind}, and partition {partition} has {', '.join(types)}"
        return Reason(_NEVER_CODE, text)
    sizes = [n.memory_mb for n in nodes if n.memory_mb and kind in (None, n.gpu_type)]
    if wanted_mb is not None and sizes and wanted_mb > max(sizes):
        text = (
            f"it asks for {wanted_mb} MB of each node (--mem), and the largest has {max(sizes)} MB"
        )
        return Reason(_NEVER_CODE, text)
    return None


def over_memory(
    job_reading: JobReading, site: SiteMemory, nodes: Iterable[NodeReading]
) -> Reason | None:
    """Return why MaxMemPerNode keeps the job from running on any of ``nodes``, if it does.

    For this limit, Slurm (22.05, 24.11) counts all memory of the nodes if a job requests memory per
    GPU, or requests none and the site has no default per node or CPU.
    """
    limit_mb, options = site.most_mb_per_node, job_reading.options
    if limit_mb is None or not site.counted or options.whole_memory:
        return None
    mb_per_node, per_cpu = job_reading.memory_mb_per_node, job_reading.memory_mb_per_cpu
    if options.default_memory:
        mb_per_node, per_cpu = site.mb_per_node, site.mb_per_cpu
    whole_node = options.memory_mb_per_gpu is not None or (mb_per_node is None and per_cpu is None)
    if whole_node:
        mb_per_node = min((node.memory_mb for node in nodes if node.memory_mb), default=None)
    elif mb_per_node is None:
        return None
    if mb_per_node is None or mb_per_node <= limit_mb:
        return None
    text = f"it asks for {mb_per_node} MB of a node, and MaxMemPerNode is {limit_mb}"
    if whole_node:
        text += "; without --mem or --mem-per-cpu Slurm counts all memory of a node"
    return Reason(_NEVER_CODE, text)


def standing(job_reading: JobReading, rules: SiteRules) -> dict[str, Any]:
    """Return a job's priority factors from the site's accounting, as fields of a :class:`Job`.

    ``qos_weight``: the priority of the QOS relative to the highest, as in priority/multifactor.
    """
    subject = limit_subject(job_reading)
    fields: dict[str, Any] = {}
    if links := association_chain(rules, subject)[:1]:
        fields["share"] = min(1.0, max(0.0, links[0].share))
    top = max((qos.priority for qos in rules.qos.values()), default=0)
    if top and subject.qos in rules.qos:
        fields["qos_weight"] = rules.qos[subject.qos].priority / top
    if (partition := rules.partitions.get(subject.partition)) is not None:
        fields |= {"tier": partition.tier, "gives_way": partition.gives_way}
    return fields


def _combined_reason(refusals: Mapping[str, Job | Reason | None]) -> Reason:
    """Return why no partition lets a job run: the reason of each, or the one that all share.

    The code is LIMIT if any partition has only reached a limit for now.
    """
    reasons = {name: reason for name, reason in refusals.items() if isinstance(reason, Reason)}
    texts = [reason.text for reason in reasons.values()]
    code = (
        ReasonCode.LIMIT
        if any(reason.code is ReasonCode.LIMIT for reason in reasons.values())
        else None
    )
    first = next(iter(reasons.values()))
    if len(set(texts)) == 1:
        return replace(first, code=code or first.code)
    text = "; ".join(
        f"in partition {name} {text}" for name, text in zip(reasons, texts, strict=True)
    )
    return Reason(code or first.code, text)


def _tier(name: str, rules: SiteRules) -> int:
    return rules.partitions[name].tier if name in rules.partitions else 0


def _refusal(job_reading: JobReading, subject: LimitSubject, rules: SiteRules) -> Reason | None:
    partition = rules.partitions.get(subject.partition)
    if partition is not None and (text := _exclusion(partition, subject)):
        return Reason(_NEVER_CODE, f"partition {partition.name} {text}")
    bound, seconds = time_limit(rules, subject), job_reading.time_limit_seconds
    if bound is not None and seconds is not None and seconds > bound.value:
        text = (
            f"its time limit of {seconds / 60:g} minutes is above the {bound.value / 60:g} of"
            f" {bound.source}; scontrol update its TimeLimit"
        )
        return Reason(_NEVER_CODE, text)
    return None


def _exclusion(partition: Partition, subject: LimitSubject) -> str:
    if partition.accounts is not None and subject.account not in partition.accounts:
        return f"is for the accounts {', '.join(sorted(partition.accounts))}, not {subject.account}"
    if subject.account in partition.denied_accounts:
        return f"is not for account {subject.account}"
    if partition.qos is not None and subject.qos not in partition.qos:
        return f"is for the QOS {', '.join(sorted(partition.qos))}, not {subject.qos}"
    if subject.qos in partition.denied_qos:
        return f"is not for QOS {subject.qos}"
    return ""


def _with_server_limits(job: Job, subject: LimitSubject, rules: SiteRules) -> Job | Reason:
    """Return the job with the site's limits on its servers, and on its GPUs per server.

    Slurm compares the mean over a job's servers with the limit per server; an even count on each
    server satisfies both.
    """
    limited_rules = job.rules
    max_nodes = max_nodes_limit(rules, subject)
    if max_nodes is not None:
        if max_nodes.value < 1:
            return Reason(_NEVER_CODE, f"{max_nodes.source} allows no node")
        limited_rules = replace(limited_rules, max_nodes=int(max_nodes.value))
    per_node = _max_gpus_per_node(limited_rules, subject, rules)
    if per_node is not None:
        if per_node.value < 1:
            return Reason(_NEVER_CODE, f"{per_node.source}: not enough for one GPU on a node")
        shape = ShapeRule.EVEN if limited_rules.shape is ShapeRule.ANY else limited_rules.shape
        limited_rules = replace(limited_rules, shape=shape, max_per_node=int(per_node.value))
    return job if limited_rules == job.rules else replace(job, rules=limited_rules)


def _max_gpus_per_node(
    job_rules: Rules, subject: LimitSubject, rules: SiteRules
) -> JobLimit | None:
    if not rules.has_limits:
        return None
    limits = []
    needs = {
        ResourceKind.GPUS: (1.0, 0.0),
        ResourceKind.CPUS: (job_rules.cores_per_gpu, 0.0),
        ResourceKind.MEMORY: (job_rules.memory_mb_per_gpu, job_rules.memory_mb_per_node),
    }
    for kind, (per_gpu_need, fixed_need) in needs.items():
        bound = node_limits(rules, subject).get(kind)
        if bound is not None and per_gpu_need:
            source = f"{bound.source}, {count_of(bound.value, kind)} of one job on a node"
            limits.append(JobLimit(floor((bound.value - fixed_need) / per_gpu_need), source))
    return min(limits, key=lambda limit: limit.value, default=None)


def _with_counts(
    job: Job,
    job_reading: JobReading,
    subject: LimitSubject,
    rules: SiteRules,
    largest: int,
    now: float,
) -> Job | Reason:
    counts, reason = list(job.rules.counts(job.reqs)), None
    for maximum, text, code in _gpu_maxima(job, job_reading, subject, rules, largest, now):
        allowed_counts = [count for count in counts if count <= maximum]
        if counts and not allowed_counts:
            reason = Reason(
                code,
                f"{text}: at most {count_of(maximum, 'GPUs')}; it asks for {min(counts)} or more",
            )
        counts = allowed_counts
    for kind, bound in minimum_limits(rules, subject):
        amount = per_gpu(kind, job, job_reading, rules, now)
        allowed_counts = [
            count for count in counts if amount is None or count * amount >= bound.value
        ]
        if counts and not allowed_counts:
            text = (
                f"{bound.source}: at least {count_of(bound.value, kind)};"
                f" it asks for {count_of(max(counts), 'GPUs')} or fewer"
            )
            reason = Reason(_NEVER_CODE, text)
        counts = allowed_counts
    if counts:
        return job if tuple(counts) == job.reqs else replace(job, reqs=tuple(counts))
    return job if reason is None else reason


def _gpu_maxima(
    job: Job,
    job_reading: JobReading,
    subject: LimitSubject,
    rules: SiteRules,
    largest: int,
    now: float,
) -> Iterator[tuple[int, str, ReasonCode]]:
    job_rules = job.rules
    if job_rules.max_nodes is not None and (node_limit := max_nodes_limit(rules, subject)):
        gpus_per_node = min(largest, job_rules.max_per_node or largest)
        nodes = count_of(job_rules.max_nodes, "nodes")
        yield (
            job_rules.max_nodes * gpus_per_node,
            f"{node_limit.source}, {nodes} of one job",
            _NEVER_CODE,
        )
    if not rules.has_limits:
        return
    for kind, bound in job_limits(rules, subject).items():
        amount = per_gpu(kind, job, job_reading, rules, now)
        if amount:
            yield (
                floor(bound.value / amount),
                f"{bound.source}, {count_of(bound.value, kind)} of one job",
                _NEVER_CODE,
            )
    minutes = remaining_minutes(job_reading.time_limit_seconds, job_reading.start, now)
    for quota in bounds(rules, subject):
        name = f"{quota.scope.name}, {quota.usage} of {quota.maximum} {quota.kind} used"
        used_up = quota.usage >= quota.maximum
        if quota.kind == ResourceKind.WALL_MINUTES:
            used_up = used_up or (rules.safe and quota.usage + minutes > quota.maximum)
            if used_up and not job.running:
                yield 0, name, ReasonCode.LIMIT
        elif (
            quota.kind in (ResourceKind.GPU_MINUTES, ResourceKind.CPU_MINUTES)
            and used_up
            and not job.running
        ):
            yield 0, name, ReasonCode.LIMIT
