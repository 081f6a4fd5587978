"""Tells evaluations from rollouts: both run a model in blocks that build no graph.

A training cannot begin before its first rollout, but it can before its first evaluation.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from hops_profiler.timing.counts import Counts

EARLY = 8
"""First iterations, whose blocks belong to the training: it was not seen to do without them."""

SHORT = 1 / 64
"""Blocks below this share of an iteration are ignored, such as the update of a moving average."""

MOST_BLOCKS = 256

DECORATOR = "_contextlib.py"
"""File of PyTorch's that enters the block around functions decorated with `torch.no_grad()`."""


class GraphlessBlocks:
    """Blocks under `no_grad` and `inference_mode` in a training, by the code that they are in."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, with another training."""
        self._early: set[Any] = set()
        self._iteration: Any = None
        self._early_seconds = self._later_seconds = 0.0

    def add(self, counts: Counts, steps_left: int, took: float, frame: FrameType) -> bool | None:
        """Note a block that ``took`` so many seconds and ends in ``frame``. ``counts`` are behind;
        ``steps_left`` until they are renewed.

        Returns None until those of this iteration have together taken longer than a usual one;
        then whether those alone did that the first iterations had none of.
        """
        if counts.iterations < EARLY and len(self._early) < MOST_BLOCKS:
            self._early.add(_place(frame))
        usual = counts.iteration.mean
        if not usual or took < usual * SHORT:
            return None
        iteration = counts.iterations, steps_left
        if iteration != self._iteration:
            self._iteration = iteration
            self._early_seconds = self._later_seconds = 0.0
        if _place(frame) in self._early:
            self._early_seconds = max(self._early_seconds, took)
        else:
            self._later_seconds += took
        if max(self._early_seconds, self._later_seconds) <= usual:
            return None
        return self._later_seconds > usual


def _place(frame: FrameType) -> Any:
    """The code of a decorated function, or of the block: its function and the place in it."""
    code = frame.f_code
    if code.co_filename.endswith(DECORATOR):
        function = frame.f_locals.get("func")
        return getattr(function, "__code__", code)
    return code, frame.f_lasti
