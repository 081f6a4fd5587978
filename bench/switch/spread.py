"""Trials of several ranks in a lane: all ranks of a trial on one GPU, or each on an idle GPU.

Simulated in Hare's task model with ``hare-dispatch`` on equal GPUs. Synchronisation, of which
spread ranks need more, is free here.
"""

from __future__ import annotations

import numpy as np

from hopsd.policies.hare.schedulers import SCHEDULERS, schedule
from hopsd.policies.hare.tasks import Instance

TRIALS, RANKS = 12, 4
ROUNDS = 30 + 60 * np.arange(TRIALS) % 61
COLUMNS = ("GPUs", "ranks of a trial", "until the last has ended", "until one has ended, mean")


def measure() -> list[list[str]]:
    """Return a row for each number of GPUs and way; a rank's part of a round takes a second."""
    rows = []
    for gpus in (2, 4, 8):
        for name, rounds, scale, seconds in (
            ("on one GPU", np.ones_like(ROUNDS), 1, RANKS * ROUNDS.astype(np.float64)),
            ("spread", ROUNDS, RANKS, np.ones(TRIALS)),
        ):
            case = Instance(
                arrival=np.zeros(TRIALS),
                weight=np.ones(TRIALS),
                rounds=rounds,
                scale=np.full(TRIALS, scale),
                train=seconds.reshape(TRIALS, 1),
                sync=np.zeros((TRIALS, 1)),
                gpu_type=np.zeros(gpus, dtype=np.int64),
                free_from=np.zeros(gpus),
            )
            ends = schedule(case, SCHEDULERS["hare-dispatch"]).completion(case)
            rows.append([str(gpus), name, f"{ends.max():.0f} s", f"{ends.mean():.0f} s"])
    return rows
