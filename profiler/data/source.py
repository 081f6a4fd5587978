"""Where a loader's samples come from, and how far a training has come in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hops_profiler.data.order import Share


@dataclass(frozen=True)
class Position:
    """``step`` steps are done in all, ``offset`` of them in the epoch ``epoch``. ``stream``: the
    state of data that is iterated, after them; None: unknown.
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
        """Raises ValueError where a count is missing or is none."""
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
    """One rank's part of a step of ``size`` samples: ``sizes`` of its micro-batches, which
    ``iterator`` yields next. ``state``: that of iterated data after the step. ``fingerprint``: of
    the whole step's samples, the same on ranks that read the same; "": it was not taken.
    """

    size: int
    sizes: list[int]
    iterator: Iterator[Any]
    state: Any = None
    fingerprint: str = ""


class Source:
    """What a loader reads. ``samples`` of an epoch and ``steps_per_epoch``: None if unknown."""

    samples: int | None = None
    shuffle = False
    steps_per_epoch: int | None = None

    def read(self, position: Position, share: Share) -> Iterator[Batches]:
        """The steps of the epoch of ``position`` that follow it. Each step's batches are drawn
        before the next step is asked for.
        """
        raise NotImplementedError
