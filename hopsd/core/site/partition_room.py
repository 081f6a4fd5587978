"""Which of a job's partitions have room for it within their limits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

from hopsd.core.site.amounts import per_gpu
from hopsd.core.site.applicable_limits import LimitScope, SiteLimit, bounds
from hopsd.core.site.limits import Usage, is_summed, limit_subject, usage_by_scope
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, Reading
from hopsd.model.reason import count_of
from hopsd.model.site import ResourceKind


class PartitionSelector:
    """Selects partitions whose limits fit a job and all running jobs except ``may_leave``."""

    def __init__(self, reading: Reading, may_leave: Collection[JobId] = ()) -> None:
        self._reading, self._may_leave = reading, may_leave

    def partitions(self, job: Job, job_reading: JobReading) -> tuple[str, str]:
        """Return the job's partitions whose limits fit its smallest count (all if none does).

        Also returns a note for its user about the others. If a limit of a partition is reached,
        Slurm tries the next one.
        """
        names = job_reading.partition.split(",")
        full = {
            name: bound for name in names if (bound := self._full_limit(job, job_reading, name))
        }
        usable = [name for name in names if name not in full]
        if not usable:
            first_limit = full[names[0]]  # the plan gives this reason itself
            full = {name: text for name, text in full.items() if text != first_limit}
        notes = [f"no room in partition {name}: {text}" for name, text in full.items()]
        return ",".join(usable or names), "; ".join(notes)

    def _full_limit(self, job: Job, job_reading: JobReading, name: str) -> str:
        rules = self._reading.site
        in_partition = replace(job_reading, partition=name)
        for bound in bounds(rules, limit_subject(in_partition)):
            usage = self._uses.get(bound.scope, Usage())
            usage_now = self._total_usage(bound, usage)
            amount = None
            if is_summed(bound.kind, rules):
                amount = per_gpu(bound.kind, job, in_partition, rules, self._reading.now)
            request = (
                int(bound.kind == ResourceKind.JOBS) if amount is None else amount * min(job.reqs)
            )
            if request and usage_now + request > bound.maximum:
                return (
                    f"{bound.scope.name}, {usage_now} of {count_of(bound.maximum, bound.kind)} used"
                )
        return ""

    @staticmethod
    def _total_usage(bound: SiteLimit, usage: Usage) -> int:
        if bound.kind == ResourceKind.JOBS:
            return len(usage.jobs)
        return bound.usage + usage.amount[bound.kind]

    @cached_property
    def _uses(self) -> dict[LimitScope, Usage]:
        return usage_by_scope(self._reading, self._may_leave)
