"""hops' request to leave, as it reaches a framework's loop."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hops_profiler import environment
from hops_profiler.checkpoint.wishes import Agreement, Asked


class Request:
    """Whether all ranks are to leave: asked once after each step, on all ranks."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self._agreement = asked, Agreement()
        self._granted = False

    def reached(self) -> bool:
        """True from the step on at which the ranks agree."""
        if not self._granted:
            (self._granted,) = self._agreement.reached(self._asked.now)
        return self._granted


def possible(ranks: int) -> bool:
    """Whether a training of ``ranks`` ranks can leave: a script that handles the signal itself
    knows how it saves, and of several trainings in a step, the first to leave would end the others.
    """
    main = threading.current_thread() is threading.main_thread()
    free = main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    return free and (environment.tasks() or 1) <= ranks


def folder_in(base: Path) -> Path:
    """Where this training saves on request, one of several in ``base`` perhaps: the same folder in
    each of the job's runs. `ended` counts on.
    """
    step, before = environment.step(), _ended[base]
    parts = [
        environment.number(),
        *([step] if step else []),
        *([str(before + 1)] if before else []),
    ]
    return base / f"_hops-{'.'.join(parts)}"


def ended(base: Path) -> None:
    """The next training in ``base`` is another."""
    _ended[base] += 1


_ended: Counter[Path] = Counter()


@contextmanager
def listening() -> Iterator[Request]:
    """While this lasts hops' signal does not end the process, but is a request."""
    asked = Asked(signal.SIGUSR1)
    try:
        yield Request(asked)
    finally:
        asked.listen_no_more()


def tried(final: Path, save: Callable[[Path], None]) -> None:
    """Have ``save`` write ``final``. If it cannot, the training is as one that was ended unsaved:
    it begins again from its last checkpoint, and has not failed.
    """
    try:
        save(final)
    except Exception as failure:  # of any framework, logger or file system
        sys.stderr.write(f"hops: {final}: not saved: {failure}\n")
