"""List scheduling of tasks: Hare's Algorithm 1, and a variant that accounts for GPU speed."""

from __future__ import annotations

import sys
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from hopsd.model.arrays import Ints
from hopsd.policies.hare.relaxation import RelaxedSequence
from hopsd.policies.hare.tasks import Instance, Schedule

Pool = list[tuple[float, int]]
"""GPUs of one type as sorted pairs (time from which it is free, GPU)."""

Rule = Callable[[Sequence[Pool], float, Sequence[float]], tuple[int, int]]
"""Chooses a task's GPU, as pool and position, given the pools (phi), the time when the task may
start (t_i), and T^c + T^s on a GPU of each pool, infinite where the job cannot run.
"""


def earliest_available(
    pools: Sequence[Pool],
    ready: float,  # noqa: ARG001
    seconds: Sequence[float],
) -> tuple[int, int]:
    """Choose the GPU free first, whatever its speed; the first of equals (Algorithm 1, line 12)."""
    kinds = (kind for kind, pool in enumerate(pools) if pool and seconds[kind] < inf)
    return min(kinds, key=lambda kind: pools[kind][0]), 0


def earliest_finish(
    pools: Sequence[Pool], ready: float, seconds: Sequence[float]
) -> tuple[int, int]:
    """Choose the GPU on which the task would be synchronised first.

    Ties go to the one that became free last: those idle for longer may still serve earlier tasks.
    """
    kind, first = 0, inf
    for k, pool in enumerate(pools):
        if pool:
            end = max(pool[0][0], ready) + seconds[k]
            if end < first:
                kind, first = k, end
    return kind, max(0, bisect_right(pools[kind], (ready, sys.maxsize)) - 1)


def algorithm_1(instance: Instance, relaxation: RelaxedSequence) -> Schedule:
    """Hare's Algorithm 1 as printed."""
    return _in_order(instance, _middle_order(instance, relaxation), earliest_available, relaxation)


def algorithm_1_eft(instance: Instance, relaxation: RelaxedSequence) -> Schedule:
    """Algorithm 1 with the earliest finish in line 12."""
    return _in_order(instance, _middle_order(instance, relaxation), earliest_finish, relaxation)


def _middle_order(instance: Instance, relaxation: RelaxedSequence) -> Ints:
    """pi (tasks,): order by H_i, half a training on the slowest GPU after the relaxed start.

    Ties keep the tasks' numbering. A round's tasks share one H; a later round's is larger.
    """
    present = instance.train[:, instance.capacity > 0]
    longest = np.where(np.isfinite(present), present, 0.0).max(axis=1)
    middle = relaxation.start + 0.5 * longest[instance.job_of_task]
    return np.argsort(middle, kind="stable")


def _in_order(instance: Instance, order: Ints, rule: Rule, relaxation: RelaxedSequence) -> Schedule:
    """Lines 5 to 17 of Algorithm 1: start each task after the previous round, on the rule's GPU."""
    pools: list[Pool] = [[] for _ in range(instance.train.shape[1])]
    for m, kind in enumerate(instance.gpu_type):
        insort(pools[kind], (float(instance.free_from[m]), m))
    train, train_and_sync = instance.train.tolist(), (instance.train + instance.sync).tolist()
    ready, synced_at = instance.arrival.tolist(), instance.arrival.tolist()
    turn = [0] * instance.jobs
    start, gpu = np.zeros(instance.tasks), np.zeros(instance.tasks, dtype=np.int64)
    jobs, rounds = instance.job_of_task.tolist(), instance.round_of_task.tolist()
    for task in order.tolist():
        job = jobs[task]
        if rounds[task] != turn[job]:
            turn[job], ready[job] = rounds[task], synced_at[job]
        kind, position = rule(pools, ready[job], train_and_sync[job])
        free, m = pools[kind].pop(position)
        start[task], gpu[task] = max(ready[job], free), m
        insort(pools[kind], (float(start[task] + train[job][kind]), m))
        synced_at[job] = max(synced_at[job], float(start[task] + train_and_sync[job][kind]))
    return Schedule(start, gpu, relaxation.lower_bound)
