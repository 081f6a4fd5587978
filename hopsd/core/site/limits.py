"""A site's limits as rows of the plan: how much each group of jobs may have in total."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

from hopsd.core.queue.history import OCCUPYING_STATES
from hopsd.core.site.amounts import per_gpu, remaining_minutes
from hopsd.core.site.applicable_limits import LimitScope, LimitSubject, SiteLimit, bounds, scopes_of
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, Reading
from hopsd.model.reason import count_of
from hopsd.model.rules import Limit
from hopsd.model.site import Holder, ResourceKind, SiteRules

_SCALE = 1000
"""Rows have whole numbers: thousandths if jobs take fractions."""

_RUNNING = {
    ResourceKind.GPU_MINUTES: ResourceKind.GPUS,
    ResourceKind.RUNNING_GPU_MINUTES: ResourceKind.GPUS,
    ResourceKind.CPU_MINUTES: ResourceKind.CPUS,
    ResourceKind.RUNNING_CPU_MINUTES: ResourceKind.CPUS,
}
"""Kinds that are counted for the rest of a running job's time limit."""

_NOT_ADDED = (ResourceKind.JOBS, ResourceKind.NODES, ResourceKind.WALL_MINUTES)
_USED_UP = (ResourceKind.GPU_MINUTES, ResourceKind.CPU_MINUTES)


def is_summed(kind: str, rules: SiteRules) -> bool:
    """Whether Slurm sums the jobs' amounts of this kind and starts no job beyond the limit."""
    return kind not in _NOT_ADDED and (kind not in _USED_UP or rules.safe)


def limit_subject(job: JobReading, partition: str | None = None) -> LimitSubject:
    """Return the subject of a job in ``partition``, by default its first one."""
    name = job.partition.split(",")[0] if partition is None else partition
    return LimitSubject(job.user, job.account, job.qos, name)


@dataclass(slots=True)
class _Row:
    bounds: dict[str, SiteLimit] = field(default_factory=dict)
    members: dict[str, set[JobId]] = field(default_factory=lambda: defaultdict(set))


@dataclass(slots=True)
class Usage:
    """The ``amount`` that ``jobs`` outside the plan already hold, by kind.

    ``planned_jobs``: jobs of the plan. They count once they run, even towards limits that do not
    apply to them because one of their QOS takes precedence.
    """

    amount: Counter[str] = field(default_factory=Counter)
    jobs: list[JobId] = field(default_factory=list)
    planned_jobs: set[JobId] = field(default_factory=set)

    def add(self, job: JobId, tres: Mapping[str, int], minutes: int) -> None:
        self.jobs.append(job)
        self.amount.update(tres)
        for kind, resource in _RUNNING.items():
            self.amount[kind] += tres.get(resource, 0) * minutes


def limit_rows(reading: Reading, jobs: Sequence[Job]) -> tuple[Limit, ...]:
    """Return the rows that could restrict ``jobs``, and no others.

    Other jobs' usage is subtracted from each bound. Node limits of a group are left out: Slurm
    counts a node that two jobs share only once, so their sum depends on the plan itself.
    """
    if not reading.site.has_limits:
        return licence_rows(reading, jobs)
    groups = _Groups(reading, jobs)
    rows = [limit for scope in groups.scopes() for limit in _limits(scope, groups)]
    return (*rows, *licence_rows(reading, jobs))


def over_limits(reading: Reading, jobs: Sequence[Job]) -> frozenset[JobId]:
    """Return the running ``jobs`` of groups that exceed a limit only because of other jobs.

    Slurm does not stop them, but once stopped they could not start before the other jobs end.
    """
    if not reading.site.has_limits:
        return frozenset()
    groups = _Groups(reading, jobs)
    jobs_over: set[JobId] = set()
    for scope in groups.scopes():
        row = groups.rows[scope]
        for kind, bound in row.bounds.items():
            running = {job for job in row.members[kind] if groups.planned_jobs[job].running}
            usage = (
                len(running) if kind == ResourceKind.JOBS else groups.running_usage(kind, running)
            )
            if groups.available(scope, bound) < usage <= bound.maximum - bound.usage:
                jobs_over |= running
    return frozenset(jobs_over)


