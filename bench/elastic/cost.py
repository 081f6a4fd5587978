"""Cost of the order of samples: a step's batches against a plain DataLoader, and resuming."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import hops_profiler
import torch
from torch.utils.data import DataLoader, Dataset

GLOBAL_BATCH, MICRO_BATCH = 256, 64


class Zeros(Dataset[torch.Tensor]):
    """A dataset that costs next to nothing to read."""

    def __init__(self, length: int) -> None:
        self.length, self.sample = length, torch.zeros(8)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.sample


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a step by a plain DataLoader, and what the order adds to them; wall seconds
    from a loaded state to the first batch, at the beginning of a long epoch and at its end.
    """

    plain: float
    added: float
    resume_first: float
    resume_last: float


def measure(steps: int = 400, rounds: int = 5, samples: int = 10**9) -> Cost:
    plain, elastic_seconds = [], []
    for _ in range(rounds):  # alternately: the machine's speed changes
        plain.append(_seconds(_plain(), steps))
        elastic_seconds.append(_seconds(_elastic(samples), steps) - plain[-1])
    last = samples // GLOBAL_BATCH - 1
    return Cost(
        median(plain), median(elastic_seconds), *(_resume(samples, step) for step in (0, last))
    )


def cost_rows() -> list[str]:
    """Measure now, and return the rows of a table."""
    cost = measure()
    return [
        f"a step of {GLOBAL_BATCH} samples, DataLoader {1e6 * cost.plain:.0f} us of a core",
        f"  added by ElasticLoader       {1e6 * cost.added:.0f} us",
        f"  share of 50 ms               {100 * cost.added / 0.05:.2f} %",
        f"resuming at the first step     {1e3 * cost.resume_first:.1f} ms",
        f"  at the last of 10^9 samples  {1e3 * cost.resume_last:.1f} ms",
    ]


def _plain() -> Any:
    batches = iter(DataLoader(Zeros(10**6), batch_size=MICRO_BATCH, shuffle=True))
    while True:
        yield [next(batches) for _ in range(GLOBAL_BATCH // MICRO_BATCH)]


def _elastic(samples: int) -> Any:
    loader = hops_profiler.ElasticLoader(Zeros(samples), GLOBAL_BATCH, MICRO_BATCH)
    for step in loader.steps():
        yield list(step)


def _seconds(steps: Any, count: int) -> float:
    next(steps)
    began = time.thread_time()
    for _ in itertools.islice(steps, count):
        pass
    return (time.thread_time() - began) / count


def _resume(samples: int, step: int) -> float:
    times = []
    for _ in range(5):
        loader = hops_profiler.ElasticLoader(Zeros(samples), GLOBAL_BATCH, MICRO_BATCH)
        began = time.perf_counter()
        loader.load_state_dict({**loader.state_dict(), "offset": step, "step": step})
        next(iter(next(loader.steps())))
        times.append(time.perf_counter() - began)
    return median(times)
