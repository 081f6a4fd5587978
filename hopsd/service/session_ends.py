"""Warns and ends sessions by the site's rules; Slurm is asked in a thread, outside the tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import structlog

from hopsd.core.interactive.ending import Endings, Notice
from hopsd.core.interactive.settings import EndingSettings
from hopsd.errors import SlurmError
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading
from hopsd.service.background import in_thread
from hopsd.slurm.command import Runner
from hopsd.store.history import History

log = structlog.get_logger()


class SessionEnds:
    """The sessions that were warned, as of the last look."""

    def __init__(
        self,
        store: History,
        commands: Runner,
        begin: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        self._store, self._commands, self._begin = store, commands, begin
        self._endings = Endings()

    def look(
        self,
        jobs: Iterable[JobReading],
        idle_seconds: Mapping[JobId, float],
        now: float,
        settings: EndingSettings,
    ) -> None:
        """Warn sessions whose time is over, and end those that were warned long enough ago."""
        notices = self._endings.notices(jobs, idle_seconds, now, settings)
        if notices:
            self._begin(lambda: self._carry_out(notices))

    def _carry_out(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            job = notice.job
            number = str(job.number or job.id)
            try:
                self._commands.run("scontrol", "notify", number, notice.text)
            except SlurmError as error:  # a batch job without a terminal; its user reads the event
                log.info("session notice", job=job.id, problem=str(error))
            try:
                if notice.ends:
                    self._commands.run("scancel", number)
            except SlurmError as error:  # tried again at the next look
                log.warning("session end", job=job.id, problem=str(error))
                continue
            kind = "session_ended" if notice.ends else "session_warned"
            log.info(kind, job=job.id, did=notice.text)
            self._store.add_event(kind, notice.text, job=job.id)
