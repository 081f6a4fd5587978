"""A site's bounds as rows of the plan: what each group of jobs may have in total."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

from hopsd.core.queue.history import OCCUPYING
from hopsd.core.site.amounts import minutes_left, per_gpu
from hopsd.core.site.bounds import Bound, Counted, Place, bounds, counted_at
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, Reading
from hopsd.model.reason import count_of
from hopsd.model.rules import Limit
from hopsd.model.site import Holder, Kind, SiteRules

_SCALE = 1000
"""Rows hold whole numbers: thousandths where jobs take fractions."""

_RUNNING = {
    Kind.GPU_MINUTES: Kind.GPUS,
    Kind.RUNNING_GPU_MINUTES: Kind.GPUS,
    Kind.CPU_MINUTES: Kind.CPUS,
    Kind.RUNNING_CPU_MINUTES: Kind.CPUS,
}
"""Kinds that are counted for the rest of a running job's time limit."""

_NOT_ADDED = (Kind.JOBS, Kind.NODES, Kind.WALL_MINUTES)
_USED_UP = (Kind.GPU_MINUTES, Kind.CPU_MINUTES)


def is_added(kind: str, rules: SiteRules) -> bool:
    """Whether what jobs take of a bound is added up, so that Slurm starts none beyond it."""
    return kind not in _NOT_ADDED and (kind not in _USED_UP or rules.safe)


def place_of(job: JobReading, partition: str | None = None) -> Place:
    """Where a job counts in its partition: ``partition``, or by default its first."""
    asked = job.partition.split(",")[0] if partition is None else partition
    return Place(job.user, job.account, job.qos, asked)


@dataclass(slots=True)
class _Row:
    bounds: dict[str, Bound] = field(default_factory=dict)
    members: dict[str, set[JobId]] = field(default_factory=lambda: defaultdict(set))


@dataclass(slots=True)
class Use:
    """What jobs outside the plan hold already, by kind; ``by`` names them.

    ``planned``: jobs of the plan, which count once they run, also where the bound is not theirs,
    since one of their QOS comes before it.
    """

    amount: Counter[str] = field(default_factory=Counter)
    by: list[JobId] = field(default_factory=list)
    planned: set[JobId] = field(default_factory=set)

    def add(self, job: JobId, tres: Mapping[str, int], minutes: int) -> None:
        self.by.append(job)
        self.amount.update(tres)
        for kind, of in _RUNNING.items():
            self.amount[kind] += tres.get(of, 0) * minutes


def limit_rows(reading: Reading, jobs: Sequence[Job]) -> tuple[Limit, ...]:
    """Rows that could restrict ``jobs``, and no others.

    Other jobs' usage is subtracted from each bound. Node limits of a group are left out: Slurm
    counts a node that two jobs share only once, so that sum depends on the plan itself.
    """
    if not reading.site.limited:
        return licence_rows(reading, jobs)
    groups = _Groups(reading, jobs)
    rows = [limit for counted in groups.counted() for limit in _limits(counted, groups)]
    return (*rows, *licence_rows(reading, jobs))


def over_limits(reading: Reading, jobs: Sequence[Job]) -> frozenset[JobId]:
    """The running ``jobs`` of groups that would be within a bound, had no other job used it up.

    Slurm stops none of them, and starts none of them again before the others end.
    """
    if not reading.site.limited:
        return frozenset()
    groups = _Groups(reading, jobs)
    found: set[JobId] = set()
    for counted in groups.counted():
        row = groups.rows[counted]
        for kind, bound in row.bounds.items():
            running = {job for job in row.members[kind] if groups.planned[job].running}
            held = len(running) if kind == Kind.JOBS else groups.held(kind, running)
            if groups.left(counted, bound) < held <= bound.most - bound.used:
                found |= running
    return frozenset(found)


