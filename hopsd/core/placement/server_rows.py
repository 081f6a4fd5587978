"""The rows of a program for servers, and what shapes take of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hopsd.core.placement.available import AvailableResources, cores_of, memory_of
from hopsd.core.placement.demands import Demands
from hopsd.core.placement.shapes import ShapesOfSize
from hopsd.model.arrays import Ints
from hopsd.model.job import Job
from hopsd.model.rules import Rules


class ServerRows:
    """The rows of the servers: GPUs of each, and cores and memory where jobs could run short."""

    def __init__(self, available: AvailableResources, jobs: Sequence[Job]) -> None:
        self.available = available
        count, unit = len(available.nodes), np.ones(1, dtype=np.int64)
        rules = {job.rules for job in jobs}
        cores = max((int(cores_of(r, unit)[0]) for r in rules), default=0)
        memory = max((int(memory_of(r, unit)[0]) for r in rules), default=0)
        idle = np.maximum(available.gpus, 0)
        self._counts = np.arange(int(idle.max(initial=0)) + 1)
        self._needs: dict[Rules, tuple[Ints, Ints]] = {}
        short_of_cores = np.flatnonzero(available.cores < cores * idle.astype(np.float64))
        short_of_memory = np.flatnonzero(available.memory < memory * idle.astype(np.float64))
        self.cores, self.memory = np.full(count, -1), np.full(count, -1)
        self.cores[short_of_cores] = count + np.arange(len(short_of_cores))
        self.memory[short_of_memory] = count + len(short_of_cores) + np.arange(len(short_of_memory))
        self.capacity = np.concatenate(
            [
                available.gpus,
                np.maximum(available.cores[short_of_cores], 0),
                np.maximum(available.memory[short_of_memory], 0),
            ]
        )
        self.server = np.concatenate([np.arange(count), short_of_cores, short_of_memory])

    def _needs_by_count(self, rules: Rules) -> tuple[Ints, Ints]:
        """Return the cores and the memory that 0, 1, 2, ... GPUs on one server take."""
        if rules not in self._needs:
            self._needs[rules] = cores_of(rules, self._counts), memory_of(rules, self._counts)
        return self._needs[rules]

    def demands(self, shapes: ShapesOfSize, rules: Rules) -> Demands:
        """Return what shapes take under ``rules``, never more of a row than there is."""
        servers, gpus = shapes.servers, shapes.gpus
        if rules.exclusive:
            row, amount, in_use = servers, self.available.gpus[servers], np.ones_like(servers, bool)
        else:
            parts = [(servers, gpus)]
            for rows, amounts in zip(
                (self.cores, self.memory), self._needs_by_count(rules), strict=True
            ):
                if (rows[servers] >= 0).any():
                    parts.append((rows[servers], amounts[gpus]))
            row = np.concatenate([r for r, _ in parts], axis=1)
            in_use = row >= 0
            amount = np.concatenate([a for _, a in parts], axis=1)
            amount = np.minimum(amount, self.capacity[np.maximum(row, 0)])
        start = np.concatenate([[0], np.cumsum(in_use.sum(axis=1))])
        return Demands(start.astype(np.int64), row[in_use], amount[in_use])

    def key(self, rules: Rules) -> object:
        """Return a key that is equal for rules under which a shape takes the same of the rows."""
        if rules.exclusive:
            return True
        cores = rules.cores_per_gpu if (self.cores >= 0).any() else 0.0
        memory = (rules.memory_mb_per_gpu, rules.memory_mb_per_node)
        return cores, memory if (self.memory >= 0).any() else (0.0, 0.0)
