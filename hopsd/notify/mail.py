"""Sends mails by the site's mail program or an SMTP server: never many to one user, and never
delaying a tick.
"""

from __future__ import annotations

import smtplib
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from hopsd.config import MailRoute
from hopsd.notify.webhook import MAX_LINES

SECONDS = 30.0
"""Time-out for the delivery of one mail."""
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail to one address, ``recipient``. ``subject`` and ``text`` are plain text; invalid
    characters are replaced.
    """

    recipient: str
    subject: str
    text: str


class MailError(Exception):
    """The mail was not accepted; the message says why."""


def deliver(mail: Mail, route: MailRoute, sender: str) -> None:
    """Hand a mail to the mail program or server.

    Raises:
        MailError: it was not accepted within ``SECONDS``.
    """
    try:
        if route.server is None:
            subprocess.run(
                [route, "-s", mail.subject, mail.recipient],
                input=mail.text.encode(),
                check=True,
                capture_output=True,
                timeout=SECONDS,
            )
            return
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = sender, mail.recipient, mail.subject
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="hops")
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
        message.set_content(mail.text)
        with smtplib.SMTP(*route.server, timeout=SECONDS) as server:
            server.send_message(message)
    except subprocess.CalledProcessError as error:
        stderr_text = error.stderr.decode(errors="replace").strip()
        raise MailError(f"exit code {error.returncode}: {stderr_text[:200]}") from error
    except (OSError, ValueError, smtplib.SMTPException, subprocess.TimeoutExpired) as error:
        raise MailError(f"{type(error).__name__}: {error}"[:300]) from error


@dataclass(slots=True)
class _Mailbox:
    send_times: deque[float] = field(default_factory=deque)
    waiting: list[str] = field(default_factory=list)
    more: int = 0


class MailBudget:
    """Limits mails to ``per_hour`` an hour for each address. Further paragraphs wait, and go in one
    mail when the limit allows; those beyond ``MAX_LINES`` are only counted.
    """

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._boxes: dict[str, _Mailbox] = {}

    def add(self, address: str, paragraphs: Sequence[str]) -> None:
        box = self._boxes.setdefault(address, _Mailbox())
        room = max(0, MAX_LINES - len(box.waiting))
        box.waiting += paragraphs[:room]
        box.more += len(paragraphs[room:])

    def due(self, now: float, send: Callable[[str, Sequence[str], int], None]) -> None:
        """For each mail that may go now, call ``send`` with the address, the paragraphs and the
        number of those left out.
        """
        for address, box in list(self._boxes.items()):
            while box.send_times and box.send_times[0] <= now - HOUR:
                box.send_times.popleft()
            if box.waiting and len(box.send_times) < self._per_hour:
                paragraphs, omitted_count = box.waiting, box.more
                box.waiting, box.more = [], 0
                box.send_times.append(now)
                send(address, paragraphs, omitted_count)
            if not box.waiting and not box.send_times:
                del self._boxes[address]
