"""Complete records of a child process are received however the child ends."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from threading import Thread

import pytest

from hopsd.solver.backend.child import Child

_HEAD = """
import os, signal, sys
from hopsd.solver.backend import child
"""


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def write_module(path: Path, body: str) -> str:
    """Write a module with this body and return its name."""
    (path / "told.py").write_text(_HEAD + body)
    return "told"


def test_records_arrive_as_they_are_written(path: Path) -> None:
    body = """
for part in child.question():
    child.answer(part)
"""
    parts = [b"", b"first", bytes(300_000)]
    with Child(write_module(path, body)) as question:
        question.ask(parts)
        assert list(question.answers(inf)) == parts


def test_a_suspended_child_loses_no_record(path: Path) -> None:
    body = """
child.answer(child.question())
os.kill(os.getpid(), signal.SIGSTOP)
child.answer(b"never")
"""
    with Child(write_module(path, body)) as question:
        question.ask(bytes(300_000))
        assert next(question.answers(inf)) == bytes(300_000)
        assert list(question.answers(0.0)) == []


@pytest.mark.parametrize(
    "end",
    [
        "child.records().write((8).to_bytes(8) + b'half')",
        "child.records().write(b'abc')",
        "child.records().write(b'\\xff' * 30)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "raise SystemExit(3)",
    ],
)
def test_incomplete_records_are_ignored(path: Path, end: str) -> None:
    body = f"""
child.answer(child.question())
{end}
"""
    with Child(write_module(path, body)) as question:
        question.ask(b"whole")
        assert list(question.answers(inf)) == [b"whole"]


def test_output_of_a_library_is_not_a_record(path: Path) -> None:
    body = """
asked = child.question()
os.write(1, b"Running HiGHS")
child.answer(asked)
print("Presolving model", flush=True)
child.answer(asked)
"""
    with Child(write_module(path, body)) as question:
        question.ask(b"whole")
        assert list(question.answers(inf)) == [b"whole"] * 2


def test_without_a_thread_there_is_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    with Child(write_module(path, "child.answer(child.question())")) as question:
        question.ask(b"whole")
        assert list(question.answers(inf)) == []


def test_an_unsendable_question_has_no_answer(path: Path) -> None:
    with Child(write_module(path, "child.answer(child.question())")) as question:
        question.ask(lambda: None)
        assert list(question.answers(inf)) == []


def test_a_child_that_reads_nothing_blocks_nobody(path: Path) -> None:
    with Child(write_module(path, "os.kill(os.getpid(), signal.SIGSTOP)")) as question:
        question.ask(bytes(3_000_000))
        assert list(question.answers(0.0)) == []


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python"])
def test_a_child_that_cannot_start_gives_no_answer(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with Child("told") as question:
        question.ask(bytes(3_000_000))
        assert list(question.answers(inf)) == []


def test_a_child_without_a_question_ends(path: Path) -> None:
    with Child(write_module(path, "child.answer(child.question())")):
        pass
