"""Reasons why a job waits: one sentence each, with the numbers that decided it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hopsd.core.placement.pools import Pools
from hopsd.core.queue.service_window import BlockingLimit
from hopsd.model.devices import is_cpu
from hopsd.model.ids import JobId
from hopsd.model.job import Job, JobState, Node
from hopsd.model.reason import Reason, ReasonCode, count_of

NOT_QUEUED = {
    JobState.HELD: Reason(ReasonCode.HELD, "held by its user or an operator"),
    JobState.DEPENDENCY: Reason(ReasonCode.DEPENDENCY, "waits for a dependency or a begin time"),
    JobState.PROFILING: Reason(ReasonCode.PROFILING, "is being profiled"),
}
"""Reasons of jobs in states in which they are not queued."""


def nowhere(job: Job, pools: Pools) -> Reason:
    """Reason of a job that could not run even on an idle cluster."""
    usable = [pool for pool in pools.values() if pool.gpu_type in job.throughput]
    if not job.throughput:
        text = (
            "no GPU server in use is in its partition and free of reservations for its time limit"
        )
        if any(map(is_cpu, pools)):
            text += ", nor CPUs that it takes (cpu=yes)"
        return Reason(ReasonCode.NO_CONFIGURATION, text)
    if not usable:
        text = f"can run on GPU types {_names(job.throughput)}, but the cluster has {_names(pools)}"
        return Reason(ReasonCode.NO_CONFIGURATION, text)
    limits = []
    for pool in usable:
        allowed_nodes = job.rules.nodes
        sizes = [n.gpus for n in pool.nodes if allowed_nodes is None or n.name in allowed_nodes]
        limit = f"{pool.gpu_type} has {max(sizes, default=0)} in one server"
        if job.throughput[pool.gpu_type].distributed:
            limit += f" and {sum(sizes)} in all"
        if len(sizes) < len(pool.nodes):
            limit += f" ({len(sizes)} of {len(pool.nodes)} servers are open to it)"
        limits.append(limit)
    requested_gpus = count_of(min(job.reqs), "GPUs")
    text = f"asks for {requested_gpus} or more, even when all are idle {', '.join(limits)}"
    return Reason(ReasonCode.NO_CONFIGURATION, text)


def outside_window(
    position: int, priority: float, window: int, requested_gpus: int, gpus: int, reach: int = 1
) -> Reason:
    """Reason of a job outside the service window.

    ``position`` in the queue counts from 1; ``requested_gpus`` are those that the ``window`` jobs
    need, which may be up to ``reach`` times all ``gpus``.
    """
    text = (
        f"number {position} in the queue with priority {priority:.4g}: the first {window}"
        f" jobs ask for {requested_gpus} GPUs at least, the cluster has {gpus}"
    )
    if reach > 1:
        text += f", and a plan considers the jobs for {reach} times as many"
    return Reason(ReasonCode.OUTSIDE_WINDOW, text)


def over_limit(job: Job, block: BlockingLimit) -> Reason:
    """Reason of a job for which a site limit leaves too little."""
    remaining_limit, limit = block.remaining_limit, block.remaining_limit.limit
    running_jobs = [job for job in block.jobs_ahead if job.running]
    running = [*remaining_limit.kept_jobs, *(job_ahead.id for job_ahead in running_jobs)]
    waiting = [job_ahead.id for job_ahead in block.jobs_ahead if not job_ahead.running]
    uses = []
    if limit.gpus is not None:
        used_amount = remaining_limit.kept_gpus + sum(
            limit.amount(o.id, o.running.gpus) for o in running_jobs
        )
        requested_amount = sum(
            limit.amount(o.id, min(o.reqs)) for o in block.jobs_ahead if not o.running
        )
        shares = (
            (used_amount / limit.scale, "in use by", running),
            (requested_amount / limit.scale, "asked for by", waiting),
        )
        uses.append(_shares(count_of(limit.gpus / limit.scale, limit.unit), *shares))
    if limit.count is not None:
        shares = (len(running), "running:", running), (len(waiting), "before it:", waiting)
        uses.append(_shares(count_of(limit.count, "jobs"), *shares))
    asks = count_of(min(job.reqs), "GPUs")
    text = f"{limit.name}: {'; '.join(uses)}; it asks for {asks} or more"
    if limit.gpus is not None and job.id in limit.per_gpu:
        text += f", {count_of(limit.per_gpu[job.id] / limit.scale, limit.unit)} for each"
    return Reason(ReasonCode.LIMIT, text)


_MAX_NAMED = 5


def _shares(limit_text: str, *shares: tuple[float, str, Sequence[JobId]]) -> str:
    """Format such as `2 of 2 GPUs in use by 17, 21`, without shares that no job has."""
    parts = [
        f"{amount:.12g} of {limit_text} {words} {_job_names(jobs)}"
        for amount, words, jobs in shares
        if jobs
    ]
    return "; ".join(parts) or f"{limit_text} at most"


def _job_names(jobs: Sequence[JobId]) -> str:
    """Format such as `17, 21`; of many, only the first ones. See also `reason.without_jobs`."""
    rest_text = f" and {len(jobs) - _MAX_NAMED} more" if len(jobs) > _MAX_NAMED else ""
    return f"{', '.join(jobs[:_MAX_NAMED])}{rest_text}"


def nothing_fits(job: Job, idle: Sequence[tuple[Node, int]]) -> Reason:
    """Reason of a job that has no configuration on the GPUs ``idle`` on each node."""
    accessible = [(node, count) for node, count in idle if _may_use(job, node)]
    kinds = [_device(node) for node, _ in accessible]
    devices = " or ".join(sorted({*kinds}, reverse=True)) or "GPUs"
    free = [count for _, count in accessible]
    text = f"no placement of {_devices_of(job, devices)} for it: "
    if sum(free):
        text += (
            f"{sum(free)} idle on nodes that it may use, at most {max(free, default=0)} on one node"
        )
    else:
        text += "none is idle on nodes that it may use"
    counts = Counter({"GPUs": 0, "CPUs": 0})
    for node, count in idle:
        if not _may_use(job, node):
            counts[_device(node)] += count
    idle_elsewhere = " and ".join(f"{count} {device}" for device, count in counts.items() if count)
    text += f"; {idle_elsewhere} idle on nodes that it may not use" if idle_elsewhere else ""
    return Reason(ReasonCode.NO_CONFIGURATION, text)


def _may_use(job: Job, node: Node) -> bool:
    nodes = job.rules.nodes
    return node.gpu_type in job.throughput and (nodes is None or node.name in nodes)


def _device(node: Node) -> str:
    return "CPUs" if is_cpu(node.gpu_type) else "GPUs"


def lost_to_others(job: Job, configurations: int, priority: float, placement_count: int) -> Reason:
    """Reason of a job whose configurations lost their GPUs to other jobs."""
    losers = f"any of its {configurations} configurations"
    if configurations == 1:
        losers = "its only configuration"
    text = (
        f"its priority is {priority:.4g}, and {count_of(placement_count, 'jobs')} placed gained"
        f" more than {losers} (of {_devices_of(job, 'GPUs')}) would"
    )
    return Reason(ReasonCode.LOST_TO_OTHERS, text)


def sizes(job: Job) -> str:
    """List the job's sizes in words, such as `1, 2 or 4`."""
    *head, last = (str(size) for size in sorted(set(job.reqs)))
    return f"{', '.join(head)} or {last}" if head else last


def _devices_of(job: Job, devices: str) -> str:
    """Format such as `1, 2 or 4 GPUs`, or `1 GPU`."""
    return count_of(1, devices) if set(job.reqs) == {1} else f"{sizes(job)} {devices}"


def _names(types: Iterable[str]) -> str:
    return ", ".join(types) or "none"
