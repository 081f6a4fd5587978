"""How many iterations a training will have done at its end, as far as the program shows it."""

from __future__ import annotations

import sys
from math import prod

from hops_profiler.timing.loops import Limit, Loop, Loops, frames, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STEADY = 3
"""Looks by which a number has to have grown in step with the iterations before it is believed to
end the training: a counter of bad epochs ends it, too, but does not grow steadily."""

TOLERANCE = 0.1

MOST_LIMITS = 16

MOST_ITERATIONS = 1e15
"""hopsd refuses a report with more. Loops that go on until they are stopped count to more."""

_LIGHTNING = ("lightning", "pytorch_lightning")


class Pass:
    """The pass over a loader that the training is in: batches done and in all, and how many of
    them an iteration takes.
    """

    def __init__(self, done: int, batches: int, each: float) -> None:
        self.done = done
        self.batches = batches
        self.each = each


class Length:
    """Looks at the frames that led to a step. ``began``: the program's start, s since the epoch."""

    def __init__(self, began: float) -> None:
        self._loops = Loops(began)
        self._seen: dict[Any, list[tuple[int, float]]] = {}

    def iterations(self, done: int, read: Pass | None) -> float | None:
        """The iterations of this process in all, of which ``done`` are done; None if unknown.

        `ElasticLoader` knows; transformers' Trainer and Lightning's, too, and the loops around them
        count. Of other
        programs, what is left of the loops over ranges and over the loader that is ``read``, or of
        a number that steadily grows to where the outermost loop ends.
        """
        left = _loader_left()
        left = self._left(done, read) if left is None else left
        return done + left if left is not None and done + left <= MOST_ITERATIONS else None

    def _left(self, done: int, read: Pass | None) -> float | None:
        around: list[Loop] = []
        readable = True
        trainer: tuple[float, float] | None = None
        for frame in frames():
            with variables(frame) as local:
                known = _trainer(local.get("self"))
                if known is not None:  # whatever is within it is its own
                    trainer, around, readable = known, [], True
                    continue
                loops = self._loops.around(frame, local)
                readable = readable and loops is not None
                around.extend(loops or ())
        if trainer is not None and readable:
            left = _times(around, *trainer)
            return None if left == float("inf") else left
        if not around or not readable:
            return None
        left = _loops_left(around, read)
        if left is not None and all(loop.passes is not None for loop in around):
            # No loop over what is read, if anything is. Where not each pass so far was one
            # iteration (some only fill a replay buffer), their ratio is seen from look to look.
            passes = prod(loop.passes or 1 for loop in around) - left
            if read or done == 1 or passes != done:
                left = self._limit_left(Limit("loops", -left, 0.0), done)
        ends = [left]
        ends += [self._limit_left(limit, done) for limit in around[-1].limits]
        return min((each for each in ends if each is not None), default=None)

    def _limit_left(self, limit: Limit, done: int) -> float | None:
        """Iterations left until ``limit``, if it grew steadily from look to look."""
        if limit.where not in self._seen and len(self._seen) >= MOST_LIMITS:
            return None
        looks = self._seen.setdefault(limit.where, [])
        if not looks or done > looks[-1][0]:
            looks.append((done, limit.value))
            del looks[1:-STEADY]
        if len(looks) < STEADY:
            return None
        pairs = zip(looks, looks[1:])  # noqa: B905, RUF007 - Python 3.8
        rates = [(after - before) / (done - at) for (at, before), (done, after) in pairs]
        if min(rates) <= 0.0 or max(rates) > (1.0 + TOLERANCE) * min(rates):
            return None
        rate = (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0])
        return max(0.0, limit.end - limit.value) / rate


def _loops_left(loops: list[Loop], read: Pass | None) -> float | None:
    """Iterations left of ``loops``, the innermost first."""
    within = 0  # a loop within the loader's goes over one batch several times
    while within < len(loops) and loops[within].passes is not None:
        within += 1
    left, passes = 0.0, 1.0
    if within < len(loops):
        if read is None or loops[within].endless:
            return None
        left, passes = (read.batches - read.done) / read.each, read.batches / read.each
        loops = loops[within + 1 :]
    return _times(loops, left, passes)


def _times(loops: list[Loop], left: float, passes: float) -> float | None:
    """Iterations left of ``loops`` around a pass of so many, of which ``left`` are left."""
    for loop in loops:
        if loop.passes is None:
            return None
        left += loop.left * passes
        passes *= loop.passes
    return left


def _loader_left() -> float | None:
    """Of an `ElasticLoader`, whose steps are the same on any number of ranks."""
    module = sys.modules.get("hops_profiler.data.elastic")
    loader = module.loader_in_use() if module else None
    return None if loader is None else loader.steps_left


def _trainer(owner: Any) -> tuple[float, float] | None:
    """Iterations left and in all if ``owner`` is a trainer that knows.

    It counts a step once it is over, and the one just timed is not: it is within.
    """
    kinds = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(owner).__mro__}
    if ("transformers", "Trainer") in kinds:
        end = float(owner.state.max_steps)
        return max(0.0, end - owner.state.global_step - 1), end
    if any((package, "Trainer") in kinds for package in _LIGHTNING):
        return _lightning(owner)
    return None


def _lightning(trainer: Any) -> tuple[float, float]:
    """Infinite without an end. Lightning counts the steps of all optimizers."""
    optimizers = max(1, len(trainer.optimizers))
    ends = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        steps = -(-trainer.num_training_batches // trainer.accumulate_grad_batches)
        ends.append(trainer.max_epochs * steps * optimizers)
    if trainer.max_steps >= 0:
        ends.append(trainer.max_steps)
    end = min(ends, default=float("inf"))
    return max(0.0, (end - trainer.global_step - 1) // optimizers), end // optimizers
