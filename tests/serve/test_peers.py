"""The kernel identifies callers, on a local TCP port as well as on a Unix socket."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from hopsd.serve.peers import (
    SMALL_ANSWER,
    UNKNOWN,
    UNREAD_BYTES,
    UNREAD_BYTES_PER_USER,
    BusyError,
    RequestSlots,
    peer_uid,
)


def listen_on(family: socket.AddressFamily, folder: Path) -> socket.socket:
    server = socket.socket(family)
    hosts = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
    try:
        server.bind(str(folder / "s") if family == socket.AF_UNIX else (hosts[family], 0))
    except OSError as error:
        server.close()
        pytest.skip(f"{family.name}: {error}")
    server.listen()
    server.settimeout(30.0)
    return server


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6])
def test_the_kernel_identifies_the_caller(family: socket.AddressFamily, tmp_path: Path) -> None:
    with listen_on(family, tmp_path) as server, socket.socket(family) as client:
        client.connect(server.getsockname())
        connection = server.accept()[0]
        with connection:
            assert peer_uid(connection) == os.getuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another account")
def test_another_account_on_a_port_is_identified(tmp_path: Path) -> None:
    call = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    with listen_on(socket.AF_INET, tmp_path) as server:
        port = str(server.getsockname()[1])
        words = ["/usr/bin/python3", "-c", f"{call} c.recv(1)", port]
        with subprocess.Popen(words, user=65531) as client:
            connection = server.accept()[0]
            with connection:
                assert peer_uid(connection) == 65531
            assert client.wait(timeout=60) == 0


def test_a_disconnected_caller_on_a_port_is_nobody(tmp_path: Path) -> None:
    """If no process holds a connection open any more, the kernel reports root as its owner."""
    with listen_on(socket.AF_INET, tmp_path) as server:
        with socket.socket() as client:
            client.connect(server.getsockname())
        connection = server.accept()[0]
        with connection:
            assert connection.recv(1) == b""
            assert peer_uid(connection) == UNKNOWN


def test_each_caller_has_a_limited_number_of_open_requests() -> None:
    slots = RequestSlots(2)
    with slots.question("ann", waiting=1):
        with slots.question("ben", waiting=1) as second, second.turn():
            pass
        with pytest.raises(BusyError, match="1 of your requests"):
            ask(slots, "ann", waiting=1)
    ask(slots, "ann", waiting=1)


def ask(slots: RequestSlots, caller: str, size: int = 1, *, waiting: int = 99) -> None:
    with slots.question(caller, waiting=waiting) as question:
        question.keep(size)


def test_unread_answers_of_one_caller_are_limited() -> None:
    slots = RequestSlots()
    with slots.question("ann", waiting=99) as question:
        question.keep(2 * UNREAD_BYTES_PER_USER)  # the first answer may be large
        with pytest.raises(BusyError, match="you have 64 MiB of answers to read"):
            ask(slots, "ann", SMALL_ANSWER + 1)
        ask(slots, "ann", SMALL_ANSWER)
        ask(slots, "ben", UNREAD_BYTES_PER_USER)
    ask(slots, "ann", UNREAD_BYTES_PER_USER)


def test_unread_answers_of_all_callers_are_limited_except_for_root() -> None:
    slots = RequestSlots()
    with ExitStack() as unread:
        for number in range(UNREAD_BYTES // UNREAD_BYTES_PER_USER):
            question = unread.enter_context(slots.question(number, waiting=1))
            question.keep(UNREAD_BYTES_PER_USER)
        with pytest.raises(BusyError, match="other users"):
            ask(slots, "ann", SMALL_ANSWER + 1)
        ask(slots, "ann", SMALL_ANSWER)
        with slots.question("root", waiting=1, at_once=True) as question:
            question.keep(UNREAD_BYTES_PER_USER)
    ask(slots, "ann", UNREAD_BYTES)
