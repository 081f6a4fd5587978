"""`hopsctl top` and the bars: they fit the terminal, and leave it as they found it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hopsd.ctl import render
from hopsd.ctl.user.top import page
from hopsd.serve.socket import LocalServer, Request

CLEAR, BACK, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
START = [sys.executable, "-P", "-c", "from hopsd.ctl import main; main()"]


def job(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": str(number), "user": "ann", "name": "net", "reqs": [1, 2], "placement": {"n0": 1},
        "profiling": False, "since": 900.0, "wait_seconds": 10.0, "latency_ratio": 0.5,
        "restarts": 0, "samples": 2e6, "samples_done": 1e3, "priority": 1.0, "code": "limit",
        "reason": "the 4 GPUs of account lab are all in use, by jobs 1, 2, 3 and 4, until 14:30",
        "state": "PENDING", "partition": "main", **more,
    }  # fmt: skip


def document(count: int, types: int = 2) -> dict[str, Any]:
    node = {"gpus": 8, "idle": 3, "state": "mixed", "usable": True, "jobs": {}}
    return {
        "version": "1", "mode": "active", "port": "scontrol", "sentence": "first plan",
        "reports_refused": 0, "raqlr": 1.0, "error": None, "time": 1000.0,
        "slurm_version": "22.05.8", "round": {"end": 1010.0, "steps": []}, "private": [],
        "nodes": [{**node, "name": f"n{i}", "gpu_type": f"type{i}"} for i in range(types)],
        "running": [job(i) for i in range(count)],
        "waiting": [job(100 + i) for i in range(count)],
    }  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (80, 50), (160, 24), (40, 12)])
@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_it_fits_the_screen(
    size: tuple[int, int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(
        file=io.StringIO(), width=size[0], height=size[1], highlight=False, color_system=None
    )
    monkeypatch.setattr(render, "console", console)
    console.print(page(document(count)))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= size[0]
    assert lines[-1].startswith("q: end")
    if size[1] >= 24:
        assert len(lines) <= size[1]
        assert count < 5 or sum("net" in line for line in lines) >= 4
    if count == 300 and size[1] >= 24:
        assert sum("more" in line for line in lines) == 2


def test_types_beyond_a_few_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80, height=24, highlight=False)
    monkeypatch.setattr(render, "console", console)
    console.print(page(document(300, types=40)))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "and 34 more types" in said
    assert said.count("\n") <= 24


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    def answer(_: Request) -> Any:
        return document(300)

    server = LocalServer(tmp_path / "sock", answer)
    yield tmp_path / "sock"
    server.close()


@contextmanager
def on_terminal(
    *words: str, start: Sequence[str] = START, **environ: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """hopsctl on a terminal of 80 x 24, and the terminal's other end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = subprocess.Popen(
        [*start, *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environ}, start_new_session=start is START,
    )  # fmt: skip
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def read_until(ours: int, wanted: str, seconds: float = 60.0) -> str:
    said, deadline = "", time.monotonic() + seconds
    while wanted not in said and time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            said += os.read(ours, 65536).decode(errors="replace")
    assert wanted in said
    return said


@pytest.mark.parametrize(
    ("end", "code"),
    [("q", 0), (signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=str,
)
def test_the_terminal_is_left_as_it_was(daemon: Path, end: str | signal.Signals, code: int) -> None:
    with on_terminal("top", "--socket", str(daemon)) as (process, ours):
        before = termios.tcgetattr(ours)
        said = read_until(ours, "q: end")
        assert CLEAR in said
        assert not termios.tcgetattr(ours)[3] & termios.ECHO
        if isinstance(end, str):
            os.write(ours, end.encode())
        else:
            process.send_signal(end)
        after = read_until(ours, BACK)
        assert process.wait(30) == code
        assert CURSOR in after
        assert termios.tcgetattr(ours) == before


def test_it_is_stopped_and_comes_back(daemon: Path) -> None:
    """By a shell with job control, whose session has the terminal."""
    shell = ("setsid", "--ctty", "bash", "--norc", "--noprofile", "-i")
    with on_terminal(start=shell, PS1="ready> ") as (_, ours):
        read_until(ours, "ready> ")
        os.write(ours, f"{shlex.join([*START, 'top', '--socket', str(daemon)])}\n".encode())
        read_until(ours, "q: end")
        os.write(ours, b"\x1a")
        said = read_until(ours, "Stopped")
        assert BACK in said
        assert CURSOR in said
        os.write(ours, b"fg\n")
        assert CLEAR in read_until(ours, "q: end")
        os.write(ours, b"q")
        read_until(ours, BACK)
        os.write(ours, b"exit\n")
        read_until(ours, "exit")


def test_no_color_is_respected(daemon: Path) -> None:
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]")
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with on_terminal("top", "--socket", str(daemon), **more) as (_, ours):
            assert bool(colour.search(read_until(ours, "q: end"))) == coloured


@pytest.mark.parametrize("command", ["top", "status"])
def test_without_a_terminal_nothing_is_coloured_or_drawn(daemon: Path, command: str) -> None:
    done = subprocess.run(
        [*START, command, "--socket", str(daemon)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "\x1b" not in done.stdout + done.stderr
    if command == "top":
        assert done.returncode == 2
        assert "hopsctl status" in done.stderr


def test_a_bar_is_for_a_terminal_alone(tmp_path: Path) -> None:
    words = ("simulate", "--cluster", "paper-64", "--workload", "paper-64", "--jobs", "4",
             "--policy", "fifo", "--out", str(tmp_path))  # fmt: skip
    with on_terminal(*words) as (process, ours):
        assert "left:" in read_until(ours, "makespan h")
        assert process.wait(60) == 0
    done = subprocess.run([*START, *words], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
