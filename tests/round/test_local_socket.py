"""Everybody may ask, the kernel tells who asks, nonsense gets an answer and does no harm."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hopsd.errors import InputError
from hopsd.local_socket import (
    LocalServer,
    RefusedError,
    Request,
    UnreachableError,
    ask,
)


def answer(request: Request) -> Any:
    if request.command == "refuse":
        raise InputError("not like this; accepted: like that")
    return {"uid": request.uid, "arguments": dict(request.arguments)}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    server = LocalServer(tmp_path / "sock", answer)
    yield tmp_path / "sock"
    server.close()


def test_the_asker_is_known_by_the_kernel(path: Path) -> None:
    assert ask(path, "who", job="7") == {"uid": os.getuid(), "arguments": {"job": "7"}}


def test_everybody_may_connect(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_an_error_comes_back_in_its_own_words(path: Path) -> None:
    with pytest.raises(RefusedError, match="accepted: like that"):
        ask(path, "refuse")


@pytest.mark.parametrize("line", [b"\n", b"nonsense\n", b"[1]\n", b"{}\n", b"\xff\n", b"9" * 70000])
def test_nonsense_is_answered_and_the_next_one_served(path: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(line)
        client.shutdown(socket.SHUT_WR)
        assert b"one line of JSON" in client.makefile("rb").readline()
    assert ask(path, "who")["uid"] == os.getuid()


def test_nobody_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no hopsd answers"):
        ask(tmp_path / "none", "status")
