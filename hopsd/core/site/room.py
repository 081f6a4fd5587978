"""Which of a job's partitions have room for it within their limits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

from hopsd.core.site.amounts import per_gpu
from hopsd.core.site.bounds import Bound, Counted, bounds
from hopsd.core.site.limits import Use, is_added, place_of, uses_of
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, Reading
from hopsd.model.reason import count_of
from hopsd.model.site import Kind


class Room:
    """What the bounds of a reading leave beside all running jobs but those that ``may_leave``."""

    def __init__(self, reading: Reading, may_leave: Collection[JobId] = ()) -> None:
        self._reading, self._may_leave = reading, may_leave

    def partitions(self, job: Job, read: JobReading) -> tuple[str, str]:
        """Those of the job's partitions whose bounds leave its smallest count, and what to tell of
        the others; all of them where none does.

        Slurm goes on to the next partition where a limit of one is reached.
        """
        names = read.partition.split(",")
        full = {name: bound for name in names if (bound := self._reached(job, read, name))}
        left = [name for name in names if name not in full]
        if not left:
            named = full[names[0]]  # by the plan's own reason
            full = {name: text for name, text in full.items() if text != named}
        told = [f"no room in partition {name}: {text}" for name, text in full.items()]
        return ",".join(left or names), "; ".join(told)

    def _reached(self, job: Job, read: JobReading, name: str) -> str:
        rules = self._reading.site
        there = replace(read, partition=name)
        for bound in bounds(rules, place_of(there)):
            use = self._uses.get(bound.counted, Use())
            used = self._used(bound, use)
            each = None
            if is_added(bound.kind, rules):
                each = per_gpu(bound.kind, job, there, rules, self._reading.now)
            asked = int(bound.kind == Kind.JOBS) if each is None else each * min(job.reqs)
            if asked and used + asked > bound.most:
                return f"{bound.counted.name}, {used} of {count_of(bound.most, bound.kind)} used"
        return ""

    @staticmethod
    def _used(bound: Bound, use: Use) -> int:
        if bound.kind == Kind.JOBS:
            return len(use.by)
        return bound.used + use.amount[bound.kind]

    @cached_property
    def _uses(self) -> dict[Counted, Use]:
        return uses_of(self._reading, self._may_leave)
