"""Small scheduling problems in Hare's task model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from hopsd.policies.hare.tasks import Instance


def instance(
    train: Sequence[Sequence[float]],
    *,
    sync: float | Sequence[Sequence[float]] = 0.0,
    rounds: Sequence[int] | None = None,
    scale: Sequence[int] | None = None,
    arrival: Sequence[float] | None = None,
    weight: Sequence[float] | None = None,
    gpu_type: Sequence[int] | None = None,
    free_from: Sequence[float] | None = None,
) -> Instance:
    """By default, jobs of one task with weight 1 that arrive at 0, and one GPU per type."""
    times = np.array(train, dtype=float)
    jobs, types = times.shape
    kinds = np.array(range(types) if gpu_type is None else gpu_type, dtype=np.int64)
    return Instance(
        arrival=np.zeros(jobs) if arrival is None else np.array(arrival, dtype=float),
        weight=np.ones(jobs) if weight is None else np.array(weight, dtype=float),
        rounds=np.array(rounds if rounds is not None else [1] * jobs, dtype=np.int64),
        scale=np.array(scale if scale is not None else [1] * jobs, dtype=np.int64),
        train=times,
        sync=np.broadcast_to(np.array(sync, dtype=float), times.shape).copy(),
        gpu_type=kinds,
        free_from=np.zeros(len(kinds)) if free_from is None else np.array(free_from, dtype=float),
    )


@st.composite
def small_instances(draw: st.DrawFn, tasks_max: int = 6) -> Instance:
    """1 to 4 jobs with at most ``tasks_max`` tasks in total on 1 to 3 GPUs of up to 3 types."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gpus = draw(st.integers(1, 3))
    gpu_type = np.sort(rng.integers(0, gpus, gpus))
    shapes: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(1, 4))):
        remaining_tasks = tasks_max - sum(r * k for r, k in shapes)
        if remaining_tasks > 0:
            rounds = int(rng.integers(1, min(3, remaining_tasks) + 1))
            shapes.append((rounds, int(rng.integers(1, min(3, remaining_tasks // rounds) + 1))))
    jobs = len(shapes)
    train = rng.uniform(1.0, 4.0, (jobs, gpus)) * rng.choice([1.0, 3.0], gpus)
    unable = rng.random((jobs, gpus)) < 0.1
    unable[np.arange(jobs), gpu_type[rng.integers(0, gpus, jobs)]] = False
    return instance(
        np.where(unable, np.inf, train).tolist(),
        sync=(rng.uniform(0.1, 1.0, (jobs, gpus))).tolist(),
        rounds=[r for r, _ in shapes],
        scale=[k for _, k in shapes],
        arrival=(rng.uniform(0.0, 5.0, jobs) * rng.integers(0, 2)).tolist(),
        weight=rng.integers(1, 5, jobs).astype(float).tolist(),
        gpu_type=gpu_type.tolist(),
        free_from=(rng.uniform(0.0, 2.0, gpus) * rng.integers(0, 2)).tolist(),
    )
