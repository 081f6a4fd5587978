"""Predicts when a job would start if it were submitted now: `hopsctl when`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from hopsd.core.submission.comment import parse
from hopsd.errors import InputError, RefusedError
from hopsd.model.ids import UserName
from hopsd.model.rules import Rules, ShapeRule
from hopsd.predict.hypothetical import JobRequest

Document = dict[str, Any]

MAX_WAYS = 6
"""How many alternatives are tried, the whole set of GPU counts included."""

MAX_LIMIT = 366 * 86400.0


class StartSource(Protocol):
    """Predicts starts, as `hopsd.predict.outlook.Outlook` does."""

    @property
    def document(self) -> Document | None:
        """The document about the newest predictions; None if there are none yet."""

    def predict_start(self, request: JobRequest) -> Document | None:
        """Predict when such a job would start; None if unknown."""


def when(source: StartSource, user: UserName, arguments: Mapping[str, Any]) -> Document:
    """Predict the start of a job with the ``comment`` and ``time_limit_seconds`` of ``arguments``,
    with all its GPU counts and with each of them alone. A session (``interactive``) is predicted
    like a batch job, though it starts before others, usually sooner.

    Raises:
        InputError: the comment or the limit is invalid.
        RefusedError: there are no predictions yet.
    """
    comment = parse(str(arguments.get("comment", "")))
    limit = arguments.get("time_limit_seconds")
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if limit is not None and not (number and 0.0 < limit <= MAX_LIMIT):
        raise InputError("time_limit_seconds: give seconds above 0, up to a year")
    set_info = source.document
    if set_info is None:
        raise RefusedError(
            "nothing is predicted yet: hopsd predicts after its first round, and not while it is"
            " paused, on standby or a shadow"
        )
    ways = [comment.reqs]
    if len(comment.reqs) > 1:
        ways += [(count,) for count in comment.reqs[: MAX_WAYS - 1]]
    rules = Rules(
        shape=comment.shape or ShapeRule.ANY, per_node=comment.per_node, segment=comment.segment
    )
    request = JobRequest(
        user, comment.reqs, comment.samples, limit, comment.workload, comment.preempt, rules
    )
    starts = [
        {"reqs": list(reqs), "predicted": source.predict_start(replace(request, reqs=reqs))}
        for reqs in ways
    ]
    return {
        "at": set_info["at"],
        "arrivals_per_hour": set_info["arrivals_per_hour"],
        "arrivals_by_hour": set_info["arrivals_by_hour"],
        "session": comment.interactive,
        "ways": starts,
    }
