"""A site's bounds as rows of the plan: what each group of jobs may have in total."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor

from hopsd.core.queue.history import OCCUPYING
from hopsd.core.site.bounds import Bound, Counted, Place, bounds, counted_at
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, Reading
from hopsd.model.rules import Limit
from hopsd.model.site import Kind


def place_of(job: JobReading, partition: str | None = None) -> Place:
    """Where a job counts in its partition: ``partition``, or by default the first it asked for."""
    asked = job.partition.split(",")[0] if partition is None else partition
    return Place(job.user, job.account, job.qos, asked)


@dataclass(slots=True)
class _Row:
    bounds: dict[Kind, Bound] = field(default_factory=dict)
    members: dict[Kind, set[JobId]] = field(default_factory=lambda: defaultdict(set))


@dataclass(slots=True)
class _Use:
    """What jobs that no row has hold already; ``by`` names them."""

    gpus: int = 0
    cpus: int = 0
    by: list[JobId] = field(default_factory=list)


def limit_rows(reading: Reading, jobs: Sequence[Job]) -> tuple[Limit, ...]:
    """Rows that could restrict ``jobs``, and no others.

    What other jobs use is taken off each bound. Bounds on CPUs count as so many GPUs as these
    CPUs are enough for, with the most that a job of the row takes for each. Nodes are not counted:
    Slurm counts one node of two jobs once, or twice, by its release.
    """
    rules = reading.site
    if not rules.limited:
        return ()
    planned = {job.id: job for job in jobs}
    found: dict[Counted, _Row] = defaultdict(_Row)
    for job in reading.jobs:
        if job.id in planned:
            for bound in bounds(rules, place_of(job)):
                row = found[bound.counted]
                row.bounds[bound.kind] = bound
                row.members[bound.kind].add(job.id)
    uses = _uses(reading, planned)
    return tuple(
        limit
        for counted, row in sorted(found.items(), key=lambda item: item[0].name)
        for limit in _limits(counted, row, uses.get(counted, _Use()), planned)
    )


def _uses(reading: Reading, planned: Mapping[JobId, Job]) -> dict[Counted, _Use]:
    """Of plain jobs, and of our own that no plan is made for."""
    uses: dict[Counted, _Use] = defaultdict(_Use)
    rules = reading.site
    for other in reading.others:
        place = Place(other.user, other.account, other.qos, other.partition)
        for counted in counted_at(rules, place):
            _add(uses[counted], other.id, other.gpus, other.cpus)
    for job in reading.jobs:
        if job.id not in planned and job.state in OCCUPYING:
            for counted in counted_at(rules, place_of(job)):
                _add(uses[counted], job.id, job.allocation.gpus, 0)
    return uses


def _add(use: _Use, job: JobId, gpus: int, cpus: int) -> None:
    use.gpus += gpus
    use.cpus += cpus
    use.by.append(job)


def _limits(
    counted: Counted, row: _Row, use: _Use, planned: Mapping[JobId, Job]
) -> Iterable[Limit]:
    for members in {frozenset(ids) for ids in row.members.values()}:
        kinds = {kind for kind in row.bounds if row.members[kind] == members}
        jobs = [planned[job] for job in members]
        gpus, total = _gpus(row, kinds, use, jobs)
        count = None
        if Kind.JOBS in kinds:
            count = max(0, row.bounds[Kind.JOBS].most - len(use.by))
        if gpus is not None and gpus >= sum(max(job.reqs) for job in jobs):
            gpus = None
        if count is not None and count >= len(jobs):
            count = None
        if gpus is not None or count is not None:
            yield Limit(_told(counted, use, total, row), members, gpus=gpus, count=count)


def _gpus(row: _Row, kinds: set[Kind], use: _Use, jobs: Sequence[Job]) -> tuple[int | None, str]:
    """GPUs that are left for the row's jobs, and what the site says."""
    left, told = None, ""
    if Kind.GPUS in kinds:
        most = row.bounds[Kind.GPUS].most
        left, told = max(0, most - use.gpus), f"{most} GPUs"
    if Kind.CPUS in kinds:
        most = row.bounds[Kind.CPUS].most
        each = max((job.rules.cores_per_gpu for job in jobs), default=0.0) or 1.0
        by_cpus = floor(max(0, most - use.cpus) / each)
        if left is None or by_cpus < left:
            left, told = by_cpus, f"{most} CPUs, {each:g} for each GPU"
    return left, told


def _told(counted: Counted, use: _Use, total: str, row: _Row) -> str:
    """The bound's name, with what others use of it where that makes a difference."""
    if not use.by:
        return f"{counted.name} ({total})" if "CPUs" in total else counted.name
    jobs = f"{row.bounds[Kind.JOBS].most} jobs" if Kind.JOBS in row.bounds else ""
    of = " and ".join(filter(None, [total, jobs]))
    by = ", ".join(use.by[:5]) + (f" and {len(use.by) - 5} more" if len(use.by) > 5 else "")
    return f"{counted.name} ({of}, of which {by} beside hops has {use.gpus} GPUs)"
