"""Predicts how many iterations a training will have done at its end, if the program shows it."""

from __future__ import annotations

import sys
from math import prod

from hops_profiler.timing.loops import Loop, LoopEnd, Loops, frames, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MIN_OBSERVATIONS = 3
"""Number of observations over which a number must have grown in step with the iterations before it
is expected to end the training. A counter of bad epochs ends training, too, but grows unsteadily.
"""

TOLERANCE = 0.1

MAX_LIMITS = 16

MAX_ITERATIONS = 1e15
"""hopsd rejects a report with more. Loops that run until they are stopped count to more."""

_LIGHTNING = ("lightning", "pytorch_lightning")


class LoaderPass:
    """The current pass over a loader: ``position`` of its ``batches`` batches are done, and an
    iteration takes ``per_iteration`` of them.
    """

    def __init__(self, position: int, batches: int, per_iteration: float) -> None:
        self.position = position
        self.batches = batches
        self.per_iteration = per_iteration


class Length:
    """Reads the frames that led to a step; ``begin`` is the program's start, s since the epoch."""

    def __init__(self, begin: float) -> None:
        self._loops = Loops(begin)
        self._observations: dict[Any, list[tuple[int, float]]] = {}

    def iterations(self, count: int, loader: LoaderPass | None) -> float | None:
        """Total iterations of this process, of which ``count`` are done; None if unknown.

        `ElasticLoader` and the Trainers of transformers and Lightning know their number; loops
        around a trainer multiply it. For other programs, it is computed from the loops over ranges
        and over the ``loader`` that is read, or from a number that steadily grows to the value at
        which the outermost loop ends.
        """
        remaining = _elastic_remaining()
        remaining = self._remaining(count, loader) if remaining is None else remaining
        if remaining is None or count + remaining > MAX_ITERATIONS:
            return None
        return count + remaining

    def _remaining(self, count: int, loader: LoaderPass | None) -> float | None:
        loops: list[Loop] = []
        readable = True
        trainer: tuple[float, float] | None = None
        for frame in frames():
            with variables(frame) as local:
                frame_trainer = _trainer(local.get("self"))
                if frame_trainer is not None:  # the loops inside are those of the trainer
                    trainer, loops, readable = frame_trainer, [], True
                    continue
                frame_loops = self._loops.around(frame, local)
                readable = readable and frame_loops is not None
                loops.extend(frame_loops or ())
        if trainer is not None and readable:
            remaining = _multiply(loops, *trainer)
            return None if remaining == float("inf") else remaining
        if not loops or not readable:
            return None
        remaining = _loops_remaining(loops, loader)
        if remaining is not None and all(loop.passes is not None for loop in loops):
            # No loop reads a loader. Unless each pass so far was one iteration, observe the ratio
            # of passes to iterations: some passes only fill a replay buffer.
            passes = prod(loop.passes or 1 for loop in loops) - remaining
            if loader or count == 1 or passes != count:
                remaining = self._until(LoopEnd("loops", -remaining, 0.0), count)
        ends = [remaining, *(self._until(limit, count) for limit in loops[-1].limits)]
        return min((end for end in ends if end is not None), default=None)

    def _until(self, limit: LoopEnd, count: int) -> float | None:
        """Iterations until ``limit`` is reached, if its value grew steadily; else None."""
        if limit.key not in self._observations and len(self._observations) >= MAX_LIMITS:
            return None
        points = self._observations.setdefault(limit.key, [])
        if not points or count > points[-1][0]:
            points.append((count, limit.value))
            del points[1:-MIN_OBSERVATIONS]
        if len(points) < MIN_OBSERVATIONS:
            return None
        pairs = zip(points, points[1:])  # noqa: B905, RUF007 - Python 3.8
        rates = [(end[1] - start[1]) / (end[0] - start[0]) for start, end in pairs]
        if min(rates) <= 0.0 or max(rates) > (1.0 + TOLERANCE) * min(rates):
            return None
        rate = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
        return max(0.0, limit.end - limit.value) / rate


def _loops_remaining(loops: list[Loop], loader: LoaderPass | None) -> float | None:
    """Remaining iterations of ``loops``, the innermost first."""
    inner = 0  # loops inside the one over the loader use a batch several times
    while inner < len(loops) and loops[inner].passes is not None:
        inner += 1
    remaining, passes = 0.0, 1.0
    if inner < len(loops):
        if loader is None or loops[inner].endless:
            return None
        remaining = (loader.batches - loader.position) / loader.per_iteration
        passes = loader.batches / loader.per_iteration
        loops = loops[inner + 1 :]
    return _multiply(loops, remaining, passes)


def _multiply(loops: list[Loop], remaining: float, passes: float) -> float | None:
    """Remaining iterations of ``loops`` around one of ``passes``, of which some ``remaining``."""
    for loop in loops:
        if loop.passes is None:
            return None
        remaining += loop.remaining * passes
        passes *= loop.passes
    return remaining


def _elastic_remaining() -> float | None:
    """Remaining steps of the `ElasticLoader` in use, on any number of ranks; None without one."""
    module = sys.modules.get("hops_profiler.data.elastic")
    loader = module.loader_in_use() if module else None
    return None if loader is None else loader.steps_left


def _trainer(owner: Any) -> tuple[float, float] | None:
    """Remaining and total iterations, if ``owner`` is a trainer that knows them; else None.

    A trainer counts a step only after its end, so the current step is not counted yet.
    """
    kinds = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(owner).__mro__}
    if ("transformers", "Trainer") in kinds:
        end = float(owner.state.max_steps)
        return max(0.0, end - owner.state.global_step - 1), end
    if any((package, "Trainer") in kinds for package in _LIGHTNING):
        return _lightning(owner)
    return None


def _lightning(trainer: Any) -> tuple[float, float]:
    """Like :func:`_trainer`; infinite if no end is set. Lightning counts all optimizers' steps."""
    optimizers = max(1, len(trainer.optimizers))
    ends = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        steps = -(-trainer.num_training_batches // trainer.accumulate_grad_batches)
        ends.append(trainer.max_epochs * steps * optimizers)
    if trainer.max_steps >= 0:
        ends.append(trainer.max_steps)
    end = min(ends, default=float("inf"))
    return max(0.0, (end - trainer.global_step - 1) // optimizers), end // optimizers
