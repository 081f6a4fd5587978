"""Who calls a server, and how much of it one user or host may have at a time."""

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
"""At a time, of several users: one fewer than the connections to PostgreSQL, which the round needs
as well. root and hopsd's account do not wait for the others.
"""
SMALL_ANSWER = 1 << 16
UNREAD_BYTES_PER_USER = 1 << 25
"""A first answer may have more."""
UNREAD_BYTES = 1 << 28
"""Eight users who read nothing reach it; small answers, and those to root and hopsd's account, are
given beyond it. hopsd's unit allows 4 GiB.
"""
UNKNOWN = -1
"""The uid of a caller who hung up before the kernel was asked."""

_CONNECTED_STATE = "01"  # as /proc/net/tcp calls it


class BusyError(HopsError):
    """The same user has too many questions open."""


def peer_uid(connection: socket.socket) -> int:
    """The uid at the other end, from the kernel: of a Unix socket even after it hung up."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        return int(struct.unpack("3i", credentials)[1])
    with suppress(OSError):
        return _tcp_uid(connection)
    return UNKNOWN


def _tcp_uid(connection: socket.socket) -> int:
    """Of a client on this machine: the kernel lists its end of the connection as well."""
    table = "tcp6" if connection.family == socket.AF_INET6 else "tcp"
    ends = [_end(connection.getpeername()), _end(connection.getsockname())]
    with Path("/proc/self/net", table).open() as lines:
        for line in lines:
            words = line.split()
            if words[1:3] == ends and words[3] == _CONNECTED_STATE:
                return int(words[7])
    return UNKNOWN


def _end(address: Any) -> str:
    """As proc_net_tcp(5) writes it: words of 32 bits in the machine's order, and the port."""
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
    """root and hopsd's account."""
    return uid in (0, os.getuid())


class BoundedThreads(ThreadingMixIn):
    """A thread for each connection. Every user of this machine, and every other host, has at most
    ``per_user`` at a time, all of them ``in_all``; root and hopsd's account are let in beyond that.
    Who comes beyond is turned away.
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
        """Who is at the other end of a connection that was let in: a uid, or another host."""
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
    """One caller's: ``unread_bytes`` of answers to ``open_questions``."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    open_questions: int = 0
    unread_bytes: int = 0


class RequestSlots:
    """One answer after another to each user, to a few users at a time: some questions cost seconds
    of the processor and PostgreSQL that the round needs. An answer is in hopsd's memory until its
    reader has taken it: each user's have a bound, and all users'.
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
        """A question of the caller's, which is open until its answer is sent. ``at_once``: whatever
        the other callers ask and read.

        Raises:
            BusyError: ``waiting`` questions of this caller are open.
        """
        with self._lock:
            slot = self._slots.setdefault(caller, _Slot())
            if slot.open_questions >= waiting:
                raise BusyError(f"{waiting} of your questions wait for an answer: ask again later")
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
        """Of one question of the slot's caller after another."""
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
                raise BusyError("too much that others asked for is still unread: ask again later")
            slot.unread_bytes += size
            self._unread_bytes += size


class OpenQuestion:
    """An open question, as `RequestSlots.question` gives it."""

    def __init__(self, slots: RequestSlots, slot: _Slot, *, at_once: bool) -> None:
        self._slots, self._slot, self._at_once = slots, slot, at_once
        self.unread_bytes = 0

    def turn(self) -> AbstractContextManager[None]:
        """Wait for the caller's turn to be answered."""
        return self._slots.turn(self._slot, at_once=self._at_once)

    def keep(self, size: int) -> None:
        """Keep an answer of ``size`` bytes until the question is closed.

        Raises:
            BusyError: too much is unread.
        """
        self._slots.keep(self._slot, size, at_once=self._at_once)
        self.unread_bytes += size
