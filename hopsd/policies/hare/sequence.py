"""Orders the turns of trainings that share the GPUs of one job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hopsd.policies.hare.schedulers import Scheduler, schedule
from hopsd.policies.hare.tasks import Instance


def sequence(
    turns: Sequence[int], seconds: Sequence[float], gpus: int, scheduler: Scheduler
) -> list[list[int]]:
    """Return, for each of ``gpus`` equal GPUs, the trainings (from 0) in the order of their turns.

    ``turns``: how many turns each training has left. ``seconds``: the time of one of its turns,
    including a switch. All weights are equal, to minimise the mean completion time.

    Raises:
        InputError: if turns, seconds or ``gpus`` are not above 0.
    """
    count = len(turns)
    instance = Instance(
        arrival=np.zeros(count),
        weight=np.ones(count),
        rounds=np.array(turns, dtype=np.int64),
        scale=np.ones(count, dtype=np.int64),
        train=np.array(seconds, dtype=float).reshape(count, 1),
        sync=np.zeros((count, 1)),
        gpu_type=np.zeros(gpus, dtype=np.int64),
        free_from=np.zeros(gpus),
    )
    task_schedule = schedule(instance, scheduler)
    order = np.argsort(task_schedule.start, kind="stable")
    job = instance.job_of_task[order]
    return [job[task_schedule.gpu[order] == gpu].tolist() for gpu in range(gpus)]
