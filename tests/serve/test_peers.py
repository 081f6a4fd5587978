"""Who calls is known by the kernel, on a port of this machine as on a socket."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from hopsd.serve.peers import UNKNOWN, BusyError, RequestSlots, peer_uid


def listening(family: socket.AddressFamily, folder: Path) -> socket.socket:
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
def test_the_kernel_says_who_calls(family: socket.AddressFamily, tmp_path: Path) -> None:
    with listening(family, tmp_path) as server, socket.socket(family) as client:
        client.connect(server.getsockname())
        connection = server.accept()[0]
        with connection:
            assert peer_uid(connection) == os.getuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another account")
def test_another_account_on_a_port(tmp_path: Path) -> None:
    call = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    with listening(socket.AF_INET, tmp_path) as server:
        port = str(server.getsockname()[1])
        words = ["/usr/bin/python3", "-c", f"{call} c.recv(1)", port]
        with subprocess.Popen(words, user=65531) as other:
            connection = server.accept()[0]
            with connection:
                assert peer_uid(connection) == 65531
            assert other.wait(timeout=60) == 0


def test_who_hung_up_on_a_port_is_nobody(tmp_path: Path) -> None:
    """The kernel calls root the owner of what nobody holds open any more."""
    with listening(socket.AF_INET, tmp_path) as server:
        with socket.socket() as client:
            client.connect(server.getsockname())
        connection = server.accept()[0]
        with connection:
            assert connection.recv(1) == b""
            assert peer_uid(connection) == UNKNOWN


def test_one_caller_has_so_many_open_questions_and_the_others_theirs() -> None:
    turns = RequestSlots(2)
    with turns.turn("ann", waiting=1):
        with turns.turn("ben", waiting=1):
            pass
        with pytest.raises(BusyError, match="1 of your questions"), turns.turn("ann", waiting=1):
            pass
    with turns.turn("ann", waiting=1):
        pass