def licence_rows(reading: Reading, jobs: Sequence[Job]) -> tuple[Limit, ...]:
    """A row per licence that jobs request: as many jobs as if each took the largest request."""
    read = {job.id: job for job in reading.jobs}
    rows = []
    for name, licence in sorted(reading.licences.items()):
        asking = {job.id: n for job in jobs if (n := read[job.id].licences.get(name, 0))}
        own = sum(asking[job.id] for job in jobs if job.running and job.id in asking)
        left = licence.total - max(0, licence.used - own)
        if sum(asking.values()) > left:
            count = max(0, left) // max(asking.values())
            taken = licence.total - left
            text = f"licence {name} ({licence.total}, {taken} of them used outside hops)"
            rows.append(Limit(text, frozenset(asking), count=count))
    return tuple(rows)


def uses_of(reading: Reading, planned: Container[JobId]) -> dict[Counted, Use]:
    """Usage by plain jobs, and by hops jobs that are not in the plan."""
    uses: dict[Counted, Use] = defaultdict(Use)
    rules = reading.site
    for other in reading.others:
        place = Place(other.user, other.account, other.qos, other.partition)
        for counted in counted_at(rules, place):
            uses[counted].add(other.id, _held(other), _minutes(other, reading.now))
    for job in reading.jobs:
        if job.id not in planned and job.state in OCCUPYING:
            minutes = minutes_left(job.time_limit_seconds, job.start, reading.now)
            for counted in counted_at(rules, place_of(job)):
                uses[counted].add(job.id, {**job.tres, Kind.GPUS: job.allocation.gpus}, minutes)
        elif job.id in planned:
            for counted in counted_at(rules, place_of(job)):
                uses[counted].planned.add(job.id)
    return uses


def _held(other: Holder) -> dict[str, int]:
    return {**other.tres, Kind.GPUS: other.gpus, Kind.CPUS: other.cpus}


def _minutes(other: Holder, now: float) -> int:
    return minutes_left(other.time_limit_seconds, other.start, now)


class _Groups:
    """Jobs of a plan by what counts them together, and what others use there."""

    def __init__(self, reading: Reading, jobs: Sequence[Job]) -> None:
        self.planned = {job.id: job for job in jobs}
        self._read = {job.id: job for job in reading.jobs}
        self._reading = reading
        self._uses = uses_of(reading, self.planned)
        self.rows: dict[Counted, _Row] = defaultdict(_Row)
        for job in self.planned:
            for bound in bounds(reading.site, place_of(self._read[job])):
                row = self.rows[bound.counted]
                row.bounds[bound.kind] = bound
                row.members[bound.kind].add(job)

    def counted(self) -> list[Counted]:
        return sorted(self.rows, key=lambda counted: counted.name)

    def use(self, counted: Counted) -> Use:
        return self._uses.get(counted, Use())

    def adds(self, kind: str) -> bool:
        return is_added(kind, self._reading.site)

    def exempt(self, counted: Counted, kind: str) -> set[JobId]:
        """Jobs that count, without being bound."""
        return self.use(counted).planned - self.rows[counted].members[kind]

    def each_gpu(self, kind: str, jobs: Iterable[JobId]) -> dict[JobId, Fraction]:
        """What each GPU of ``jobs`` takes, of those that take anything."""
        site, now = self._reading.site, self._reading.now
        found = ((j, per_gpu(kind, self.planned[j], self._read[j], site, now)) for j in jobs)
        return {job: taken for job, taken in found if taken}

    def held(self, kind: str, jobs: Iterable[JobId]) -> int:
        """What running jobs hold together; 0 of a kind that is not added up."""
        if not self.adds(kind):
            return 0
        each = self.each_gpu(kind, jobs)
        return ceil(sum(n * self._read[job].allocation.gpus for job, n in each.items()))

    def running_exempt(self, counted: Counted, kind: str) -> list[JobId]:
        return sorted(j for j in self.exempt(counted, kind) if self._read[j].allocation)

    def left(self, counted: Counted, bound: Bound) -> int:
        """What the bound leaves for its own jobs, the running ones included."""
        use, exempt = self.use(counted), self.running_exempt(counted, bound.kind)
        if bound.kind == Kind.JOBS:
            return max(0, bound.most - len(use.by) - len(exempt))
        beside = self.held(bound.kind, exempt)
        return max(0, bound.most - bound.used - use.amount[bound.kind] - beside)


