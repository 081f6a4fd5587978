"""Adds the time of switching GPUs between jobs to a task schedule.

Hare's problem (section 5.1) ignores it: tasks of several jobs alternate on a GPU as if switching
took no time. Here a schedule's tasks keep their GPUs and their order, and are delayed by the
switches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.policies.hare.tasks import Instance, Schedule


def switches(instance: Instance, schedule: Schedule) -> Bools:
    """Whether each task follows another job's task on its GPU: (tasks,)."""
    order = _in_time(schedule)
    job, is_switch = instance.job_of_task, np.zeros(instance.tasks, dtype=bool)
    for gpu in range(len(instance.gpu_type)):
        tasks_of_gpu = order[schedule.gpu[order] == gpu]
        is_switch[tasks_of_gpu[1:]] = job[tasks_of_gpu[1:]] != job[tasks_of_gpu[:-1]]
    return is_switch


def with_switches(instance: Instance, schedule: Schedule, seconds: Floats) -> Schedule:
    """Add switches to ``schedule``: a task of job n starts at least ``seconds[n]`` (jobs,) after
    another job's task has trained on its GPU.

    No task starts earlier than scheduled, so a GPU that idles long enough before a task hides the
    switch. The lower bound remains valid.
    """
    job, kind = instance.job_of_task, instance.gpu_type[schedule.gpu]
    train = instance.train[job, kind]
    train_and_sync = (train + instance.sync[job, kind]).tolist()
    wait = np.where(switches(instance, schedule), seconds[job], 0.0).tolist()
    turn, ready = [0] * instance.jobs, instance.arrival.tolist()
    synced_at, free = instance.arrival.tolist(), instance.free_from.tolist()
    start, jobs, rounds = schedule.start.tolist(), job.tolist(), instance.round_of_task.tolist()
    gpus, trains = schedule.gpu.tolist(), train.tolist()
    for task in _in_time(schedule).tolist():
        n, m = jobs[task], gpus[task]
        if rounds[task] != turn[n]:
            turn[n], ready[n] = rounds[task], synced_at[n]
        start[task] = max(start[task], ready[n], free[m] + wait[task])
        free[m] = start[task] + trains[task]
        synced_at[n] = max(synced_at[n], start[task] + train_and_sync[task])
    return replace(schedule, start=np.array(start))


def lent_to_nobody(instance: Instance) -> Instance:
    """Make GPUs wait while their jobs synchronise: T^s becomes part of T^c."""
    return replace(
        instance, train=instance.train + instance.sync, sync=np.zeros_like(instance.sync)
    )


def _in_time(schedule: Schedule) -> Ints:
    """Sort tasks by their start; since training takes time, rounds stay in order."""
    return np.argsort(schedule.start, kind="stable")
