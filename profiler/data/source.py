"""The sources of a loader's samples, and a training's position in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hops_profiler.data.order import Share


@dataclass(frozen=True)
class Position:
    """After ``step`` steps in total, ``offset`` of them in epoch ``epoch``. ``stream`` is the state
    of iterable data after them, None if unknown.
    """

    epoch: int = 0
    offset: int = 0
    step: int = 0
    stream: Any = None

    def after_step(self, stream: Any) -> Position:
        return Position(self.epoch, self.offset + 1, self.step + 1, stream)

    def after_epoch(self) -> Position:
        return Position(self.epoch + 1, 0, self.step)

    def as_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "offset": self.offset,
            "step": self.step,
            "stream": self.stream,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Position:
        """Read what `as_dict` made. Raises ValueError if a count is missing or invalid."""
        counts = []
        for name in ("epoch", "offset", "step"):
            value = state.get(name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is {value!r}: give a whole number from 0")
            counts.append(value)
        epoch, offset, step = counts
        return cls(epoch, offset, step, state.get("stream"))


@dataclass(frozen=True)
class Batches:
    """One rank's part of a step of ``size`` samples: the ``sizes`` of its micro-batches, which
    ``iterator`` yields next. ``state`` is that of iterable data after the step. ``fingerprint`` of
    the step's samples is the same on ranks that read the same; "" if it was not taken.
    """

    size: int
    sizes: list[int]
    iterator: Iterator[Any]
    state: Any = None
    fingerprint: str = ""


class Source:
    """What a loader reads. ``samples`` and ``steps_per_epoch`` of an epoch are None if unknown."""

    samples: int | None = None
    shuffle = False
    steps_per_epoch: int | None = None

    def read(self, position: Position, share: Share) -> Iterator[Batches]:
        """Yield the steps that follow ``position`` in its epoch. The caller draws each step's
        batches before it asks for the next step.
        """
        raise NotImplementedError
