"""Ends sessions by the site's rules, after a warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hopsd.core.interactive.sessions import is_session
from hopsd.core.interactive.settings import EndingSettings
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.reason import clock


@dataclass(frozen=True, slots=True)
class Notice:
    """What to do with a session now: warn it or, if ``ends``, end it; ``text`` says why."""

    job: JobReading
    ends: bool
    text: str


@dataclass(slots=True)
class Endings:
    """The sessions that were warned, and when. After a restart, hopsd warns them again."""

    _warning_times: dict[tuple[JobId, float], float] = field(default_factory=dict)

    def notices(
        self,
        jobs: Iterable[JobReading],
        idle_seconds: Mapping[JobId, float],
        now: float,
        settings: EndingSettings,
    ) -> list[Notice]:
        """Return the notices that are due; ``idle_seconds``: of jobs that use no processor time."""
        notices, warning_times = [], {}
        for job in jobs:
            if job.state is not SlurmState.RUNNING or not is_session(job.comment):
                continue
            reason = _end_reason(job, idle_seconds.get(job.id, 0.0), now, settings)
            if reason is None:
                continue
            key = job.id, job.start
            since = self._warning_times.get(key)
            warning_times[key] = now if since is None else since
            if since is None:
                text = (
                    f"hops ends this session at {clock(now + settings.warning_seconds)}: {reason}"
                )
                notices.append(Notice(job, ends=False, text=text))
            elif now - since >= settings.warning_seconds:
                notices.append(Notice(job, ends=True, text=f"hops ended the session: {reason}"))
        self._warning_times = warning_times
        return notices


def _end_reason(job: JobReading, idle: float, now: float, settings: EndingSettings) -> str | None:
    """Return why the session is to end; None if it may continue."""
    if settings.idle_seconds and idle >= settings.idle_seconds:
        return (
            f"it has used no processor time for {idle / 60:.0f} min, and the site ends sessions"
            f" after {settings.idle_seconds / 60:g} min"
        )
    if settings.seconds and now - job.start >= settings.seconds - settings.warning_seconds:
        return f"the site ends sessions after {settings.seconds / 3600:g} h"
    return None
