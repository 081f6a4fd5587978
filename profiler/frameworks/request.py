"""hops' request to leave, as it reaches a framework's loop."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
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


def training(job: str, folder: Path) -> str:
    """A name for this training in ``folder``, the same in each of the job's runs."""
    _begun[folder] += 1
    return job if _begun[folder] == 1 else f"{job}.{_begun[folder]}"


_begun: Counter[Path] = Counter()


@contextmanager
def listening() -> Iterator[Request]:
    """While this lasts hops' signal does not end the process, but is a request."""
    asked = Asked(signal.SIGUSR1)
    try:
        yield Request(asked)
    finally:
        asked.listen_no_more()
