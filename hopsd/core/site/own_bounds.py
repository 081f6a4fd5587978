"""What a site allows a single job: its GPU counts and servers, or why it cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import floor
from typing import Any

from hopsd.core.site.amounts import minutes_left, per_gpu
from hopsd.core.site.bounds import (
    JobBound,
    Place,
    association_chain,
    bounds,
    job_bound,
    least_bound,
    most_nodes,
    node_bound,
    time_limit,
)
from hopsd.core.site.limits import place_of
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, NodeReading, Reading, SiteMemory
from hopsd.model.reason import Reason, ReasonCode, count_of
from hopsd.model.rules import Rules, ShapeRule
from hopsd.model.site import Kind, Partition, SiteRules

_NEVER = ReasonCode.NO_CONFIGURATION


def open_partitions(read: JobReading, reading: Reading) -> str | Reason:
    """The requested partitions in which Slurm would accept the job, or why none would.

    In the order in which Slurm tries them: the highest tier first.
    """
    rules = reading.site
    names = sorted(read.partition.split(","), key=lambda name: -_tier(name, rules))
    refused = {
        name: _refused(read, place_of(read, name), rules) or _over_memory(read, name, reading)
        for name in names
    }
    left = [name for name in names if refused[name] is None]
    return ",".join(left) or _of_all(refused)


def within_site(
    job: Job, read: JobReading, rules: SiteRules, largest: int, now: float
) -> Job | Reason:
    """The job with the GPU counts and servers that the site allows, or why it may have none.

    ``largest``: GPUs of the largest server. Of several partitions the most permissive one counts:
    Slurm may use any of them.
    """
    found: dict[str, Job | Reason] = {}
    for name in read.partition.split(","):
        place = place_of(read, name)
        bound_job = _on_servers(job, place, rules)
        found[name] = (
            bound_job
            if isinstance(bound_job, Reason)
            else _with_counts(bound_job, read, place, rules, largest, now)
        )
    allowed = [one for one in found.values() if isinstance(one, Job)]
    if not allowed:
        return _of_all(found)
    return max(allowed, key=lambda one: (len(one.reqs), one.rules.max_nodes or 2**16))


def _over_memory(read: JobReading, partition: str, reading: Reading) -> Reason | None:
    nodes = (node for node in reading.nodes if node.gpus and partition in node.partitions)
    return over_memory(read, reading.memory_in(partition), nodes)


def over_memory(read: JobReading, site: SiteMemory, nodes: Iterable[NodeReading]) -> Reason | None:
    """Why MaxMemPerNode lets the job run on none of ``nodes``, if that is so.

    To Slurm a job that asks for memory by GPU, or for none where the site has no default by node or
    CPU, asks for all memory of its nodes here (22.05, 24.11).
    """
    most, asked = site.most_mb_per_node, read.asked
    if most is None or not site.counted or asked.whole_memory:
        return None
    each, per_cpu = read.memory_mb_per_node, read.memory_mb_per_cpu
    if asked.default_memory:
        each, per_cpu = site.mb_per_node, site.mb_per_cpu
    whole = asked.memory_mb_per_gpu is not None or (each is None and per_cpu is None)
    if whole:
        each = min((node.memory_mb for node in nodes if node.memory_mb), default=None)
    elif each is None:
        return None
    if each is None or each <= most:
        return None
    text = f"it asks for {each} MB of a node, and MaxMemPerNode is {most}"
    if whole:
        text += "; without --mem or --mem-per-cpu Slurm counts all memory of a node"
    return Reason(_NEVER, text)


def standing(read: JobReading, rules: SiteRules) -> dict[str, Any]:
    """A job's priority factors from the site's accounting, as fields of a :class:`Job`.

    ``qos_weight``: its QOS's priority relative to the highest, as in priority/multifactor.
    """
    place = place_of(read)
    found: dict[str, Any] = {}
    if links := association_chain(rules, place)[:1]:
        found["share"] = min(1.0, max(0.0, links[0].share))
    top = max((qos.priority for qos in rules.qos.values()), default=0)
    if top and place.qos in rules.qos:
        found["qos_weight"] = rules.qos[place.qos].priority / top
    if (partition := rules.partitions.get(place.partition)) is not None:
        found |= {"tier": partition.tier, "gives_way": partition.gives_way}
    return found


def _of_all(refused: Mapping[str, Job | Reason | None]) -> Reason:
    """Why none of the partitions lets a job run: the reason of each, once where all have the same.

    The code is LIMIT if any partition is only used up.
    """
    found = {name: one for name, one in refused.items() if isinstance(one, Reason)}
    texts = [one.text for one in found.values()]
    code = ReasonCode.LIMIT if any(one.code is ReasonCode.LIMIT for one in found.values()) else None
    first = next(iter(found.values()))
    if len(set(texts)) == 1:
        return replace(first, code=code or first.code)
    told = "; ".join(f"in partition {name} {text}" for name, text in zip(found, texts, strict=True))
    return Reason(code or first.code, told)


def _tier(name: str, rules: SiteRules) -> int:
    return rules.partitions[name].tier if name in rules.partitions else 0


def _refused(read: JobReading, place: Place, rules: SiteRules) -> Reason | None:
    partition = rules.partitions.get(place.partition)
    if partition is not None and (text := _not_allowed(partition, place)):
        return Reason(_NEVER, f"partition {partition.name} {text}")
    bound, seconds = time_limit(rules, place), read.time_limit_seconds
    if bound is not None and seconds is not None and seconds > bound.most:
        text = (
            f"its time limit of {seconds / 60:g} minutes is above the {bound.most / 60:g} of"
            f" {bound.by}; scontrol update its TimeLimit"
        )
        return Reason(_NEVER, text)
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


def _on_servers(job: Job, place: Place, rules: SiteRules) -> Job | Reason:
    """The job with the site's bounds on its servers, and on its GPUs per server.

    Slurm compares the mean over a job's servers with the bound per server; with the same count on
    each server it makes no difference.
    """
    kept = job.rules
    most = most_nodes(rules, place)
    if most is not None:
        if most.most < 1:
            return Reason(_NEVER, f"{most.by} allows no node")
        kept = replace(kept, max_nodes=int(most.most))
    each = _gpus_of_a_node(kept, place, rules)
    if each is not None:
        if each.most < 1:
            return Reason(_NEVER, f"{each.by}: not enough for one GPU on a node")
        shape = ShapeRule.EVEN if kept.shape is ShapeRule.ANY else kept.shape
        kept = replace(kept, shape=shape, max_per_node=int(each.most))
    return job if kept == job.rules else replace(job, rules=kept)


def _gpus_of_a_node(kept: Rules, place: Place, rules: SiteRules) -> JobBound | None:
    if not rules.limited:
        return None
    found = []
    needs = {
        Kind.GPUS: (1.0, 0.0),
        Kind.CPUS: (kept.cores_per_gpu, 0.0),
        Kind.MEMORY: (kept.memory_mb_per_gpu, kept.memory_mb_per_node),
    }
    for kind, (of_gpu, beside) in needs.items():
        bound = node_bound(rules, place).get(kind)
        if bound is not None and of_gpu:
            by = f"{bound.by}, {count_of(bound.most, kind)} of one job on a node"
            found.append(JobBound(floor((bound.most - beside) / of_gpu), by))
    return min(found, key=lambda one: one.most, default=None)


def _with_counts(
    job: Job, read: JobReading, place: Place, rules: SiteRules, largest: int, now: float
) -> Job | Reason:
    counts, reason = list(job.rules.counts(job.reqs)), None
    for most, text, code in _most_gpus(job, read, place, rules, largest, now):
        left = [count for count in counts if count <= most]
        if counts and not left:
            reason = Reason(
                code, f"{text}: at most {count_of(most, 'GPUs')}; it asks for {min(counts)} or more"
            )
        counts = left
    for kind, bound in least_bound(rules, place):
        each = per_gpu(kind, job, read, rules, now)
        left = [count for count in counts if each is None or count * each >= bound.most]
        if counts and not left:
            text = (
                f"{bound.by}: at least {count_of(bound.most, kind)};"
                f" it asks for {count_of(max(counts), 'GPUs')} or fewer"
            )
            reason = Reason(_NEVER, text)
        counts = left
    if counts:
        return job if tuple(counts) == job.reqs else replace(job, reqs=tuple(counts))
    return job if reason is None else reason


def _most_gpus(
    job: Job, read: JobReading, place: Place, rules: SiteRules, largest: int, now: float
) -> Iterator[tuple[int, str, ReasonCode]]:
    kept = job.rules
    if kept.max_nodes is not None and (most := most_nodes(rules, place)):
        each = min(largest, kept.max_per_node or largest)
        nodes = count_of(kept.max_nodes, "nodes")
        yield kept.max_nodes * each, f"{most.by}, {nodes} of one job", _NEVER
    if not rules.limited:
        return
    for kind, bound in job_bound(rules, place).items():
        taken = per_gpu(kind, job, read, rules, now)
        if taken:
            yield (
                floor(bound.most / taken),
                f"{bound.by}, {count_of(bound.most, kind)} of one job",
                _NEVER,
            )
    minutes = minutes_left(read.time_limit_seconds, read.start, now)
    for shared in bounds(rules, place):
        name = f"{shared.counted.name}, {shared.used} of {shared.most} {shared.kind} used"
        used_up = shared.used >= shared.most
        if shared.kind == Kind.WALL_MINUTES:
            used_up = used_up or (rules.safe and shared.used + minutes > shared.most)
            if used_up and not job.running:
                yield 0, name, ReasonCode.LIMIT
        elif shared.kind in (Kind.GPU_MINUTES, Kind.CPU_MINUTES) and used_up and not job.running:
            yield 0, name, ReasonCode.LIMIT
