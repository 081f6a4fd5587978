"""The URL of a webhook, a secret: anyone who knows it may post."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit


class SecretUrl(str):
    """An http or https URL with a host; empty: none.

    Raises:
        ValueError: if ``text`` is neither.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError
        return super().__new__(cls, text)

    @property
    def masked_url(self) -> str:
        """The URL with everything after the host hidden."""
        parts = urlsplit(self)
        return f"{parts.scheme}://{parts.hostname}/***" if self else ""