def _limits(counted: Counted, groups: _Groups) -> Iterable[Limit]:
    row, use, planned = groups.rows[counted], groups.use(counted), groups.planned
    count, others = None, frozenset[JobId]()
    if Kind.JOBS in row.bounds:
        others = frozenset(groups.exempt(counted, Kind.JOBS))
        count = groups.left(counted, row.bounds[Kind.JOBS])
        if count >= len(row.members[Kind.JOBS]) + sum(not planned[job].running for job in others):
            count = None
    for kind, bound in row.bounds.items():
        if not groups.adds(kind):
            continue
        each = groups.each_gpu(kind, row.members[kind])
        exempt = groups.each_gpu(kind, groups.exempt(counted, kind))
        left = groups.left(counted, bound)
        most = [taken * max(planned[job].reqs) for job, taken in each.items()]
        most += [taken * _more(planned[job]) for job, taken in exempt.items()]
        if sum(most) <= left:
            continue
        scale = 1 if all(n.denominator == 1 for n in (*each.values(), *exempt.values())) else _SCALE
        same = each.keys() == row.members[Kind.JOBS] and exempt.keys() == others
        with_count = count if same else None
        if with_count is not None:
            count = None
        beside = groups.running_exempt(counted, kind)
        yield Limit(
            _described(
                counted,
                bound,
                use,
                with_count is not None and row.bounds[Kind.JOBS].most,
                (groups.held(kind, beside), beside),
            ),
            frozenset(each),
            gpus=left * scale,
            count=with_count,
            per_gpu={} if kind == Kind.GPUS else _scaled({**each, **exempt}, scale),
            unit=str(kind),
            scale=scale,
            exempt=frozenset(exempt),
        )
    if count is not None:
        beside = groups.running_exempt(counted, Kind.JOBS)
        yield Limit(
            _described(counted, row.bounds[Kind.JOBS], use, beside=(len(beside), beside)),
            frozenset(row.members[Kind.JOBS]),
            count=count,
            exempt=others,
        )


def _more(job: Job) -> int:
    """GPUs that the job may get beside those that it has."""
    return max(0, max(job.reqs) - job.running.gpus)


def _scaled(each: Mapping[JobId, Fraction], scale: int) -> dict[JobId, int]:
    return {job: floor(taken * scale) for job, taken in each.items()}


def _described(
    counted: Counted,
    bound: Bound,
    use: Use,
    jobs: int | bool = False,
    beside: tuple[int, Sequence[JobId]] = (0, ()),
) -> str:
    """The bound's name, with other jobs' usage if there is any.

    ``beside``: what jobs of the plan use that the bound does not hold for.
    """
    used = bound.used + use.amount[bound.kind] + beside[0]
    if bound.kind == Kind.JOBS:
        used = len(use.by) + beside[0]
    if not used and not (use.by and jobs):
        return counted.name
    of = count_of(bound.most, bound.kind) + (f" and {count_of(jobs, 'jobs')}" if jobs else "")
    usage = [f"{bound.used} used up"] if bound.used else []
    if use.by:
        if bound.kind == Kind.JOBS:
            usage.append(f"running outside hops: {_some(use.by)}")
        else:
            taken = count_of(use.amount[bound.kind], bound.kind)
            usage.append(f"{taken} in use outside hops by {_some(use.by)}")
    if beside[0]:
        taken = count_of(beside[0], bound.kind)
        usage.append(f"{taken} in use by {_some(beside[1])}, for which it does not hold")
    return f"{counted.name} ({of}, {', '.join(usage)})"


def _some(jobs: Sequence[JobId]) -> str:
    return ", ".join(jobs[:5]) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")
