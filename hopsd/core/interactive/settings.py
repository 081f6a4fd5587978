"""Settings of interactive sessions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Limits on sessions.

    ``reserve``: GPUs that, besides sessions, only jobs that leave quickly may hold. ``user_gpus``:
    the maximum number of GPUs of one user's sessions; ``share``: the maximum share of the cluster's
    GPUs for all sessions (at least one GPU).
    """

    reserve: int = 0
    user_gpus: int = 4
    share: float = 0.25


@dataclass(frozen=True, slots=True)
class EndingSettings:
    """When sessions end.

    A session ends after ``idle_seconds`` without processor time, or after ``seconds`` in all (0:
    never), and ``warning_seconds`` after it was warned.
    """

    idle_seconds: float = 0.0
    seconds: float = 0.0
    warning_seconds: float = 300.0
