"""Reports trainings that hang: an event when one begins to hang, another when it resumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from hopsd.core.report.rank import Rank
from hopsd.health.hung import HungTraining, RankPlace, find_hung
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState
from hopsd.store.history import History

log = structlog.get_logger()


TIMES = 2.0
"""A job that resumed after a pause is reported again only if it hangs this many times as long."""

MAX_RANKS = 64
"""The most ranks per job in the status document; the ranks that others wait for come first."""


class HungJobs:
    """The jobs that hang, as of the last look, and since when."""

    def __init__(self, store: History) -> None:
        self._store = store
        self._since: dict[JobId, float] = {}
        self._usual: dict[JobId, float] = {}
        self._hung: Mapping[JobId, HungTraining] = {}

    def look(self, ranks: Iterable[Rank], jobs: Iterable[JobReading], now: float) -> None:
        """Judge the last reports of all ranks at ``now``; only changes become events."""
        running = {job.id for job in jobs if job.state is SlurmState.RUNNING}
        self._usual = {job: pause for job, pause in self._usual.items() if job in running}
        hung = {
            training.job: training
            for training in find_hung(ranks, now)
            if training.seconds >= TIMES * self._usual.get(training.job, 0.0)
        }
        for job, training in hung.items():
            if job not in self._since:
                self._since[job] = min(now, training.since)
                self._tell("hung", job, training.text)
        for job in self._since.keys() - hung.keys():
            if job in running:
                self._tell("hung_over", job, "shows signs of life again")
                self._usual[job] = now - self._since[job]
            del self._since[job]
        self._hung = hung

    @property
    def hung(self) -> Mapping[JobId, HungTraining]:
        """The trainings that hung at the last look."""
        return self._hung

    def rows(self) -> dict[JobId, dict[str, Any]]:
        """The hung jobs for the status document, by job."""
        return {
            job: {
                "since": self._since[job],
                "limit_seconds": training.limit,
                "text": training.text,
                "ranks": [
                    {
                        "rank": place.rank,
                        "node": place.node,
                        "pid": place.pid,
                        "state": place.state.value,
                        "line": place.line,
                        "waits_in": place.waits_in,
                        "stacks": place.stacks,
                    }
                    for place in _reported_ranks(training)
                ],
            }
            for job, training in self._hung.items()
        }

    def _tell(self, kind: str, job: JobId, text: str) -> None:
        log.warning(kind, job=job, reason=text)
        self._store.add_event(kind, text, job=job)


def _reported_ranks(training: HungTraining) -> list[RankPlace]:
    places = dict.fromkeys((*training.culprits, *training.ranks))
    return sorted([*places][:MAX_RANKS], key=lambda place: place.rank)
