"""Distance from the optimum over many small cases, each solved exhaustively."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.hare.exhaustive import optimum
from hopsd.policies.hare.relaxation import relax
from hopsd.policies.hare.schedule_check import violations
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.tasks import Instance

CASES = 300
SHAPES = ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1))
"""Rounds of a job, and tasks per round."""

MAX_TASKS = 9
KINDS = {"equal GPUs": 1.0, "up to 4 times": 4.0, "up to 10 times": 10.0}
"""How many times slower than the fastest GPU a GPU is at most."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Results of one case: the sum of w_n C_n by scheduler and the bound, both over the optimum,
    and the paper's guarantee alpha (2 + alpha).
    """

    ratio: dict[str, float]
    bound: float
    guarantee: float


def distances(folder: Path) -> dict[str, list[Distance]]:
    """Distances by kind of case; loaded if an earlier run saved them."""
    path = folder / "small.json"
    if path.exists():
        return {k: [Distance(**d) for d in ds] for k, ds in json.loads(path.read_text()).items()}
    by_kind = {
        kind: [
            _distance(_case(np.random.default_rng((seed, i)), max_slowdown))
            for seed in range(CASES)
        ]
        for i, (kind, max_slowdown) in enumerate(KINDS.items())
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({kind: [asdict(d) for d in ds] for kind, ds in by_kind.items()}))
    return by_kind


def _case(rng: np.random.Generator, max_slowdown: float) -> Instance:
    """Draw 2 or 3 GPUs and jobs with 7 to 9 tasks in all; half of the cases have arrivals."""
    gpus = int(rng.integers(2, 4))
    shapes: list[tuple[int, int]] = []
    while sum(r * k for r, k in shapes) < MAX_TASKS - 2:
        shape = SHAPES[rng.integers(len(SHAPES))]
        if sum(r * k for r, k in (*shapes, shape)) <= MAX_TASKS:
            shapes.append(shape)
    jobs = len(shapes)
    slower = np.concatenate(([1.0], rng.uniform(1.0, max_slowdown, gpus - 1)))
    train = rng.uniform(1.0, 4.0, (jobs, 1)) * slower ** rng.uniform(0.5, 1.0, (jobs, 1))
    return Instance(
        arrival=rng.uniform(0.0, 5.0, jobs) * rng.integers(2),
        weight=rng.integers(1, 5, jobs).astype(float),
        rounds=np.array([r for r, _ in shapes]),
        scale=np.array([k for _, k in shapes]),
        train=train,
        sync=np.repeat(0.2 * train[:, :1], gpus, axis=1),
        gpu_type=np.arange(gpus),
        free_from=np.zeros(gpus),
    )


def _distance(case: Instance) -> Distance:
    optimum_value = optimum(case)
    relaxation = relax(case)
    ratio = {}
    for name, scheduler in SCHEDULERS.items():
        schedule = scheduler(case, relaxation)
        assert not violations(case, schedule), name
        ratio[name] = schedule.weighted_completion(case) / optimum_value
    return Distance(ratio, relaxation.lower_bound / optimum_value, case.alpha * (2 + case.alpha))


def count_above_guarantee(cases: Sequence[Distance], scheduler: str) -> int:
    """Number of cases above the guarantee."""
    return sum(d.ratio[scheduler] > d.guarantee * (1 + 1e-9) for d in cases)
