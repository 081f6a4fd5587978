"""The paper's tables: by GPU count in one server, by server count when spread (section 3.3).

For ``paper_exact``. A spread shape is identified by its number of servers only, so one entry stands
for different shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hopsd.core.speed.layers import Table
from hopsd.core.speed.speed_answer import ASSUMED, SpeedAnswer, record_count
from hopsd.core.speed.throughput import BasicTimes, IterationModel, interpolate, theory_per_gpu


@dataclass(frozen=True, slots=True)
class PaperBase:
    """The layers that need no measured throughput: theory, and below it the assumption.

    ``alone``: samples per second of one GPU. ``times`` is None if communication time is unknown.
    """

    alone: float
    source: str
    times: BasicTimes | None
    model: IterationModel
    assumed_sensitivity: float
    largest: int

    def one_server(self, gpus: int) -> SpeedAnswer:
        if gpus == 1:
            return SpeedAnswer(self.alone, self.source)
        if self.times is None:
            return SpeedAnswer(self.alone, ASSUMED)
        return SpeedAnswer(theory_per_gpu(self.times, gpus, 1, self.model), self.source)

    def spread(self, servers: int) -> SpeedAnswer:
        """Return the base for a number of servers; a spread job is assumed to hold half of each."""
        if self.times is None:
            return SpeedAnswer(self.alone / self.assumed_sensitivity, ASSUMED)
        gpus = servers * max(1, self.largest // 2)
        return SpeedAnswer(theory_per_gpu(self.times, gpus, servers, self.model), self.source)


class Column:
    """One table of the type layer over the layers below it."""

    def __init__(self, speeds: Table, base: Callable[[int], SpeedAnswer]) -> None:
        self._speeds = speeds
        self._per_gpu = {n: m.per_gpu for n, m in speeds.items()}
        self._base = base
        self._ratios = {n: rate / base(n).per_gpu for n, rate in self._per_gpu.items()}

    @property
    def ratio(self) -> float | None:
        """Mean ratio of measured to base throughput; None if nothing was measured."""
        ratios = self._ratios.values()
        return sum(ratios) / len(ratios) if ratios else None

    def answer(self, count: int, other_ratio: float | None) -> SpeedAnswer:
        """Return a measured or interpolated speed, or the layer below, scaled.

        The scale is that of the nearest measurement, or ``other_ratio`` if this table has none: a
        job that trains slower than theory predicts does so wherever it runs.
        """
        if count in self._speeds:
            records = self._speeds[count].records
            return SpeedAnswer(self._per_gpu[count], f"type, {record_count(records)}")
        smaller = [n for n in self._speeds if n < count]
        larger = [n for n in self._speeds if n > count]
        if smaller and larger:
            records = self._speeds[max(smaller)].records + self._speeds[min(larger)].records
            return SpeedAnswer(
                interpolate(self._per_gpu, count), f"type, {record_count(records)} of neighbours"
            )
        base = self._base(count)
        ratio = other_ratio
        if self._ratios:
            ratio = self._ratios[max(smaller) if smaller else min(larger)]
        if ratio is None:
            return base
        note = "" if base.source == ASSUMED else f", scaled by {ratio:.2f}"
        return SpeedAnswer(ratio * base.per_gpu, base.source + note)
