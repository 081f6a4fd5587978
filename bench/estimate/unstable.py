"""Error by number of executions, for a job whose data comes at two speeds (figure 7b).

A real training in PyTorch, timed by the profiler as in a job. Its loader waits briefly while data
is in memory and long while it is not. It stays in either state for some iterations, like a
read-ahead that falls behind.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hops_profiler import profile
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from hopsd.core.report.phases import parse_phases
from hopsd.core.speed.theory import alone, fit_theory
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName
from hopsd.model.knowledge import PhaseRecord

BATCH, WIDTH = 64, 1024
CACHE_SECONDS, LOAD_SECONDS, JITTER = 0.003, 0.090, 0.1
LOAD_SHARE, STAYS = 0.3, 0.5
"""Share of iterations that wait for storage; probability of staying in that state."""

WARM_UP = 3
"""Iterations that the profiler does not time."""


class Loader(IterableDataset[torch.Tensor]):
    """Batches that come at two speeds."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __iter__(self) -> Iterator[torch.Tensor]:
        batch = torch.randn(BATCH, WIDTH)
        slow = self._random.random() < LOAD_SHARE
        while True:
            mean = LOAD_SECONDS if slow else CACHE_SECONDS
            time.sleep(max(0.0, self._random.gauss(mean, JITTER * mean)))
            yield batch
            if self._random.random() > STAYS:
                slow = self._random.random() < LOAD_SHARE


@dataclass(frozen=True, slots=True)
class Execution:
    """The record of one execution, and its wall time and samples."""

    record: PhaseRecord
    seconds: float
    samples: float


def execute(number: int, iterations: int, seed: int) -> Execution:
    """Train for ``iterations`` iterations under the profiler."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with profile() as session:
        for iteration, batch in enumerate(DataLoader(Loader(seed), batch_size=None), start=1):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if iteration == iterations + WARM_UP:
                break
        report = json.loads(json.dumps(session.summary()))
    timing = report["timed"]
    phases = parse_phases(report, timing["iterations"], timing["samples"])
    assert phases is not None
    labels = WorkloadName("unstable"), GpuType("cpu"), JobId(str(number))
    record = PhaseRecord(*labels, 0, NodeName("n0"), 0, 1, 1, time.time(), phases)
    return Execution(record, timing["seconds"], timing["samples"])


def executions(count: int, iterations: int) -> list[Execution]:
    torch.set_num_threads(1)
    execute(-1, 5, 0)  # warm-up: loads code
    return [execute(number, iterations, seed=number) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of predictions from the first ``executions``: median and 90th percentile."""

    executions: int
    median: float
    p90: float
    two_modes: float


def errors(executions: Sequence[Execution], counts: Sequence[int], orders: int) -> list[Errors]:
    """Relative error of the theory layer against the throughput of all executions together.

    Over ``orders`` orders in which the executions could have come.
    """
    actual = sum(e.samples for e in executions) / sum(e.seconds for e in executions)
    generator = random.Random(0)
    results: dict[int, list[tuple[float, bool]]] = {count: [] for count in counts}
    for _ in range(orders):
        order = generator.sample(executions, len(executions))
        for count in counts:
            theory = fit_theory([e.record for e in order[:count]], 7 * 86400.0)
            assert theory is not None
            results[count].append((abs(alone(theory) / actual - 1.0), theory.p_cache < 1.0))
    return [
        Errors(
            count,
            float(np.median([error for error, _ in outcomes])),
            float(np.quantile([error for error, _ in outcomes], 0.9)),
            sum(two for _, two in outcomes) / len(outcomes),
        )
        for count, outcomes in results.items()
    ]
