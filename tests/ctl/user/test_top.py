"""`hopsctl top` and its bars fit the terminal and leave it as they found it."""

from __future__ import annotations

import asyncio
import fcntl
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

from hopsd.ctl.user.screen import KEYS, Top
from hopsd.errors import RefusedError, UnreachableError
from hopsd.serve.socket import LocalServer, Request

pytestmark = pytest.mark.slow  # each test runs a program in a terminal

CLEAR, RESTORE, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
READY = "Waiting:"
START = [sys.executable, "-P", "-c", "from hopsd.ctl import main; main()"]


def job(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": str(number), "user": "ann", "name": "net", "reqs": [1, 2], "placement": {"n0": 1},
        "profiling": False, "since": 900.0, "wait_seconds": 10.0, "latency_ratio": 0.5,
        "restarts": 0, "gain": 2.0, "samples": 2e6, "samples_done": 1e3, "priority": 1.0,
        "code": "limit",
        "reason": "the 4 GPUs of account lab are all in use, by jobs 1, 2, 3 and 4, until 14:30",
        "state": "PENDING", "partition": "main", **fields,
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


class Screen:
    """The application on a screen of a given size, and its requests."""

    def __init__(self, doc: dict[str, Any], size: tuple[int, int] = (80, 24)) -> None:
        self.doc, self.size = doc, size
        self.explained_jobs: list[str] = []
        self.app = Top(doc, 3600.0, status=lambda: self.doc, explain=self.explain, user="ann")

    def explain(self, job: str) -> dict[str, Any]:
        self.explained_jobs.append(job)
        raise RefusedError("not told here")

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    def lines_after(self, *keys: str) -> list[str]:
        """Return the screen's lines after these keys were pressed."""

        async def play() -> list[str]:
            async with self.app.run_test(size=self.size) as pilot:
                for key in keys:
                    await pilot.press(key)
                    await self.app.workers.wait_for_complete()
                await pilot.pause()
                return self.lines()

        return asyncio.run(play())

    def jobs(self, *keys: str) -> list[str]:
        """Return the ids of the jobs on the screen."""
        matches = (re.match(r"\s*(\d+)\s+(ann|bob)", line) for line in self.lines_after(*keys))
        return [match[1] for match in matches if match]


@pytest.mark.parametrize("size", [(80, 24), (80, 50), (160, 24), (40, 12)])
@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_running_and_waiting_jobs_share_the_screen(size: tuple[int, int], count: int) -> None:
    lines = Screen(document(count), size).lines_after()
    assert len(lines) == size[1]
    assert max(map(len, lines)) <= size[0]
    titles = [index for index, line in enumerate(lines) if re.match(r"(Running|Waiting): ", line)]
    assert len(titles) == 2
    rows = sum(bool(re.match(r"\s*\d+\s+ann", line)) for line in lines)
    if size[1] >= 24:
        assert rows == 2 * count if count <= 5 else rows >= 10
    assert not count or rows >= 2


def test_few_running_jobs_leave_room_for_waiting_ones() -> None:
    doc = document(100) | {"running": [job(1)]}
    job_ids = Screen(doc).jobs()
    assert job_ids[0] == "1"
    assert len(job_ids) >= 13


def test_priority_and_code_are_shown_on_a_small_screen() -> None:
    prediction = {"expected": 5000.0, "low": 4000.0, "high": 9e4, "kind": "end", "progress": 0.4}
    running = job(12, predicted=prediction, priority=0.542, samples=9)
    waiting_job = job(13, predicted=prediction, code="no_configuration", priority=0.542)
    lines = Screen(document(0) | {"running": [running], "waiting": [waiting_job]}).lines_after()
    for heading in (r" ends in .* priority\b", r" starts in .* code +priority\b"):
        assert any(re.search(heading, line) for line in lines), lines
    assert sum("0.542" in line for line in lines) == 2
    assert any("no_configuration" in line for line in lines)


def test_the_code_is_shown_beside_long_names() -> None:
    waiting_job = job(13, name="a-training-of-24-letters", code="no_configuration")
    lines = Screen(document(0) | {"waiting": [waiting_job]}).lines_after()
    assert any("no_con" in line for line in lines), lines


def test_the_keys_fit_on_their_lines() -> None:
    wide = max(len(key) for key, _ in KEYS)
    assert all(wide + 2 + len(text) <= 80 for _, text in KEYS)


def test_additional_types_are_counted() -> None:
    assert any(
        "and 34 more types" in line for line in Screen(document(100, types=40)).lines_after()
    )


def waiting(**priorities: float) -> dict[str, Any]:
    jobs = [job(int(n[1:]), priority=p, wait_seconds=p) for n, p in priorities.items()]
    return document(0) | {"waiting": jobs}


def test_jobs_are_sorted_by_any_column_and_reversed() -> None:
    doc = waiting(j7=3.0, j10=1.0, j9=2.0)
    assert Screen(doc).jobs() == ["7", "10", "9"]
    assert Screen(doc).jobs("s") == ["7", "9", "10"], "by number, not by text"
    assert Screen(doc).jobs("s", "r") == ["10", "9", "7"]
    assert Screen(doc).jobs(*"sssss") == ["10", "9", "7"], "by the time waited"
    assert Screen(doc).jobs(*"sssss", "S", "S", "S", "S", "S") == ["7", "10", "9"]
    assert any("by waited" in line for line in Screen(doc).lines_after(*"sssss"))


def test_jobs_are_filtered_by_text_and_by_user() -> None:
    jobs = [job(1), job(2, user="bob", reason="the queue"), job(3, name="Ünet", user="bob")]
    doc = document(0) | {"waiting": jobs}
    assert Screen(doc).jobs("slash", *"queue") == ["2"]
    assert Screen(doc).jobs("slash", *"ÜNET", "enter") == ["3"]
    assert Screen(doc).jobs("slash", *"queue", "enter", "escape") == ["1", "2", "3"]
    assert Screen(doc).jobs("u") == ["1"]
    assert Screen(doc).jobs("u", "u") == ["1", "2", "3"]
    assert any("1 of 3" in line for line in Screen(doc).lines_after("u"))


@pytest.mark.long
def test_the_list_scrolls_and_enter_explains() -> None:
    screen = Screen(document(100))
    job_ids = screen.jobs("end")
    assert job_ids[-1] == "199"
    screen = Screen(document(100))
    lines = screen.lines_after("end", "enter")
    assert screen.explained_jobs == ["199"]
    assert any("not told here" in line for line in lines)


@pytest.mark.long
def test_the_first_of_thousands_of_jobs_are_listed_and_a_filter_finds_others() -> None:
    doc = document(2000)
    doc["waiting"][1900]["name"] = "needle"
    title = "Waiting: 2,000 (the first 500 are listed)"
    assert any(title in line for line in Screen(doc).lines_after())
    assert Screen(doc).jobs("end")[-1] == "599"
    assert Screen(doc).jobs("slash", *"needle")[-1] == "2000"


def test_cancelling_asks_for_confirmation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "told"
    (tmp_path / "scancel").write_text(f"#!/bin/sh\necho $@ >> {log}\n")
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert any(
        "Cancel job 100, net of ann?" in line for line in Screen(document(1)).lines_after("c")
    )
    Screen(document(1)).lines_after("c", "n")
    assert not log.exists()
    Screen(document(1)).lines_after("c", "y")
    assert log.read_text() == "100\n"


def test_the_question_is_centred() -> None:
    screen = Screen(document(1), (80, 24))

    async def play() -> None:
        async with screen.app.run_test(size=screen.size) as pilot:
            await pilot.press("c")
            for _ in range(200):  # the layout is updated some time after the key
                await pilot.pause(0.05)
                if any("Cancel job 100, net of ann?" in line for line in screen.lines()[8:15]):
                    return
        pytest.fail("\n".join(screen.lines()))

    asyncio.run(play())


def test_users_texts_are_shown_literally() -> None:
    doc = document(0) | {"waiting": [job(1, name="[red]x\x1b[31m")]}
    assert any(r"[red]x\x1b[31m" in line for line in Screen(doc).lines_after())


def test_an_unreachable_hopsd_keeps_the_screen() -> None:
    def fail() -> dict[str, Any]:
        raise UnreachableError("no hopsd answers")

    screen = Screen(document(2))
    screen.app._status = fail

    async def play() -> list[str]:
        async with screen.app.run_test(size=(80, 24)) as pilot:
            screen.app.refresh_status()
            await screen.app.workers.wait_for_complete()
            await pilot.pause()
            return screen.lines()

    lines = asyncio.run(play())
    assert any("no hopsd answers" in line for line in lines)
    assert sum("net" in line for line in lines) == 4


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    def answer(_: Request) -> Any:
        return document(100)

    server = LocalServer(tmp_path / "sock", answer)
    yield tmp_path / "sock"
    server.close()


@contextmanager
def on_terminal(
    *words: str, start: Sequence[str] = START, **environ: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run hopsctl on a terminal of 80 x 24 and yield the terminal's other end."""
    ours, program_side = pty.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = subprocess.Popen(
        [*start, *words], stdin=program_side, stdout=program_side, stderr=program_side,
        env={**os.environ, "TERM": "xterm-256color", **environ}, start_new_session=start is START,
    )  # fmt: skip
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(program_side)


def read_until(ours: int, text: str, seconds: float = 60.0) -> str:
    output, deadline = "", time.monotonic() + seconds
    while text not in output and time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            output += os.read(ours, 65536).decode(errors="replace")
    assert text in output
    return output


@pytest.mark.parametrize(
    ("end", "code"),
    [("q", 0), (signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=str,
)
def test_the_terminal_is_restored(daemon: Path, end: str | signal.Signals, code: int) -> None:
    with on_terminal("top", "--socket", str(daemon)) as (process, ours):
        old_attributes = termios.tcgetattr(ours)
        output = read_until(ours, READY)
        assert CLEAR in output
        assert not termios.tcgetattr(ours)[3] & termios.ECHO
        if isinstance(end, str):
            os.write(ours, end.encode())
        else:
            process.send_signal(end)
        restored_text = read_until(ours, CURSOR)
        assert process.wait(30) == code
        assert RESTORE in restored_text
        assert termios.tcgetattr(ours) == old_attributes


def test_top_can_be_suspended_and_resumed(daemon: Path) -> None:
    """It runs in a shell with job control, whose session has the terminal."""
    shell = ("setsid", "--ctty", "bash", "--norc", "--noprofile", "-i")
    with on_terminal(start=shell, PS1="ready> ") as (_, ours):
        read_until(ours, "ready> ")
        os.write(ours, f"{shlex.join([*START, 'top', '--socket', str(daemon)])}\n".encode())
        read_until(ours, READY)
        os.write(ours, b"\x1a")
        output = read_until(ours, "Stopped")
        assert RESTORE in output
        assert CURSOR in output
        os.write(ours, b"fg\n")
        assert CLEAR in read_until(ours, READY)
        os.write(ours, b"q")
        read_until(ours, "ready> ")
        os.write(ours, b"exit\n")
        read_until(ours, "exit")


def test_no_color_is_respected(daemon: Path) -> None:
    """Only shades of grey remain, which xterm numbers from 232."""
    colour = re.compile(r"\x1b\[(?:[0-9;]*;)?[34]8;5;(?!23[2-9]|24\d|25[0-5]|0|7|8|15|16|231|59)\d")
    for variables, has_colours in (({}, True), ({"NO_COLOR": "1"}, False)):
        with on_terminal("top", "--socket", str(daemon), **variables) as (_, ours):
            assert bool(colour.search(read_until(ours, READY))) == has_colours


@pytest.mark.parametrize("command", ["top", "status"])
def test_without_a_terminal_there_are_no_colours_or_bars(daemon: Path, command: str) -> None:
    result = subprocess.run(
        [*START, command, "--socket", str(daemon)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "\x1b" not in result.stdout + result.stderr
    if command == "top":
        assert result.returncode == 2
        assert "hopsctl status" in result.stderr


def test_a_bar_is_drawn_on_a_terminal_only(tmp_path: Path) -> None:
    words = ("simulate", "--cluster", "paper-64", "--workload", "paper-64", "--jobs", "4",
             "--policy", "fifo", "--out", str(tmp_path))  # fmt: skip
    with on_terminal(*words) as (process, ours):
        assert "left:" in read_until(ours, "makespan h")
        assert process.wait(60) == 0
    result = subprocess.run(
        [*START, *words], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == ""
