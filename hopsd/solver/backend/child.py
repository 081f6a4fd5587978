"""Run our own modules as child processes, which can be killed, and whose crash is not ours.

A child reads one question and answers with records. Every complete record counts, even if the child
is killed later.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import IO, Any, BinaryIO, Self, TypeVar
from zipfile import BadZipFile

import numpy as np

# The size of the length that precedes each record, and the longest valid record, in bytes.
_LENGTH, _MAX_BYTES = 8, 1 << 31


T = TypeVar("T")

MALFORMED = (ValueError, EOFError, BadZipFile, KeyError, IndexError)
"""What reading a malformed record with `numpy.load` raises."""


def decoded(records: Iterator[bytes], decode: Callable[[bytes], T]) -> Iterator[T]:
    """Yield the records as ``decode`` reads them, without those that are malformed."""
    for record in records:
        with suppress(*MALFORMED):
            yield decode(record)


class Child:
    """A process that runs ``module``; it starts at once and imports while a question is prepared.

    It is killed when the ``with`` block ends.
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
        """Send the question without waiting for the child."""
        if self._process is not None:
            question_state = self._process, question, self._records
            talk = Thread(target=_talk, args=question_state, daemon=True)
            try:
                talk.start()
            except RuntimeError:  # no thread could be started: go on as if there were no child
                self._records.put(None)
            else:
                self._talk = talk

    def answers(self, give_up: float) -> Iterator[bytes]:
        """Yield the child's records as they come, until its end or ``give_up`` (monotonic s)."""
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
        """Kill the child unless it has ended."""
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
    except Exception:  # noqa: S110  # no answer: the child has ended or the question is unusable
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
        # Buffered data cannot be written once the child has ended.
        with suppress(OSError):
            _pipe(pipe).close()


def _read_record(pipe: IO[bytes]) -> bytes | None:
    """Read the next record; None if it is incomplete or too long."""
    head = pipe.read(_LENGTH)
    length = int.from_bytes(head)
    if len(head) < _LENGTH or length > _MAX_BYTES:
        return None
    record = pipe.read(length)
    return record if len(record) == length else None


def question() -> Any:
    """Read the question; the child calls this before anything else.

    Raises:
        EOFError: there is no question: the parent has none or is gone.
    """
    records()
    return pickle.load(sys.stdin.buffer)  # noqa: S301  # from our own parent


def answer(record: bytes) -> None:
    """Send a record from the child."""
    records().write(len(record).to_bytes(_LENGTH) + record)
    records().flush()


@cache
def records() -> BinaryIO:
    """Return the child's pipe to its parent, which is standard output until the first call.

    From then on, what HiGHS and others print to standard output goes to standard error, so that it
    cannot get between the records.
    """
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return pipe
