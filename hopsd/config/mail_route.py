"""How mails are sent: by a program that is called as mail(1), or through an SMTP server."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

SMTP_PORT = 25


class MailRoute(str):
    """A program's absolute path, or `smtp://HOST[:PORT]`; empty: no mails.

    Raises:
        ValueError: if ``text`` is none of these.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if text and not text.startswith("/"):
            parts = urlsplit(text)
            plain = not (parts.path or parts.query or parts.username)
            if parts.scheme != "smtp" or not parts.hostname or not plain:
                raise ValueError(text)
            if parts.port == 0:  # raises ValueError if not a port
                raise ValueError(text)
        return super().__new__(cls, text)

    @property
    def server(self) -> tuple[str, int] | None:
        """Host and port of the SMTP server, None for a program."""
        parts = urlsplit(self)
        return (parts.hostname, parts.port or SMTP_PORT) if parts.hostname else None
