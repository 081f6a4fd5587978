"""Posts news to a chat: one message per tick, from a separate thread."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from html import escape
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import structlog

from hopsd.model.isolation import describe_error
from hopsd.notify.news import News, one_line

MAX_LINES = 20
"""The most lines of a message; the rest is counted."""
MAX_WAITING = 100
"""The most messages that wait while the chat is down; later ones are dropped, which is logged."""
TIMEOUT_SECONDS = 10.0
PAUSES = (1.0, 10.0, 60.0)
"""Seconds between tries of one message."""

log = structlog.get_logger()


def slack(lines: Sequence[str]) -> dict[str, str]:
    """Format for Slack's incoming webhooks and compatible ones (Mattermost, Rocket.Chat).

    Their text marks links and mentions by ``<`` and ``>``, so these are escaped: a job's name must
    not create any.
    """
    return {"text": "\n".join(escape(line, quote=False) for line in lines)}


def matrix(lines: Sequence[str]) -> dict[str, str]:
    """Format for a generic webhook of matrix-hookshot."""
    return {"text": "\n".join(lines), "html": "<br/>".join(map(escape, lines))}


def lines_of(news: Sequence[News]) -> list[str]:
    """Return one line per news item, without control characters."""
    lines = [f"job {item.job} of {item.user}: {item.text}" for item in news[:MAX_LINES]]
    suffix = [f"and {len(news) - MAX_LINES} more"] if len(news) > MAX_LINES else []
    return list(map(one_line, (*lines, *suffix)))


class Webhook:
    """Sends in the background until closed; nothing here delays or fails a tick."""

    def __init__(
        self,
        url: str,
        shape: Callable[[Sequence[str]], dict[str, str]],
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self._url, self._shape, self._pauses = url, shape, pauses
        self._messages: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="webhook", daemon=True)
        self._thread.start()

    def send(self, news: Sequence[News]) -> None:
        if not news:
            return
        try:
            self._messages.put_nowait(json.dumps(self._shape(lines_of(news))).encode())
        except queue.Full:
            log.error("webhook", dropped=len(news), reason="it does not answer")

    def close(self, seconds: float = 2.0) -> None:
        """Send what waits within this many seconds; the rest is lost."""
        try:
            self._messages.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _work(self) -> None:
        while (message := self._messages.get()) is not None:
            for pause in (*self._pauses, None):
                problem = self._post(message)
                if problem is None:
                    break
                if pause is None:
                    log.error("webhook", error=problem, did="a message is dropped")
                else:
                    time.sleep(pause)

    def _post(self, message: bytes) -> str | None:
        """Post a message; returns None or the problem, without the URL, which is a secret."""
        headers = {"Content-Type": "application/json", "User-Agent": "hops"}
        request = Request(self._url, message, headers)  # noqa: S310 - the operator's
        try:
            with urlopen(request, timeout=TIMEOUT_SECONDS):  # noqa: S310
                return None
        except HTTPError as error:
            return f"HTTP {error.code}"
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, OSError) and reason.strerror:
                return describe_error(reason)
            return "no valid answer"
