"""Anybody may ask, the kernel identifies the caller, and malformed requests do no harm."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hopsd import __version__
from hopsd.ctl.daemon_client import ask
from hopsd.errors import HopsError, InputError, RefusedError, UnreachableError
from hopsd.serve import peers
from hopsd.serve import socket as local_socket
from hopsd.serve.peers import RequestSlots
from hopsd.serve.socket import CONNECTIONS_PER_USER, LocalServer, Request


def answer(request: Request) -> Any:
    if request.command == "refuse":
        raise InputError("not like this; accepted: like that")
    if request.command == "defect":
        raise ValueError("not foreseen")
    if request.command == "forbidden":
        raise HopsError("not for you")
    if request.command == "large":
        return {"text": "x" * request.arguments["size"]}
    return {"uid": request.uid, "arguments": dict(request.arguments)}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    server = LocalServer(tmp_path / "sock", answer)
    yield tmp_path / "sock"
    server.close()


def test_the_kernel_identifies_the_caller(path: Path) -> None:
    assert ask(path, "who", job="7") == {"uid": os.getuid(), "arguments": {"job": "7"}}


def test_everybody_may_connect(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_an_error_keeps_its_own_words(path: Path) -> None:
    with pytest.raises(InputError, match="accepted: like that"):
        ask(path, "refuse")
    with pytest.raises(RefusedError, match="not for you"):
        ask(path, "forbidden")


def test_a_defect_is_reported_as_such(path: Path) -> None:
    with pytest.raises(RefusedError, match="a defect of hops, ValueError: not foreseen"):
        ask(path, "defect")
    assert ask(path, "who")["uid"] == os.getuid()


def test_fields_missing_from_an_older_hopsd_are_named(path: Path) -> None:
    with pytest.raises(RefusedError, match=f"'gpus'.*another release.*{re.escape(__version__)}"):
        ask(path, "who", nested=[{}])["arguments"]["nested"][0]["gpus"]


NONSENSE = [b"\n", b"nonsense\n", b"[1]\n", b"{}\n", b"\xff\n", b"9" * 70000, b"[" * 60000]


@pytest.mark.parametrize("line", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_answered_and_the_next_request_served(path: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(line)
        client.shutdown(socket.SHUT_WR)
        assert b"one line of JSON" in client.makefile("rb").readline()
    assert ask(path, "who")["uid"] == os.getuid()


def test_an_unreachable_hopsd_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no hopsd answers"):
        ask(tmp_path / "none", "status")


def test_silent_connections_are_limited(path: Path) -> None:
    clients = [socket.socket(socket.AF_UNIX) for _ in range(CONNECTIONS_PER_USER + 1)]
    try:
        for client in clients:
            client.connect(str(path))
        clients[-1].settimeout(30.0)
        assert clients[-1].recv(1) == b""
        with pytest.raises(UnreachableError):
            ask(path, "who")
    finally:
        for client in clients:
            client.close()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        with contextlib.suppress(UnreachableError):
            assert ask(path, "who")["uid"] == os.getuid()
            return
    pytest.fail("no answer after the others hung up")


def test_the_next_request_is_served_after_a_thread_could_not_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TasksMax may be reached: a caller who was turned away has not used up a connection."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", refuse)
        for _ in range(CONNECTIONS_PER_USER + 1):
            with pytest.raises(UnreachableError):
                ask(path, "who")
    assert ask(path, "who")["uid"] == os.getuid()


ASKER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as asker:
    asker.connect(sys.argv[1])
    try:
        asker.sendall(b'{"command": "who"}\\n')
        answer = asker.recv(1)
    except OSError:
        answer = b""
print("answered" if answer else "turned away")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another account")
def test_all_users_together_leave_room_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="hops-test-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "sock")
        for limit, reply in ((1, b"answered"), (0, b"turned away")):
            monkeypatch.setattr(local_socket, "CONNECTIONS", limit)
            with contextlib.closing(LocalServer(path, answer)):
                client = subprocess.run(
                    ["/usr/bin/python3", "-c", ASKER, path],
                    user=65534, check=True, capture_output=True, timeout=60,
                )  # fmt: skip
                assert client.stdout.strip() == reply
                assert ask(path, "who")["uid"] == 0


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="acts as other accounts")
def test_many_requests_of_one_caller_are_answered_one_by_one() -> None:
    """Some requests take seconds of processor and PostgreSQL time that rounds need."""
    request_uids: queue.Queue[int] = queue.Queue()
    go_on = threading.Event()

    def slow(request: Request) -> Any:
        if request.uid != 0:
            request_uids.put(request.uid)
            assert go_on.wait(60.0)
        return {}

    with tempfile.TemporaryDirectory(prefix="hops-test-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "sock")
        with contextlib.closing(LocalServer(path, slow, RequestSlots(2))):
            clients = [
                subprocess.Popen(["/usr/bin/python3", "-c", ASKER, path], user=uid, stdout=-1)
                for uid in (65531, 65531, 65531, 65532, 65533)
            ]
            at_once = {request_uids.get(timeout=60.0) for _ in range(2)}
            assert ask(path, "status") == {}
            assert len(at_once) == 2
            with pytest.raises(queue.Empty):
                request_uids.get(timeout=0.5)
            go_on.set()
            for client in clients:
                assert client.communicate(timeout=60)[0].strip() == b"answered"


def test_unread_answers_do_not_fill_hopsds_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are kept until they are read: 32 connections each ask for the status of all jobs."""
    monkeypatch.setattr(peers, "UNREAD_BYTES_PER_USER", 3 << 20)
    text = "x" * (1 << 20)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            reader = stack.enter_context(socket.socket(socket.AF_UNIX))
            reader.connect(str(path))
            reader.sendall(json.dumps({"command": "large", "size": len(text)}).encode() + b"\n")
            assert reader.recv(1)  # the rest does not fit into the socket buffer
        with pytest.raises(RefusedError, match="MiB of answers to read"):
            ask(path, "large", size=len(text))
        assert ask(path, "who")["uid"] == os.getuid()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        with contextlib.suppress(RefusedError):
            assert ask(path, "large", size=len(text))["text"] == text
            return
    pytest.fail("no large answer after the others hung up")


def test_an_endless_request_is_dropped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_socket, "REQUEST_SECONDS", 0.3)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.settimeout(30.0)
        for _ in range(300):
            try:
                client.sendall(b" ")
            except BrokenPipeError:
                return
            time.sleep(0.1)
    pytest.fail("the server listens for as long as something comes")


def test_a_socket_in_use_is_not_replaced(path: Path) -> None:
    with pytest.raises(HopsError, match="another hopsd listens"):
        LocalServer(path, answer)
    assert ask(path, "who")["uid"] == os.getuid()


def test_a_stale_socket_is_replaced_but_a_file_is_not(tmp_path: Path) -> None:
    stale_socket = tmp_path / "left"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale_socket))
    LocalServer(stale_socket, answer).close()
    stale_socket.write_text("precious")
    with pytest.raises(HopsError, match=r"daemon\.socket"):
        LocalServer(stale_socket, answer)
    assert stale_socket.read_text() == "precious"


@pytest.mark.parametrize("name", ["missing/sock", "x" * 120])
def test_an_unusable_socket_path_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(HopsError, match=r"daemon\.socket"):
        LocalServer(tmp_path / name, answer)
