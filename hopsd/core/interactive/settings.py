"""Settings of interactive sessions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """``reserve``: GPUs that only jobs which leave quickly may hold beside the sessions.
    ``user_gpus``: the most GPUs that one user's sessions hold; ``share``: of the cluster's GPUs,
    the most that all sessions hold (one GPU at least).
    """

    reserve: int = 0
    user_gpus: int = 4
    share: float = 0.25


@dataclass(frozen=True, slots=True)
class EndingSettings:
    """A session ends after ``idle_seconds`` without processor time, or after ``seconds`` in all (0:
    never), ``warning_seconds`` after it was warned.
    """

    idle_seconds: float = 0.0
    seconds: float = 0.0
    warning_seconds: float = 300.0