def licence_rows(reading: Reading, jobs: Sequence[Job]) -> tuple[Limit, ...]:
    """Return a row per requested licence, with a job count as if each took the largest request."""
    readings = {job.id: job for job in reading.jobs}
    rows = []
    for name, licence in sorted(reading.licences.items()):
        requests = {job.id: n for job in jobs if (n := readings[job.id].licences.get(name, 0))}
        planned_usage = sum(requests[job.id] for job in jobs if job.running and job.id in requests)
        available = licence.total - max(0, licence.in_use - planned_usage)
        if sum(requests.values()) > available:
            count = max(0, available) // max(requests.values())
            outside = licence.total - available
            text = f"licence {name} ({licence.total}, {outside} of them used outside hops)"
            rows.append(Limit(text, frozenset(requests), count=count))
    return tuple(rows)


def usage_by_scope(reading: Reading, planned_jobs: Container[JobId]) -> dict[LimitScope, Usage]:
    """Return the usage by plain jobs, and by hops jobs that are not in the plan."""
    usages: dict[LimitScope, Usage] = defaultdict(Usage)
    rules = reading.site
    for holder in reading.other_holders:
        subject = LimitSubject(holder.user, holder.account, holder.qos, holder.partition)
        for scope in scopes_of(rules, subject):
            usages[scope].add(holder.id, _holder_resources(holder), _minutes(holder, reading.now))
    for job in reading.jobs:
        if job.id not in planned_jobs and job.state in OCCUPYING_STATES:
            minutes = remaining_minutes(job.time_limit_seconds, job.start, reading.now)
            for scope in scopes_of(rules, limit_subject(job)):
                usages[scope].add(
                    job.id, {**job.tres, ResourceKind.GPUS: job.allocation.gpus}, minutes
                )
        elif job.id in planned_jobs:
            for scope in scopes_of(rules, limit_subject(job)):
                usages[scope].planned_jobs.add(job.id)
    return usages


def _holder_resources(holder: Holder) -> dict[str, int]:
    return {**holder.tres, ResourceKind.GPUS: holder.gpus, ResourceKind.CPUS: holder.cpus}


def _minutes(holder: Holder, now: float) -> int:
    return remaining_minutes(holder.time_limit_seconds, holder.start, now)


class _Groups:
    """Jobs of a plan by the scopes they count towards, and what other jobs use there."""

    def __init__(self, reading: Reading, jobs: Sequence[Job]) -> None:
        self.planned_jobs = {job.id: job for job in jobs}
        self._read = {job.id: job for job in reading.jobs}
        self._reading = reading
        self._uses = usage_by_scope(reading, self.planned_jobs)
        self.rows: dict[LimitScope, _Row] = defaultdict(_Row)
        for job in self.planned_jobs:
            for bound in bounds(reading.site, limit_subject(self._read[job])):
                row = self.rows[bound.scope]
                row.bounds[bound.kind] = bound
                row.members[bound.kind].add(job)

    def scopes(self) -> list[LimitScope]:
        return sorted(self.rows, key=lambda scope: scope.name)

    def use(self, scope: LimitScope) -> Usage:
        return self._uses.get(scope, Usage())

    def adds(self, kind: str) -> bool:
        return is_summed(kind, self._reading.site)

    def exempt(self, scope: LimitScope, kind: str) -> set[JobId]:
        """Return planned jobs that count towards the limit without being subject to it."""
        return self.use(scope).planned_jobs - self.rows[scope].members[kind]

    def each_gpu(self, kind: str, jobs: Iterable[JobId]) -> dict[JobId, Fraction]:
        """Return the amount of ``kind`` per GPU, for those of ``jobs`` that use any."""
        site, now = self._reading.site, self._reading.now
        amounts = ((j, per_gpu(kind, self.planned_jobs[j], self._read[j], site, now)) for j in jobs)
        return {job: amount for job, amount in amounts if amount}

    def running_usage(self, kind: str, jobs: Iterable[JobId]) -> int:
        """Return the total that running jobs hold; 0 for a kind that Slurm does not sum."""
        if not self.adds(kind):
            return 0
        per_job = self.each_gpu(kind, jobs)
        return ceil(sum(n * self._read[job].allocation.gpus for job, n in per_job.items()))

    def running_exempt(self, scope: LimitScope, kind: str) -> list[JobId]:
        return sorted(j for j in self.exempt(scope, kind) if self._read[j].allocation)

    def available(self, scope: LimitScope, bound: SiteLimit) -> int:
        """Return what the limit leaves for the jobs subject to it, including the running ones."""
        use, exempt = self.use(scope), self.running_exempt(scope, bound.kind)
        if bound.kind == ResourceKind.JOBS:
            return max(0, bound.maximum - len(use.jobs) - len(exempt))
        exempt_usage = self.running_usage(bound.kind, exempt)
        return max(0, bound.maximum - bound.usage - use.amount[bound.kind] - exempt_usage)


