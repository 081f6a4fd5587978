"""The schemes that Hare is compared with (section 7.1), in its task model.

Three of them treat a job as a whole: it holds its GPUs from its first task to its last, even
while it synchronises, and is not preempted. They decide when a job arrives or ends, and know
nothing about future jobs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hopsd.errors import InputError
from hopsd.model.arrays import Floats, Ints
from hopsd.policies.hare.tasks import Instance, Schedule
from hopsd.solver.matching import Queues, match


@dataclass(slots=True)
class _Site:
    """A scheme's input: ``waiting`` jobs in order of arrival, and when each GPU becomes free."""

    instance: Instance
    now: float
    waiting: list[int]
    free: Floats
    start: Floats = field(init=False)
    gpu: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.start = np.zeros(self.instance.tasks)
        self.gpu = np.zeros(self.instance.tasks, dtype=np.int64)

    @property
    def idle(self) -> Ints:
        return np.flatnonzero(self.free <= self.now)

    def train(self, job: int) -> Floats:
        """T^c on every GPU, (gpus,)."""
        times: Floats = self.instance.train[job, self.instance.gpu_type]
        return times

    def whole(self, job: int) -> Floats:
        """T^c + T^s on every GPU, (gpus,)."""
        sync: Floats = self.instance.sync[job, self.instance.gpu_type]
        return self.train(job) + sync

    def fastest(self, job: int) -> Ints | None:
        """Idle GPUs on which the job is fastest, as many as its scale; None if too few are idle."""
        seconds = self.whole(job)
        idle = self.idle[np.argsort(seconds[self.idle], kind="stable")]
        usable = idle[np.isfinite(seconds[idle])]
        scale = int(self.instance.scale[job])
        return usable[:scale] if len(usable) >= scale else None

    def run(self, job: int, gpus: Ints) -> None:
        """Run the whole job on ``gpus`` from now on, its rounds' tasks assigned in turn."""
        instance = self.instance
        scale, rounds = int(instance.scale[job]), int(instance.rounds[job])
        task_gpus = gpus[np.arange(scale) % len(gpus)]
        turn = np.arange(scale) // len(gpus)
        train, train_and_sync = self.train(job)[task_gpus], self.whole(job)[task_gpus]
        length = float((turn * train + train_and_sync).max())
        begin = self.now + np.arange(rounds)[:, None] * length
        part = slice(instance.first_task[job], instance.first_task[job + 1])
        self.start[part] = (begin + turn * train).ravel()
        self.gpu[part] = np.tile(task_gpus, rounds)
        self.free[gpus] = self.now + rounds * length
        self.waiting.remove(job)


Scheme = Callable[[_Site], None]
"""Starts the jobs that the scheme wants to start now."""


def gavel_fifo(site: _Site) -> None:
    """FIFO: start jobs in order of arrival on the fastest idle GPUs; no job overtakes another."""
    for job in list(site.waiting):
        gpus = site.fastest(job)
        if gpus is None:
            return
        site.run(job, gpus)


def sched_homo(site: _Site) -> None:
    """Weighted shortest job first, as if all GPUs were equal; jobs that do not fit are skipped."""
    instance = site.instance
    train = instance.train[:, instance.gpu_type]
    mean = np.where(np.isfinite(train), train, 0.0).sum(axis=1) / np.isfinite(train).sum(axis=1)
    load = mean * instance.rounds * instance.scale / instance.weight
    for job in sorted(site.waiting, key=lambda n: (load[n], n)):
        usable = site.idle[np.isfinite(train[job, site.idle])]
        if len(usable) >= instance.scale[job]:
            site.run(job, usable[: instance.scale[job]])


