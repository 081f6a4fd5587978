"""A thread beside the training that looks whether it moves.

A step is a sign of life, and so is everything else that a process does: a Python stack that
changes, processor time of it or its children, bytes read or written. An evaluation, a save, a
compilation or the preparation of data shows some of these all the time; a training that waits for a
rank that never comes shows none. For how long none was ever seen is learnt.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hops_profiler.stall import activity, stacks

LOOK_SECONDS = 2.0
WORD_SECONDS = 5.0
"""A training without steps says so often that it is alive."""

QUIET_SECONDS = 8.0
"""Without a step for so long, a training says so besides its usual reports."""

LEAST_SECONDS = 20.0
"""No training stands still before it shows no life for so long."""

LEAST_SIDE_SECONDS = 1800.0
"""The same while it evaluates, saves, compiles, prepares data or waits for a disk."""

TIMES = 3.0
"""A training stands still once it shows no life for so many times the longest that it ever did and
went on."""

PLACE_SECONDS = 10.0
"""At the same place for so long, a thread that uses its processor may wait for a GPU, which CUDA
does by spinning."""

FORGET_STEPS = 10
"""In so many steps the longest wait for other ranks loses half of its weight: while one of them
evaluates, the others learn nothing of how long communication takes."""

BUSY_SHARE = 0.03
"""Of one processor: with less, only threads work that do so all the time, as those of loggers."""

BUSY_BYTES = 1 << 20
"""Read or written between two looks: more than a log's lines."""


class Watchdog:
    """``steps``: how many iterations the training has done; ``thread``: which thread trains;
    ``evaluates``: whether it put a model into the mode for that since its last step; ``say``
    writes a report, which has :meth:`word`.
    """

    def __init__(
        self,
        steps: Callable[[], int],
        thread: Callable[[], int | None],
        evaluates: Callable[[], bool],
        say: Callable[[], None],
        stacks_name: str,
    ) -> None:
        self._steps, self._thread, self._evaluates = steps, thread, evaluates
        self._say, self._stacks_name = say, stacks_name
        self._folder = str(Path(_working_folder(), "hops-stacks"))
        self._judgement = Judgement()
        self._word: dict[str, Any] | None = None
        self._works = False

    def start(self) -> None:
        """Look from now on, until the process ends."""
        if not self._works:
            self._works = True
            try:
                _thread.start_new_thread(self._work, ())
            except RuntimeError:  # no more threads can be had
                self._works = False

    def word(self) -> dict[str, Any] | None:
        """What the report says of it; None while the training makes its steps."""
        return self._word

    def _work(self) -> None:
        done, since, said = self._steps(), time.monotonic(), 0.0
        while True:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            steps = self._steps()
            if steps != done:
                self._judgement.stepped(now, steps - done)
                done, since = steps, now
                self._forget()
                continue
            try:
                newly = self._look(now, now - since)
                if newly or (now - since >= QUIET_SECONDS and now - said >= WORD_SECONDS):
                    said = now
                    self._say()
            except Exception:  # the training goes on without
                self._word = None
                return

    def _look(self, now: float, quiet: float) -> bool:
        """Look once; True if the training stands still, and did not before."""
        judgement = self._judgement
        sample = self._sample(look_at_gpu=judgement.same_place(now) >= PLACE_SECONDS)
        newly = judgement.look(now, sample)
        place = sample.place
        if judgement.state == "busy":
            self._forget()
        word: dict[str, Any] = {
            "state": judgement.state,
            "stalled": judgement.stalled,
            "quiet": round(quiet, 1),
            "still": round(judgement.still(now), 1),
            "limit": round(judgement.limit, 1),
            "line": place.line[:200],
            "waits_in": sample.waits_in[:60],
            "stacks": (self._word or {}).get("stacks"),
        }
        if newly:
            title = f"{word['state']} for {word['still']:.0f} s at {word['line']}"
            word["stacks"] = stacks.write(self._folder, self._stacks_name, title)
        self._word = word
        return newly

    def _forget(self) -> None:
        """It moves (again): what was written of its stacks is of no use."""
        written = (self._word or {}).get("stacks")
        self._word = None
        if written:
            stacks.remove(written)

    def _sample(self, *, look_at_gpu: bool) -> Sample:
        thread = self._thread() or threading.main_thread().ident
        frame = sys._current_frames().get(thread or 0)
        place = stacks.place(frame, several_ranks=_several_ranks())
        native = threading.main_thread().native_id
        interactive = place.interactive or (native is not None and activity.reads_terminal(native))
        return Sample(
            place,
            activity.processor_seconds(),
            activity.bytes_moved(),
            interactive=interactive,
            side_work=place.side_work or self._evaluates() or activity.waits_for_disk(),
            gpu_unfinished=look_at_gpu and _gpu_unfinished(),
        )


