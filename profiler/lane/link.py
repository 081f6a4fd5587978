"""Messages between a lane's processes: a pair of sockets that no other process can reach."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

UNLIMITED = 1 << 60
"""Iterations of a turn that lasts until the trial has ended."""

_LONGEST = 1 << 17


class Link:
    """One end. A message is one packet, a JSON object."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, **message: Any) -> None:
        """Send; nothing happens if the other process has ended, which its parent notices."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._end.sendall(json.dumps(message).encode())

    def receive(self) -> dict[str, Any] | None:
        """The next message, waited for; None if the other process has ended."""
        try:
            packet = self._end.recv(_LONGEST)
        except ConnectionResetError:
            return None
        if not packet:
            return None
        message: dict[str, Any] = json.loads(packet)
        return message

    def close(self) -> None:
        self._end.close()


def pair() -> tuple[Link, Link]:
    """Both ends of a link, for a process and the child that it forks next."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Link(one), Link(other)
