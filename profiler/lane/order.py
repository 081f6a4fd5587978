"""Whose turn is next: by Hare's policies once every trial's length is known, else round robin.

The policies are in hops itself: ``hopsctl sequence`` is asked in the background. Until it answers,
where it is not installed, and while a trial's length is unknown, trials go round in a circle.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

ROUND_ROBIN = "round-robin"
POLICIES = ("hare-dispatch", "hare-eft", "hare")
MOST_TASKS = 30
"""Of one trial in a question; each stands for as many turns as needed."""

WORTH_SECONDS = 60.0
"""Trials that end together before this are not worth a question: it takes a second of a processor,
and several on a busy node."""


class Order(Generic[T]):
    """The sequence of turns on one GPU, of trials of any hashable kind."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._program = None if policy == ROUND_ROBIN else shutil.which("hopsctl")
        self._process: subprocess.Popen[str] | None = None
        self._about: dict[T, float] = {}
        self._sequence: list[tuple[T, float]] = []

    def arrange(self, circle: Sequence[T], left: Mapping[T, tuple[float, float] | None]) -> list[T]:
        """The trials of ``circle``, which go round in it, by when their next turn comes.

        ``left``: for each the turns it has left and the seconds of one; None if unknown.
        """
        known = {trial: those for trial in circle if (those := left[trial]) is not None}
        if self._program is None or len(known) < len(circle):
            return list(circle)
        self._hear()
        waiting = [trial for trial, _ in self._sequence]
        if not set(circle) <= set(waiting):
            self._ask(known)
            return list(circle)
        return sorted(circle, key=waiting.index)

    def turned(self, trial: T) -> None:
        """``trial`` has had a turn."""
        for place, (each, turns) in enumerate(self._sequence):
            if each == trial:
                self._sequence[place : place + 1] = [(each, turns - 1)] if turns > 1 else []
                return

    def _ask(self, known: Mapping[T, tuple[float, float]]) -> None:
        seconds = sum(turns * each for turns, each in known.values())
        if self._process is not None or seconds < WORTH_SECONDS:
            return
        self._about, words = {}, []
        for trial, (turns, each) in known.items():
            tasks = max(1, min(MOST_TASKS, math.ceil(turns)))
            self._about[trial] = max(1.0, turns / tasks)
            words.append(f"{tasks}x{max(1e-6, each * turns / tasks):.6f}")
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [str(self._program), "sequence", f"--policy={self._policy}", *words], text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def _hear(self) -> None:
        """Take up an answer, if one has come."""
        if self._process is None or self._process.poll() is None:
            return
        answer, _ = self._process.communicate()
        self._process = None
        trials = list(self._about)
        places = [int(word) - 1 for word in answer.split() if word.isdigit()]
        if set(places) != set(range(len(trials))):
            self._program = None  # it has no such command, or cannot be used here
            return
        self._sequence = [
            (trials[place], self._about[trials[place]] * len(list(those)))
            for place, those in groupby(places)
        ]
