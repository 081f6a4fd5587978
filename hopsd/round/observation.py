"""The cluster as one round sees it, with each job's comment and record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hopsd.core.submission.comment import Comment
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import Reading
from hopsd.model.reason import Reason
from hopsd.model.step import Transition

SET_ASIDE = "set aside"
"""How the reason begins of a job or node that no plan counts with, since it would break it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """``comments``: of the jobs hops plans for; ``errors``: why it plans without others.

    ``released`` jobs were given back to plain Slurm: their GPUs count as taken, that is all.
    ``under_way``: steps of earlier plans that are not over yet.
    """

    reading: Reading
    comments: Mapping[JobId, Comment]
    errors: Mapping[JobId, Reason]
    records: Mapping[JobId, JobRecord]
    released: frozenset[JobId]
    under_way: tuple[Transition, ...] = ()

    def carrying_on(
        self, transitions: Sequence[Transition], why: Mapping[JobId, Reason]
    ) -> Observation:
        """The same with the steps under way: no plan is made for their jobs, as ``why`` says."""
        if not transitions:
            return self
        return replace(self.without(why), under_way=tuple(transitions))

    def only(self, jobs: Iterable[JobId]) -> Observation:
        """The same, but planned for no jobs other than ``jobs``."""
        return replace(self, comments={job: self.comments[job] for job in jobs})

    def avoiding(self, avoided: Mapping[JobId, frozenset[NodeName]]) -> Observation:
        """The same, but no plan puts the jobs of ``avoided`` on these nodes."""
        if not avoided:
            return self
        jobs = tuple(
            replace(
                job,
                excluded=job.excluded | avoided[job.id],
                avoids=job.avoids | avoided[job.id],
            )
            if job.id in avoided
            else job
            for job in self.reading.jobs
        )
        return replace(self, reading=replace(self.reading, jobs=jobs))

    def without(self, aside: Mapping[JobId, Reason]) -> Observation:
        """The same, but no plan is made for the jobs of ``aside``."""
        comments = {job: c for job, c in self.comments.items() if job not in aside}
        reasons = {job: reason for job, reason in aside.items() if job in self.comments}
        return replace(self, comments=comments, errors={**self.errors, **reasons})
