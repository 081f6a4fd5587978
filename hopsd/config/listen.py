"""Addresses that servers may listen on; those without a password only on this machine."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Self


class ListenAddress(str):
    """A socket's absolute path, or a loopback address with a port; empty: do not listen.

    Raises:
        ValueError: if ``text`` is none of these.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if text and not text.startswith("/"):
            host, port = _host_and_port(text)
            if not cls._accepts(host) or not 0 < port < 65536:
                raise ValueError(text)
        return super().__new__(cls, text)

    @classmethod
    def _accepts(cls, host: str) -> bool:
        return ip_address(host).is_loopback

    @property
    def path(self) -> Path | None:
        """The socket's path, None for an address with a port."""
        return Path(self) if self.startswith("/") else None

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Host (an IPv6 address without brackets) and port; only for an address with a port."""
        return _host_and_port(self)


class NetworkAddress(ListenAddress):
    """An IP address of this machine with a port, 0.0.0.0 and [::] for all; empty: do not listen.

    Raises:
        ValueError: if ``text`` is none of these.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if text.startswith("/"):
            raise ValueError(text)
        return super().__new__(cls, text)

    @classmethod
    def _accepts(cls, host: str) -> bool:
        return bool(ip_address(host))


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or (":" in host) != host.startswith("["):
        raise ValueError(text)
    return host.removeprefix("[").removesuffix("]"), int(port)