def _limits(scope: LimitScope, groups: _Groups) -> Iterable[Limit]:
    row, use, planned_jobs = groups.rows[scope], groups.use(scope), groups.planned_jobs
    count, exempt_jobs = None, frozenset[JobId]()
    if ResourceKind.JOBS in row.bounds:
        exempt_jobs = frozenset(groups.exempt(scope, ResourceKind.JOBS))
        count = groups.available(scope, row.bounds[ResourceKind.JOBS])
        if count >= len(row.members[ResourceKind.JOBS]) + sum(
            not planned_jobs[job].running for job in exempt_jobs
        ):
            count = None
    for kind, bound in row.bounds.items():
        if not groups.adds(kind):
            continue
        amounts = groups.each_gpu(kind, row.members[kind])
        exempt = groups.each_gpu(kind, groups.exempt(scope, kind))
        available = groups.available(scope, bound)
        maxima = [amount * max(planned_jobs[job].reqs) for job, amount in amounts.items()]
        maxima += [amount * _additional_gpus(planned_jobs[job]) for job, amount in exempt.items()]
        if sum(maxima) <= available:
            continue
        scale = (
            1 if all(n.denominator == 1 for n in (*amounts.values(), *exempt.values())) else _SCALE
        )
        same_jobs = (
            amounts.keys() == row.members[ResourceKind.JOBS] and exempt.keys() == exempt_jobs
        )
        with_count = count if same_jobs else None
        if with_count is not None:
            count = None
        unbound = groups.running_exempt(scope, kind)
        yield Limit(
            _describe(
                scope,
                bound,
                use,
                with_count is not None and row.bounds[ResourceKind.JOBS].maximum,
                (groups.running_usage(kind, unbound), unbound),
            ),
            frozenset(amounts),
            gpus=available * scale,
            count=with_count,
            per_gpu={}
            if kind == ResourceKind.GPUS
            else _scaled_amounts({**amounts, **exempt}, scale),
            unit=str(kind),
            scale=scale,
            exempt=frozenset(exempt),
        )
    if count is not None:
        unbound = groups.running_exempt(scope, ResourceKind.JOBS)
        yield Limit(
            _describe(scope, row.bounds[ResourceKind.JOBS], use, unbound=(len(unbound), unbound)),
            frozenset(row.members[ResourceKind.JOBS]),
            count=count,
            exempt=exempt_jobs,
        )


def _additional_gpus(job: Job) -> int:
    """Return how many GPUs the job may get in addition to those that it has."""
    return max(0, max(job.reqs) - job.running.gpus)


def _scaled_amounts(amounts: Mapping[JobId, Fraction], scale: int) -> dict[JobId, int]:
    return {job: floor(amount * scale) for job, amount in amounts.items()}


def _describe(
    scope: LimitScope,
    bound: SiteLimit,
    use: Usage,
    jobs: int | bool = False,
    unbound: tuple[int, Sequence[JobId]] = (0, ()),
) -> str:
    """Return the limit's name, with other jobs' usage if there is any.

    ``unbound``: amount and ids of planned jobs that count without being subject to the limit.
    """
    usage_now = bound.usage + use.amount[bound.kind] + unbound[0]
    if bound.kind == ResourceKind.JOBS:
        usage_now = len(use.jobs) + unbound[0]
    if not usage_now and not (use.jobs and jobs):
        return scope.name
    limit = count_of(bound.maximum, bound.kind) + (f" and {count_of(jobs, 'jobs')}" if jobs else "")
    usage = [f"{bound.usage} used up"] if bound.usage else []
    if use.jobs:
        if bound.kind == ResourceKind.JOBS:
            usage.append(f"running outside hops: {_sample_of_ids(use.jobs)}")
        else:
            amount = count_of(use.amount[bound.kind], bound.kind)
            usage.append(f"{amount} in use outside hops by {_sample_of_ids(use.jobs)}")
    if unbound[0]:
        amount = count_of(unbound[0], bound.kind)
        usage.append(f"{amount} in use by {_sample_of_ids(unbound[1])}, to which it does not apply")
    return f"{scope.name} ({limit}, {', '.join(usage)})"


def _sample_of_ids(jobs: Sequence[JobId]) -> str:
    return ", ".join(jobs[:5]) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")
