"""Hare's task model (section 5.1, table 1): jobs as rounds of tasks, and schedules of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.errors import InputError
from hopsd.model.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Instance:
    """The jobs and GPUs of one scheduling problem. Times in seconds.

    ``arrival``, ``weight`` (a_n, w_n), ``rounds`` (|R_n|), ``scale`` (|D_r|, tasks a round):
    (jobs,). ``train``, ``sync`` (T^c, T^s of any task of the job): (jobs, types); ``train`` is
    infinite where the job cannot run. ``gpu_type`` (gpus,): the column of each GPU;
    ``free_from`` (gpus,): until then, others hold the GPU.

    Tasks are numbered job by job and round by round.

    Raises:
        InputError: if no schedule can be made from a value.
    """

    arrival: Floats
    weight: Floats
    rounds: Ints
    scale: Ints
    train: Floats
    sync: Floats
    gpu_type: Ints
    free_from: Floats

    def __post_init__(self) -> None:
        jobs, types = self.train.shape
        shapes = {
            "arrival": self.arrival, "weight": self.weight,
            "rounds": self.rounds, "scale": self.scale,
        }  # fmt: skip
        for name, values in shapes.items():
            _require(values.shape == (jobs,), f"{name}: {len(values)} values for {jobs} jobs")
        _require(self.sync.shape == (jobs, types), "sync: not of the shape of train")
        _require(self.free_from.shape == self.gpu_type.shape, "free_from: not one value a GPU")
        _require(len(self.gpu_type) > 0, "gpu_type: no GPU; give 1 or more")
        valid_type = (self.gpu_type >= 0) & (self.gpu_type < types)
        _require(bool(valid_type.all()), f"gpu_type: give 0 to {types - 1}")
        for name, values in (("arrival", self.arrival), ("free_from", self.free_from)):
            _require(bool(np.isfinite(values).all()), f"{name}: give finite seconds")
        positive = (self.weight > 0) & np.isfinite(self.weight)
        _require(bool(positive.all()), "weight: give a finite number above 0")
        _require(bool((self.rounds > 0).all()), "rounds: give 1 or more")
        _require(bool((self.scale > 0).all()), "scale: give 1 or more")
        _require(bool((self.train > 0).all()), "train: give seconds above 0")
        runnable = np.isfinite(self.train[:, np.unique(self.gpu_type)]).any(axis=1)
        _require(
            bool(runnable.all()), f"train: job {int(runnable.argmin())} can run on no GPU there is"
        )
        is_synced = (self.sync >= 0) & np.isfinite(self.sync)
        _require(bool(is_synced.all()), "sync: give finite seconds, 0 or more")

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self.arrival)

    @property
    def first_task(self) -> Ints:
        """The index of each job's first task, and the number of tasks: (jobs + 1,)."""
        ends: Ints = np.concatenate(([0], np.cumsum(self.rounds * self.scale)))
        return ends

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return int(self.first_task[-1])

    @property
    def job_of_task(self) -> Ints:
        """The job of every task, (tasks,)."""
        return np.repeat(np.arange(self.jobs), self.rounds * self.scale)

    @property
    def round_of_task(self) -> Ints:
        """The round of every task, from 0: (tasks,)."""
        job = self.job_of_task
        task_in_job = np.arange(len(job)) - self.first_task[job]
        rounds: Ints = task_in_job // self.scale[job]
        return rounds

    @property
    def capacity(self) -> Ints:
        """GPUs of each type, (types,)."""
        return np.bincount(self.gpu_type, minlength=self.train.shape[1])

    @property
    def alpha(self) -> float:
        """The largest ratio of a task's times on any two GPUs (lemma 3).

        It is infinite if a synchronisation takes no time on one GPU and some on another.
        """
        present = np.unique(self.gpu_type)
        train, sync = self.train[:, present], self.sync[:, present]
        finite = np.isfinite(train)
        longest = np.where(finite, train, 0.0).max(axis=1)
        ratio = float((longest / train.min(axis=1)).max(initial=1.0))
        low = np.where(finite, sync, np.inf).min(axis=1)
        high = np.where(finite, sync, 0.0).max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(high > 0, high / low, 1.0)
        return max(ratio, float(ratios.max(initial=1.0)))


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task schedule: ``start`` (x) and ``gpu`` (the one with y = 1), (tasks,).

    No schedule's weighted completion time is below ``lower_bound``.
    """

    start: Floats
    gpu: Ints
    lower_bound: float

    def completion(self, instance: Instance) -> Floats:
        """C_n, (jobs,): the end of the last synchronisation."""
        job, kind = instance.job_of_task, instance.gpu_type[self.gpu]
        ends = self.start + instance.train[job, kind] + instance.sync[job, kind]
        return np.maximum.reduceat(ends, instance.first_task[:-1]) if instance.jobs else ends

    def weighted_completion(self, instance: Instance) -> float:
        """The objective, sum of w_n C_n."""
        return float(instance.weight @ self.completion(instance))


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)
