"""CPU seconds of a process, of its commands and of slurmctld, by stage."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of hopsd, of its commands and of slurmctld, and ``wall`` seconds."""

    cpu: float = 0.0
    commands: float = 0.0
    slurmctld: float = 0.0
    wall: float = 0.0

    def __add__(self, addend: Cost) -> Cost:
        return Cost(*map(sum, zip(self.figures, addend.figures, strict=True)))

    def __sub__(self, subtrahend: Cost) -> Cost:
        return Cost(*(a - b for a, b in zip(self.figures, subtrahend.figures, strict=True)))

    @property
    def figures(self) -> tuple[float, ...]:
        return self.cpu, self.commands, self.slurmctld, self.wall


class Clock:
    """Cost by stage; a nested stage counts only as itself."""

    def __init__(self, slurmctld: int) -> None:
        self._slurmctld = Path(f"/proc/{slurmctld}/stat")
        self._stages = ["rest"]
        self._last = self._totals()
        self.costs: dict[str, Cost] = {}

    def _totals(self) -> Cost:
        ran = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = self._slurmctld.read_text().rpartition(")")[2].split()
        ticks = int(words[11]) + int(words[12])
        return Cost(
            cpu=time.process_time(),
            commands=ran.ru_utime + ran.ru_stime,
            slurmctld=ticks / os.sysconf("SC_CLK_TCK"),
            wall=time.perf_counter(),
        )

    def turn(self) -> None:
        """Charge the time since the last turn to the current stage."""
        totals = self._totals()
        stage = self._stages[-1]
        self.costs[stage] = self.costs.get(stage, Cost()) + (totals - self._last)
        self._last = totals

    def wrap(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            self.turn()
            self._stages.append(stage)
            try:
                return call(*arguments, **keywords)
            finally:
                self.turn()
                self._stages.pop()

        return wrapper

    def take(self) -> dict[str, Cost]:
        self.turn()
        costs, self.costs = self.costs, {}
        return costs
