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
"""Starts the reason of a job or node that is left out of all plans, since it would break them."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The cluster as a round sees it.

    ``comments``: those of the jobs that hops plans; ``errors``: why it does not plan other jobs.
    ``released``: jobs that were given back to plain Slurm; their GPUs only count as taken.
    ``under_way``: steps of earlier plans that have not finished yet.
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
        """Return a copy with the steps under way; their jobs are not planned, for ``reasons``."""
        if not transitions:
            return self
        return replace(self.exclude(reasons), under_way=tuple(transitions))

    def only(self, jobs: Iterable[JobId]) -> Observation:
        """Return a copy in which only ``jobs`` are planned."""
        return replace(self, comments={job: self.comments[job] for job in jobs})

    def avoiding(self, nodes_by_job: Mapping[JobId, frozenset[NodeName]]) -> Observation:
        """Return a copy in which no plan puts a job on its ``nodes_by_job``."""
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
        """Return a copy in which the jobs in ``asides`` are not planned."""
        comments = {job: c for job, c in self.comments.items() if job not in asides}
        reasons = {job: reason for job, reason in asides.items() if job in self.comments}
        return replace(self, comments=comments, errors={**self.errors, **reasons})
