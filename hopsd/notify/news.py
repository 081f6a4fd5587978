"""Finds news by comparing the status documents of two ticks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState
from hopsd.model.reason import count_of, duration

Document = dict[str, Any]

DONE, FAILED, FEWER, STUCK = KINDS = ("done", "failed", "fewer", "stuck")
STUCK_CODES = ("no_configuration", "error", "limit")
"""Reasons that may last forever."""
_FAILURES = frozenset({SlurmState.FAILED, SlurmState.TIMEOUT, SlurmState.NODE_FAIL})


@dataclass(frozen=True, slots=True)
class News:
    """A sentence about a job; ``kind`` is one of :data:`KINDS`."""

    kind: str
    job: str
    user: str
    text: str

    @property
    def job_id(self) -> JobId:
        return JobId(self.job)


def one_line(text: str) -> str:
    """Replace line breaks and control characters by spaces."""
    return "".join(c if c.isprintable() else " " for c in text)


class Comparison:
    """Remembers the state of jobs at the last tick. The first tick reports nothing, since hopsd may
    have started a second ago.
    """

    def __init__(
        self,
        ended_jobs: Callable[[Collection[JobId]], Mapping[JobId, JobRecord]],
        stuck_seconds: float,
    ) -> None:
        """``ended_jobs`` returns records of jobs by id, as `History.newest_jobs` does."""
        self._ended_jobs = ended_jobs
        self._stuck_seconds = stuck_seconds
        self._gpus: dict[str, int] | None = None
        self._told_stuck: set[str] = set()

    def look(self, doc: Document) -> list[News]:
        """Return the news in ``doc``; none if the tick failed or decided nothing."""
        if doc["mode"] != "active" or doc["error"]:
            return []
        rows = {row["id"]: row for row in (*doc["running"], *doc["waiting"])}
        gpus = {job: sum(row["placement"].values()) for job, row in rows.items()}
        previous, first = self._gpus or {}, self._gpus is None
        news = [*self._news_of_ends(previous.keys() - rows.keys()), *_fewer(rows, gpus, previous)]
        stuck = {job: row for job, row in rows.items() if self._is_stuck(row)}
        news += [_stuck(row) for job, row in stuck.items() if job not in self._told_stuck]
        self._told_stuck = set(stuck)
        # A job that waits to continue keeps its last number of GPUs.
        self._gpus = {job: count or previous.get(job, 0) for job, count in gpus.items()}
        return [] if first else news

    def _news_of_ends(self, jobs: Collection[str]) -> Iterator[News]:
        if not jobs:
            return
        for job, record in self._ended_jobs([JobId(name) for name in sorted(jobs)]).items():
            kind = FAILED if record.state in _FAILURES else DONE
            if record.end is None or record.state not in (*_FAILURES, SlurmState.COMPLETED):
                continue  # its user or an operator cancelled it, and knows
            verb = "is done" if kind == DONE else f"failed ({record.state.value})"
            ran, wait_text = duration(record.run_seconds), duration(record.wait_seconds)
            text = f"{record.name} {verb}: it ran {ran} and waited {wait_text}"
            yield News(kind, job, record.user, text)

    def _is_stuck(self, row: Document) -> bool:
        return row["code"] in STUCK_CODES and row["wait_seconds"] >= self._stuck_seconds


def _fewer(
    rows: Mapping[str, Document], gpus: Mapping[str, int], previous: Mapping[str, int]
) -> Iterator[News]:
    for job, row in rows.items():
        if 0 < gpus[job] < previous.get(job, 0) and not row["profiling"]:
            nodes = " ".join(f"{node}:{count}" for node, count in row["placement"].items())
            text = f"{row['name']} runs on {count_of(gpus[job], 'GPUs')}, {previous[job]} before"
            yield News(FEWER, job, row["user"], f"{text} ({nodes})")


def _stuck(row: Document) -> News:
    wait_text = duration(row["wait_seconds"])
    text = f"{row['name']} has waited {wait_text}: {row['reason']}"
    return News(STUCK, row["id"], row["user"], text)
