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
        self, transitions: Sequence[Transition], reasons: Mapping[JobId, Reason]
    ) -> Observation:
        """A copy with the steps under way; their jobs are not planned, for these ``reasons``."""
        if not transitions:
            return self
        return replace(self.exclude(reasons), under_way=tuple(transitions))

    def only(self, jobs: Iterable[JobId]) -> Observation:
        """The same, but planned for no jobs other than ``jobs``."""
        return replace(self, comments={job: self.comments[job] for job in jobs})

    def avoiding(self, nodes_by_job: Mapping[JobId, frozenset[NodeName]]) -> Observation:
        """The same, but no plan puts a job on its ``nodes_by_job``."""
        if not nodes_by_job:
            return self
        jobs = tuple(
            replace(
                job,
                excluded_nodes=job.excluded_nodes | nodes_by_job[job.id],
                avoids=job.avoids | nodes_by_job[job.id],
            )
            if job.id in nodes_by_job
            else job
            for job in self.reading.jobs
        )
        return replace(self, reading=replace(self.reading, jobs=jobs))

    def exclude(self, asides: Mapping[JobId, Reason]) -> Observation:
        """The same, but no plan is made for the jobs in ``asides``."""
        comments = {job: c for job, c in self.comments.items() if job not in asides}
        reasons = {job: reason for job, reason in asides.items() if job in self.comments}
        return replace(self, comments=comments, errors={**self.errors, **reasons})