def sched_allox(site: _Site) -> None:
    """AlloX: a job is one unit on one GPU; at each event jobs are matched again, and those that
    come first on an idle GPU start.
    """
    idle = site.idle
    if not len(idle) or not site.waiting:
        return
    instance = site.instance
    jobs = list(site.waiting)
    serial = instance.scale[:, None] * instance.train + instance.sync
    seconds = (instance.rounds[:, None] * serial)[jobs]
    ready = np.maximum(site.free - site.now, 0.0)
    matching = match(Queues.build(seconds, instance.gpu_type, ready))
    for gpu in idle.tolist():
        first = matching.first(gpu)
        if first is not None:
            site.run(jobs[first], np.array([gpu]))


def play(instance: Instance, scheme: Scheme, lower_bound: float) -> Schedule:
    """Simulate a scheme that treats jobs as a whole.

    Raises:
        InputError: if a job's scale is more than the GPUs that it can run on.
    """
    _check_scales(instance)
    site = _Site(instance, 0.0, [], instance.free_from.copy())
    moments = np.concatenate((instance.arrival, instance.free_from)).tolist()
    heapq.heapify(moments)
    coming = np.argsort(instance.arrival, kind="stable").tolist()
    while moments:
        site.now = heapq.heappop(moments)
        while coming and instance.arrival[coming[0]] <= site.now:
            site.waiting.append(coming.pop(0))
        free_before = site.free.copy()
        scheme(site)
        for moment in np.unique(site.free[site.free != free_before]):
            heapq.heappush(moments, float(moment))
    return Schedule(site.start, site.gpu, lower_bound)


def srtf(instance: Instance, lower_bound: float) -> Schedule:
    """Shortest remaining time first, preemptive between rounds, on the fastest idle GPUs.

    The remaining time is that on the cluster's fastest GPUs. A job that needs more GPUs than are
    idle reserves the idle ones.

    Raises:
        InputError: if a job's scale is more than the GPUs that it can run on.
    """
    _check_scales(instance)
    site = _Site(instance, 0.0, [], instance.free_from.copy())
    shortest = np.array([site.whole(n).min() for n in range(instance.jobs)])
    remaining_rounds = instance.rounds.copy()
    ready = instance.arrival.copy()
    moments = np.concatenate((instance.arrival, instance.free_from)).tolist()
    heapq.heapify(moments)
    while moments:
        site.now = heapq.heappop(moments)
        if moments and moments[0] == site.now:
            continue
        runnable = np.flatnonzero((remaining_rounds > 0) & (ready <= site.now))
        for job in runnable[
            np.argsort((remaining_rounds * shortest)[runnable], kind="stable")
        ].tolist():
            gpus = site.fastest(job)
            if gpus is None:
                break
            first = instance.first_task[job + 1] - remaining_rounds[job] * instance.scale[job]
            part = slice(first, first + instance.scale[job])
            site.start[part], site.gpu[part] = site.now, gpus
            ready[job] = site.now + site.whole(job)[gpus].max()
            site.free[gpus] = ready[job]
            remaining_rounds[job] -= 1
            heapq.heappush(moments, float(ready[job]))
    return Schedule(site.start, site.gpu, lower_bound)


def _check_scales(instance: Instance) -> None:
    usable_gpus = np.isfinite(instance.train[:, instance.gpu_type]).sum(axis=1)
    if (instance.scale > usable_gpus).any():
        job = int((instance.scale - usable_gpus).argmax())
        raise InputError(
            f"job {job} runs {instance.scale[job]} tasks at once, but can only use"
            f" {usable_gpus[job]} GPUs; these schemes accept at most as many tasks as GPUs"
        )


def _whole(scheme: Scheme) -> Callable[[Instance, float], Schedule]:
    return lambda instance, lower_bound: play(instance, scheme, lower_bound)


BASELINES: dict[str, Callable[[Instance, float], Schedule]] = {
    "Gavel_FIFO": _whole(gavel_fifo),
    "SRTF": srtf,
    "Sched_Homo": _whole(sched_homo),
    "Sched_Allox": _whole(sched_allox),
}
"""Maps the paper's names to functions (instance, lower bound) -> schedule with that bound."""
