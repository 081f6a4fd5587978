"""QueryService about jobs' speeds, remembered from one plan to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hopsd.model.job import Job

Answer = TypeVar("Answer")


class Remembered:
    """Answers that depend on a job's throughput tables, and on what all its users have in common.

    Jobs with the same tables share them. The operator's tables are the same at every plan;
    estimates from measurements are made anew, since the measurements' weights fall with time. So
    what the plan ``before`` did not ask for is dropped.
    """

    def __init__(self, before: Remembered | None = None) -> None:
        # With the tables, so that their id is nobody else's.
        self._known: dict[object, tuple[object, Any]] = {}
        self._before = before._known if before is not None else {}

    def of(self, job: Job, about: object, work: Callable[[], Answer]) -> Answer:
        """The answer ``about`` the job's tables; ``work`` finds it if nobody asked before."""
        key = id(job.throughput), about
        found = self._known.get(key)
        if found is None:
            found = self._before.get(key) or (job.throughput, work())
            self._known[key] = found
        answer: Answer = found[1]
        return answer
