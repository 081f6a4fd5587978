"""Writes and sends mails in a separate thread: to users about jobs, to admins about the day."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog

from hopsd.config import NotifyConfig
from hopsd.errors import HopsError
from hopsd.model.ids import UserName
from hopsd.model.journal import HOUR
from hopsd.notify.letters import digest, paragraph
from hopsd.notify.mail import Mail, MailBudget, MailError, deliver
from hopsd.notify.news import News
from hopsd.notify.recipients import MailWish, address_of
from hopsd.store.history import DAY_SECONDS, History

Document = Mapping[str, Any]

MAX_WAITING = 1000
"""The most ticks that wait while mails cannot be sent; later ones are dropped, which is logged."""
MAX_WHOLE = 8
"""The most ticks that wait with their whole status document, which has 30 MB on a large site. Of
later ones only the time is kept."""
MAX_ENDED = 100_000
"""The most jobs of a day in a digest."""

log = structlog.get_logger()


class Postman:
    """Sends mails in the background. ``wish_of`` returns what a job's user asked Slurm for, as
    `read_mail_wish` does; ``domain`` returns slurm.conf's MailDomain. ``send`` replaces the
    configured way of delivery.
    """

    def __init__(
        self,
        config: NotifyConfig,
        store: History,
        wish_of: Callable[[str], MailWish],
        domain: Callable[[], str] = str,
        send: Callable[[Mail], None] | None = None,
    ) -> None:
        self._config, self._store = config, store
        self._wish_of, self._domain = wish_of, domain
        self._send = send or (lambda mail: deliver(mail, config.mail, config.mail_from))
        self._allowance = MailBudget(config.mails_per_hour)
        self._day: int | None = None
        self._ticks: queue.Queue[tuple[Sequence[News], Document] | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="mail", daemon=True)
        self._thread.start()

    def after_tick(self, news: Sequence[News], doc: Document) -> None:
        """Queue the news for mails; returns at once. ``doc`` is the status document."""
        if self._ticks.qsize() >= MAX_WHOLE:
            doc = {"time": doc["time"], "mode": ""}
        try:
            self._ticks.put_nowait((news, doc))
        except queue.Full:
            log.error("mail", dropped=len(news), reason="mails are not accepted fast enough")

    def close(self, seconds: float = 2.0) -> None:
        """Send what waits within this many seconds; the rest is lost."""
        try:
            self._ticks.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _work(self) -> None:
        while (tick := self._ticks.get()) is not None:
            news, doc = tick
            for step in (self._write, self._send_due, self._digest):
                try:
                    step(news, doc)
                except Exception as error:  # the other mails must still be sent
                    log.error("mail", error=f"{type(error).__name__}: {error}")

    def _write(self, news: Sequence[News], _: Document) -> None:
        kinds_by_user: dict[str, Collection[str] | None] = {}
        domain = self._domain() if news else ""
        for item in news:
            if item.user not in kinds_by_user:
                kinds_by_user[item.user] = self._store.mail_kinds(UserName(item.user))
            kinds = kinds_by_user[item.user]
            if kinds is not None and item.kind not in kinds:
                continue  # without asking Slurm
            address = address_of(item, self._wish_of(item.job), kinds, domain)
            if address:
                history = self._store.job_history(item.job_id)
                self._allowance.add(address, [paragraph(item, history)])

    def _send_due(self, _: Sequence[News], doc: Document) -> None:
        self._allowance.due(doc["time"] or 0.0, self._send_paragraphs)

    def _send_paragraphs(self, address: str, paragraphs: Sequence[str], omitted_count: int) -> None:
        first = paragraphs[0].partition("\n")[0].removesuffix(".")
        others_count = len(paragraphs) + omitted_count - 1
        subject = f"hops: {first}"[:150] + (f" (and {others_count} more)" if others_count else "")
        suffix = [f"And {omitted_count} more."] if omitted_count else []
        end = "`hopsctl notify` shows and changes which mails you get."
        self._try(Mail(address, subject, "\n\n".join([*paragraphs, *suffix, end]) + "\n"))

    def _digest(self, _: Sequence[News], doc: Document) -> None:
        """Send the digest once a day, after the hour that the site chose (local time)."""
        now = doc["time"]
        if not self._config.admins or now is None or doc["mode"] != "active":
            return
        day = datetime.fromtimestamp(now - self._config.digest_hour * HOUR).toordinal()  # noqa: DTZ006
        last_day, self._day = self._day, day
        if last_day is None or last_day == day:
            return
        since = now - DAY_SECONDS
        ended_jobs = [
            asdict(job)
            for job in self._store.ended_jobs(MAX_ENDED)
            if job.end is not None and job.end >= since
        ]
        use = [asdict(row) for row in self._store.gpu_use(since, now, HOUR)]
        text = digest(doc, use, ended_jobs)
        for admin in self._config.admins:
            self._try(Mail(admin, f"hops: {text.partition(chr(10))[0]}", text + "\n"))

    def _try(self, mail: Mail) -> None:
        try:
            self._send(mail)
        except (MailError, HopsError) as error:
            log.error("mail", error=str(error), did="a mail is dropped")
