"""Messages between a lane's processes, over pairs of sockets that no other process can reach."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

WHOLE_TRIAL = 1 << 60
"""Iterations of a turn that lasts until the trial has ended."""

_MAX_BYTES = 1 << 17


class Link:
    """One end of a link. A message is one packet, a JSON object."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, **message: Any) -> None:
        """Send a message; does nothing if the other process has ended, which its parent notices."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._end.sendall(json.dumps(message).encode())

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next message; None if the other process has ended."""
        try:
            packet = self._end.recv(_MAX_BYTES)
        except ConnectionResetError:
            return None
        if not packet:
            return None
        message: dict[str, Any] = json.loads(packet)
        return message

    def close(self) -> None:
        self._end.close()


def pair() -> tuple[Link, Link]:
    """Return both ends of a link, for a process and the child that it forks next."""
    parent, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Link(parent), Link(child)