class Sample:
    """What one look saw."""

    def __init__(
        self,
        place: stacks.Place,
        processor_seconds: float,
        bytes_moved: int,
        *,
        interactive: bool = False,
        side_work: bool = False,
        gpu_unfinished: bool = False,
    ) -> None:
        self.place = place
        self.processor_seconds = processor_seconds
        self.bytes_moved = bytes_moved
        self.interactive = interactive
        self.side_work = side_work
        self.gpu_unfinished = gpu_unfinished

    @property
    def waits_in(self) -> str:
        """The call in which it waits for other ranks or for the GPU; "" if in none."""
        return self.place.waits_in or ("GPU" if self.gpu_unfinished else "")


class Judgement:
    """What a row of samples says, and what usual pauses are. Times are seconds of one clock.

    ``state``: "busy", "interactive" (somebody debugs, or types), "waiting" for other ranks or
    "stopped" elsewhere. ``stalled``: it has been one of the last two for longer than ``limit``.
    """

    def __init__(self) -> None:
        self.state = "busy"
        self.stalled = False
        self.limit = LEAST_SECONDS
        self._since: float | None = None
        self._last: Sample | None = None
        self._at = 0.0
        self._same_place: float | None = None
        self._side_work = False
        self._longest = {False: 0.0, True: 0.0}
        self._longest_wait = 0.0

    def still(self, now: float) -> float:
        """Seconds without any sign of life."""
        return 0.0 if self._since is None else now - self._since

    def same_place(self, now: float) -> float:
        """Seconds for which the thread has been seen at the same place."""
        return 0.0 if self._same_place is None else now - self._same_place

    def stepped(self, now: float, steps: int = 1) -> None:
        """The training made so many steps."""
        self._moved(now)
        self._longest_wait *= 0.5 ** (steps / FORGET_STEPS)
        self._last = self._same_place = None

    def look(self, now: float, sample: Sample) -> bool:
        """Judge a look at ``now``. True if the training is stalled, and was not before."""
        last, self._last = self._last, sample
        before, self._at = self._at, now
        if last is None or last.place.signature != sample.place.signature:
            self._same_place = now
        if last is None or sample.interactive or _lives(last, sample, now - before):
            self._moved(now)
            self.state = "interactive" if sample.interactive else "busy"
            return False
        if self._since is None:
            self._since = before
        self._side_work = self._side_work or sample.side_work
        self.state = "waiting" if sample.waits_in else "stopped"
        self.limit = max(LEAST_SECONDS, TIMES * self._longest_wait)
        if self.state == "stopped":
            least = LEAST_SIDE_SECONDS if self._side_work else LEAST_SECONDS
            self.limit = max(least, TIMES * self._longest[self._side_work])
        newly = not self.stalled and self.still(now) >= self.limit
        self.stalled = self.stalled or newly
        return newly

    def _moved(self, now: float) -> None:
        """There was a sign of life: so long a pause is usual."""
        pause = self.still(now)
        if self.state == "waiting":
            self._longest_wait = max(self._longest_wait, pause)
        else:
            self._longest[self._side_work] = max(self._longest[self._side_work], pause)
        self._since, self.stalled, self._side_work = None, False, False
        self.state = "busy"


def _lives(last: Sample, sample: Sample, seconds: float) -> bool:
    busy = sample.processor_seconds - last.processor_seconds
    return (
        sample.place.signature != last.place.signature
        or (busy > BUSY_SHARE * seconds and not sample.gpu_unfinished)
        or sample.bytes_moved - last.bytes_moved > BUSY_BYTES
    )


def _several_ranks() -> bool:
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available():
        return False
    return bool(dist.is_initialized() and dist.get_world_size() > 1)


def _gpu_unfinished() -> bool:
    """Whether a GPU has not done what this process gave it."""
    used = activity.used_gpus()
    return not all(sys.modules["torch"].cuda.default_stream(device).query() for device in used)


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return "/nonexistent"
