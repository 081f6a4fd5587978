"""Modules of ours as child processes: what could not be killed here, or whose crash would be ours.

A child reads one question and answers with records. What it wrote in whole records is known even
if it is killed later.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import IO, Any, BinaryIO, Self

import numpy as np

# A record: its length in so many bytes, and itself. A longer one is none of ours.
_LENGTH, _MAX_BYTES = 8, 1 << 31


class Child:
    """A ``module`` run as a program from now on, so that it imports while a question is made up.

    Killed when its ``with`` ends.
    """

    def __init__(self, module: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._talk: Thread | None = None
        self._records: SimpleQueue[bytes | None] = SimpleQueue()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            self._records.put(None)

    def ask(self, question: object) -> None:
        """Send the question; at once, whatever the child is doing."""
        if self._process is not None:
            question_state = self._process, question, self._records
            talk = Thread(target=_talk, args=question_state, daemon=True)
            try:
                talk.start()
            except RuntimeError:  # the system has no thread left: as if there were no child
                self._records.put(None)
            else:
                self._talk = talk

    def answers(self, give_up: float) -> Iterator[bytes]:
        """The child's records as they come, until its end or ``give_up`` (monotonic seconds)."""
        while True:
            remaining = give_up - monotonic()
            try:
                record = self._records.get(
                    timeout=max(0.0, remaining) if np.isfinite(remaining) else None
                )
            except Empty:
                return
            if record is None:
                return
            yield record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill it, unless it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._talk is None:
                _close(self._process)


def _talk(
    process: subprocess.Popen[bytes], question: object, records: SimpleQueue[bytes | None]
) -> None:
    try:
        pickle.dump(question, _pipe(process.stdin), protocol=pickle.HIGHEST_PROTOCOL)
        _pipe(process.stdin).close()
        while (record := _read_record(_pipe(process.stdout))) is not None:
            records.put(record)
    except Exception:  # noqa: S110  # it has ended, or the question is none: there is no answer
        pass
    finally:
        records.put(None)
        _close(process)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise OSError("no pipe")
    return pipe


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        # What is still to be written cannot be, once the child has ended.
        with suppress(OSError):
            _pipe(pipe).close()


def _read_record(pipe: IO[bytes]) -> bytes | None:
    """The next record; None if there is no whole one."""
    head = pipe.read(_LENGTH)
    length = int.from_bytes(head)
    if len(head) < _LENGTH or length > _MAX_BYTES:
        return None
    record = pipe.read(length)
    return record if len(record) == length else None


def question() -> Any:
    """In the child, first of all: what it was asked.

    Raises:
        EOFError: nothing; its parent has no question or is gone.
    """
    records()
    return pickle.load(sys.stdin.buffer)  # noqa: S301  # from our own parent


def answer(record: bytes) -> None:
    """In the child: send a record."""
    records().write(len(record).to_bytes(_LENGTH) + record)
    records().flush()


@cache
def records() -> BinaryIO:
    """In the child: the pipe to its parent, standard output until then.

    From now on, what HiGHS and others print to standard output goes where errors go, and cannot
    come between the records.
    """
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return pipe
