"""A thread that watches whether the training makes progress.

Signs of life are steps, a changing Python stack, CPU time of the process or its children, and bytes
read or written. An evaluation, a save, a compilation or data preparation always shows some of them;
a training that waits for a dead rank shows none. The watchdog learns the longest pause that is
normal.
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
"""Interval of reports that a training without steps is alive."""

QUIET_SECONDS = 8.0
"""Time without a step after which a training sends additional reports."""

MIN_SECONDS = 20.0
"""Minimum time without signs of life before a training counts as stalled."""

MIN_SIDE_SECONDS = 1800.0
"""The same while the training evaluates, saves, compiles, prepares data or waits for a disk."""

TIMES = 3.0
"""A training is stalled after this multiple of the longest pause from which it recovered."""

PLACE_SECONDS = 10.0
"""Time at one place after which a thread that uses its CPU may wait for a GPU: CUDA spins."""

FORGET_STEPS = 10
"""Half-life, in steps, of the longest wait for other ranks, since a wait while one of them
evaluates says nothing about communication."""

BUSY_SHARE = 0.03
"""Share of one CPU below which only background threads, such as loggers, work."""

BUSY_BYTES = 1 << 20
"""Bytes read or written between two looks that are more than log lines."""


class Watchdog:
    """``steps`` returns the number of iterations so far, ``thread`` the training thread, and
    ``evaluates`` whether a model was put into evaluation mode since the last step; ``say`` writes a
    report, which includes :meth:`word`.
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
        """Start the watching thread, which ends with the process."""
        if not self._works:
            self._works = True
            try:
                _thread.start_new_thread(self._work, ())
            except RuntimeError:  # out of threads
                self._works = False

    def word(self) -> dict[str, Any] | None:
        """Return the stall entry of the report; None while the training makes steps."""
        return self._word

    def _work(self) -> None:
        last_steps, step_time, report_time = self._steps(), time.monotonic(), 0.0
        while True:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            steps = self._steps()
            if steps != last_steps:
                self._judgement.record_steps(now, steps - last_steps)
                last_steps, step_time = steps, now
                self._forget()
                continue
            try:
                newly = self._look(now, now - step_time)
                if newly or (
                    now - step_time >= QUIET_SECONDS and now - report_time >= WORD_SECONDS
                ):
                    report_time = now
                    self._say()
            except Exception:  # the training continues unwatched
                self._word = None
                return

    def _look(self, now: float, quiet: float) -> bool:
        """Look once; return True if the training has stalled since the last look."""
        judgement = self._judgement
        sample = self._sample(look_at_gpu=judgement.same_place(now) >= PLACE_SECONDS)
        newly = judgement.look(now, sample)
        place = sample.place
        if judgement.state == "busy":
            self._forget()
        word: dict[str, Any] = {
            "state": judgement.state,
            "stalled": judgement.is_stalled,
            "quiet": round(quiet, 1),
            "still": round(judgement.still_seconds(now), 1),
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
        """Discard the entry and the stacks, since the training makes progress."""
        path = (self._word or {}).get("stacks")
        self._word = None
        if path:
            stacks.remove(path)

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
    """Observation of one look."""

    def __init__(
        self,
        place: stacks.StackPosition,
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
        """The call in which the thread waits for other ranks or the GPU; "" if there is none."""
        return self.place.waits_in or ("GPU" if self.gpu_unfinished else "")


class Judgement:
    """Judges a series of samples and learns normal pauses. Times are seconds of one clock.

    ``state`` is "busy", "interactive" (somebody debugs, or types), "waiting" for other ranks or
    "stopped" elsewhere. ``is_stalled``: it has been one of the last two for longer than ``limit``.
    """

    def __init__(self) -> None:
        self.state = "busy"
        self.is_stalled = False
        self.limit = MIN_SECONDS
        self._still_since: float | None = None
        self._last: Sample | None = None
        self._look_time = 0.0
        self._same_place: float | None = None
        self._side_work = False
        self._longest = {False: 0.0, True: 0.0}
        self._longest_wait = 0.0

    def still_seconds(self, now: float) -> float:
        """Seconds without any sign of life."""
        return 0.0 if self._still_since is None else now - self._still_since

    def same_place(self, now: float) -> float:
        """Seconds that the thread has been at the same place."""
        return 0.0 if self._same_place is None else now - self._same_place

    def record_steps(self, now: float, steps: int = 1) -> None:
        """Record ``steps`` steps of the training."""
        self._record_life(now)
        self._longest_wait *= 0.5 ** (steps / FORGET_STEPS)
        self._last = self._same_place = None

    def look(self, now: float, sample: Sample) -> bool:
        """Judge ``sample`` at ``now``; return True if the training has stalled since the last."""
        last, self._last = self._last, sample
        previous_time, self._look_time = self._look_time, now
        if last is None or last.place.signature != sample.place.signature:
            self._same_place = now
        if last is None or sample.interactive or _lives(last, sample, now - previous_time):
            self._record_life(now)
            self.state = "interactive" if sample.interactive else "busy"
            return False
        if self._still_since is None:
            self._still_since = previous_time
        self._side_work = self._side_work or sample.side_work
        self.state = "waiting" if sample.waits_in else "stopped"
        self.limit = max(MIN_SECONDS, TIMES * self._longest_wait)
        if self.state == "stopped":
            minimum = MIN_SIDE_SECONDS if self._side_work else MIN_SECONDS
            self.limit = max(minimum, TIMES * self._longest[self._side_work])
        newly = not self.is_stalled and self.still_seconds(now) >= self.limit
        self.is_stalled = self.is_stalled or newly
        return newly

    def _record_life(self, now: float) -> None:
        """Record a sign of life; the pause that it ends is normal."""
        pause = self.still_seconds(now)
        if self.state == "waiting":
            self._longest_wait = max(self._longest_wait, pause)
        else:
            self._longest[self._side_work] = max(self._longest[self._side_work], pause)
        self._still_since, self.is_stalled, self._side_work = None, False, False
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
    """Whether a GPU still has work of this process."""
    gpus = activity.used_gpus()
    return not all(sys.modules["torch"].cuda.default_stream(device).query() for device in gpus)


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # removed
        return "/nonexistent"
