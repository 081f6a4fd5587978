"""Identifies a server's callers, and limits what one user or host may use of it at a time."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

from hopsd.errors import HopsError

ANSWERS = 3
"""How many users are answered at a time: one fewer than the connections to PostgreSQL, since the
round needs one as well. root and hopsd's account do not wait for the others.
"""
SMALL_ANSWER = 1 << 16
UNREAD_BYTES_PER_USER = 1 << 25
"""The limit of a user's unread answers; a single answer may be larger."""
UNREAD_BYTES = 1 << 28
"""The limit of all users' unread answers, which eight users who read nothing reach. Small answers,
and those to root and hopsd's account, are given beyond it. hopsd's unit allows 4 GiB.
"""
UNKNOWN = -1
"""The uid of a caller who hung up before the kernel was asked."""

_CONNECTED_STATE = "01"  # as in /proc/net/tcp


class BusyError(HopsError):
    """This caller, or all callers together, have too many questions open or answers unread."""


def peer_uid(connection: socket.socket) -> int:
    """The uid at the other end, from the kernel; of a Unix socket even after the peer hung up."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        return int(struct.unpack("3i", credentials)[1])
    with suppress(OSError):
        return _tcp_uid(connection)
    return UNKNOWN


def _tcp_uid(connection: socket.socket) -> int:
    """The uid of a client on this machine: the kernel lists its end of the connection, too."""
    table = "tcp6" if connection.family == socket.AF_INET6 else "tcp"
    ends = [_end(connection.getpeername()), _end(connection.getsockname())]
    with Path("/proc/self/net", table).open() as lines:
        for line in lines:
            words = line.split()
            if words[1:3] == ends and words[3] == _CONNECTED_STATE:
                return int(words[7])
    return UNKNOWN


def _end(address: Any) -> str:
    """Format an address as proc_net_tcp(5): 32-bit words in the machine's order, and the port."""
    host, port = address[:2]
    address_bytes = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = struct.unpack(f"={len(address_bytes) // 4}I", address_bytes)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _caller(connection: socket.socket, address: Any) -> int | str:
    """The uid at the other end, or the address of another host."""
    uid = peer_uid(connection)
    local = connection.family == socket.AF_UNIX or ip_address(address[0]).is_loopback
    return uid if local or uid != UNKNOWN else str(address[0])


def is_trusted(uid: int | str) -> bool:
    """Whether the caller is root or hopsd's account."""
    return uid in (0, os.getuid())


class BoundedThreads(ThreadingMixIn):
    """Serves each connection in a thread. Every user of this machine, and every other host, has at
    most ``per_user`` connections at a time, and all together ``in_all``; further ones are refused,
    except those of root and hopsd's account.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    per_user: int
    in_all: int

    def __init__(self, *arguments: Any) -> None:
        self._connections: Counter[int | str] = Counter()
        self._callers: dict[Any, int | str] = {}
        self._entry_lock = threading.Lock()
        super().__init__(*arguments)

    def caller(self, request: Any) -> int | str:
        """The caller of an accepted connection: a uid, or another host's address."""
        return self._callers[request]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        uid = _caller(request, client_address)
        with self._entry_lock:
            full = self._connections.total() >= self.in_all and not is_trusted(uid)
            free = not full and self._connections[uid] < self.per_user
            if free:
                self._connections[uid] += 1
                self._callers[request] = uid
        return free

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except RuntimeError as error:  # no more threads: only this caller is not served
            self._leave(request)
            raise ConnectionAbortedError(str(error)) from error

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: Any) -> None:
        with self._entry_lock:
            uid = self._callers.pop(request)
            self._connections[uid] -= 1
            if not self._connections[uid]:
                del self._connections[uid]


@dataclass(slots=True)
class _Slot:
    """One caller's ``open_questions``, and the ``unread_bytes`` of answers to them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    open_questions: int = 0
    unread_bytes: int = 0


class RequestSlots:
    """Answers each user's questions one at a time, and only a few users at a time: some questions
    take seconds of CPU and PostgreSQL, which the round needs. An answer stays in hopsd's memory
    until its reader has read it, so unread answers are limited per user and in all.
    """

    def __init__(self, answers: int = ANSWERS) -> None:
        self._answers = threading.BoundedSemaphore(answers)
        self._slots: dict[Hashable, _Slot] = {}
        self._unread_bytes = 0
        self._lock = threading.Lock()

    @contextmanager
    def question(
        self, caller: Hashable, *, waiting: int, at_once: bool = False
    ) -> Iterator[OpenQuestion]:
        """Context manager of a caller's question, which is open until its answer is sent. With
        ``at_once``, it does not wait for other callers.

        Raises:
            BusyError: ``waiting`` questions of this caller are open.
        """
        with self._lock:
            slot = self._slots.setdefault(caller, _Slot())
            if slot.open_questions >= waiting:
                raise BusyError(f"{waiting} of your requests are unanswered yet: ask again later")
            slot.open_questions += 1
        question = OpenQuestion(self, slot, at_once=at_once)
        try:
            yield question
        finally:
            with self._lock:
                slot.open_questions -= 1
                slot.unread_bytes -= question.unread_bytes
                self._unread_bytes -= question.unread_bytes
                if not slot.open_questions:
                    del self._slots[caller]

    @contextmanager
    def turn(self, slot: _Slot, *, at_once: bool) -> Iterator[None]:
        """Context manager in which one question of the slot's caller is answered."""
        with slot.lock, nullcontext() if at_once else self._answers:
            yield

    def keep(self, slot: _Slot, size: int, *, at_once: bool) -> None:
        """Count an answer of ``size`` bytes as unread.

        Raises:
            BusyError: the caller's unread answers, or all callers', are too large already.
        """
        with self._lock:
            own_bytes = slot.unread_bytes
            if size > SMALL_ANSWER and own_bytes and own_bytes + size > UNREAD_BYTES_PER_USER:
                raise BusyError(
                    f"you have {own_bytes >> 20} MiB of answers to read: read them, then ask again"
                )
            if size > SMALL_ANSWER and not at_once and self._unread_bytes + size > UNREAD_BYTES:
                raise BusyError("other users have too many unread answers: ask again later")
            slot.unread_bytes += size
            self._unread_bytes += size


class OpenQuestion:
    """An open question, from `RequestSlots.question`."""

    def __init__(self, slots: RequestSlots, slot: _Slot, *, at_once: bool) -> None:
        self._slots, self._slot, self._at_once = slots, slot, at_once
        self.unread_bytes = 0

    def turn(self) -> AbstractContextManager[None]:
        """Wait for the caller's turn to be answered."""
        return self._slots.turn(self._slot, at_once=self._at_once)

    def keep(self, size: int) -> None:
        """Keep an answer of ``size`` bytes until the question is closed.

        Raises:
            BusyError: too many bytes are unread.
        """
        self._slots.keep(self._slot, size, at_once=self._at_once)
        self.unread_bytes += size
