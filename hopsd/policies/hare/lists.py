"""List scheduling of tasks: Hare's Algorithm 1, and a rule that knows how fast GPUs are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hopsd.policies.hare.relaxation import INTERVALS, Relaxed, relax
from hopsd.policies.hare.tasks import Floats, Instance, Ints, Schedule

Rule = Callable[[Floats, float, Floats, Floats], int]
"""The GPU for a task: from when each is free (phi), when the task may start (t_i), and T^c and
T^s on each GPU, all (gpus,) but t_i.
"""


def earliest_available(free: Floats, ready: float, train: Floats, sync: Floats) -> int:  # noqa: ARG001
    """Line 12 of Algorithm 1: argmin phi, whatever the GPU's speed; the first of equal ones.

    Only among the GPUs that the job can run on at all.
    """
    return int(np.where(np.isfinite(train), free, np.inf).argmin())


def earliest_finish(free: Floats, ready: float, train: Floats, sync: Floats) -> int:
    """The GPU on which the task is synchronised first; of equal ones the last to become free,
    so that those idle for long stay for others.
    """
    end = np.maximum(free, ready) + train + sync
    best = end.min()
    return int(np.where(end <= best, free, -np.inf).argmax())


RULES: dict[str, Rule] = {"hare": earliest_available, "hare-eft": earliest_finish}


def schedule(instance: Instance, rule: Rule, intervals: int = INTERVALS) -> Schedule:
    """Algorithm 1 on the linear relaxation, with ``rule`` in line 12."""
    relaxed = relax(instance, intervals)
    return in_order(instance, middle_order(instance, relaxed), rule, relaxed.lower_bound)


def middle_order(instance: Instance, relaxed: Relaxed) -> Ints:
    """pi (tasks,): by H_i, half a training on the slowest GPU after the relaxed start.

    Equal ones in the tasks' numbering. A round's tasks have one H; a later round's is larger.
    """
    present = instance.train[:, instance.capacity > 0]
    longest = np.where(np.isfinite(present), present, 0.0).max(axis=1)
    middle = relaxed.start + 0.5 * longest[instance.job_of_task]
    return np.argsort(middle, kind="stable")


def in_order(instance: Instance, order: Ints, rule: Rule, lower_bound: float) -> Schedule:
    """Lines 5 to 17 of Algorithm 1: each task after its round's forerunner, on the rule's GPU."""
    free = instance.free_from.copy()
    train, sync = instance.train[:, instance.gpu_type], instance.sync[:, instance.gpu_type]
    ready, synced = instance.arrival.copy(), instance.arrival.copy()
    turn = np.zeros(instance.jobs, dtype=np.int64)
    start, gpu = np.zeros(instance.tasks), np.zeros(instance.tasks, dtype=np.int64)
    jobs, rounds = instance.job_of_task, instance.round_of_task
    for task in order:
        job = jobs[task]
        if rounds[task] != turn[job]:
            turn[job], ready[job] = rounds[task], synced[job]
        m = rule(free, ready[job], train[job], sync[job])
        start[task], gpu[task] = max(ready[job], free[m]), m
        free[m] = start[task] + train[job, m]
        synced[job] = max(synced[job], free[m] + sync[job, m])
    return Schedule(start, gpu, lower_bound)
