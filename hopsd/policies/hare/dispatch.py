"""Dispatching: an idle GPU gets a task of the first job in line that has one ready.

A list schedule (lists.py) leaves a GPU idle if a task is placed there that cannot begin yet, and
no later task fills that time. Here no task is placed before it can begin.
"""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush

import numpy as np

from hopsd.model.arrays import Ints
from hopsd.policies.hare.relaxation import RelaxedSequence
from hopsd.policies.hare.tasks import Instance, Schedule


def dispatch(instance: Instance, relaxation: RelaxedSequence) -> Schedule:
    """Schedule jobs by their tasks' mean relaxed start, each on the fastest idle GPUs."""
    floor = _Floor(instance, _line(instance, relaxation))
    while floor.moments:
        floor.advance(heappop(floor.moments))
        for entry in list(floor.waiting):
            if not any(floor.idle):
                break
            floor.serve(entry)
    return Schedule(floor.start, floor.gpu, relaxation.lower_bound)


def _line(instance: Instance, relaxation: RelaxedSequence) -> Ints:
    """Each job's position in line, (jobs,)."""
    sums = np.bincount(instance.job_of_task, relaxation.start, instance.jobs)
    place = np.empty(instance.jobs, dtype=np.int64)
    place[np.argsort(sums / (instance.rounds * instance.scale), kind="stable")] = np.arange(
        instance.jobs
    )
    return place


class _Floor:
    """GPUs and jobs at one moment. ``waiting`` holds (place, job) of jobs with tasks of a round to
    begin; ``idle`` the idle GPUs by type; ``moments`` is a heap of times when something changes.
    """

    def __init__(self, instance: Instance, place: Ints) -> None:
        self.start = np.zeros(instance.tasks)
        self.gpu = np.zeros(instance.tasks, dtype=np.int64)
        self.waiting: list[tuple[int, int]] = []
        self.idle: list[list[int]] = [[] for _ in range(instance.train.shape[1])]
        self.now = 0.0
        self._kind = instance.gpu_type.tolist()
        self._place, self._scale = place.tolist(), instance.scale.tolist()
        self._train = instance.train.tolist()
        self._whole = (instance.train + instance.sync).tolist()
        self._next, self._last = instance.first_task[:-1].tolist(), instance.first_task[1:].tolist()
        self._todo, self._sync_times = instance.scale.tolist(), instance.arrival.tolist()
        self._arrivals = [(moment, n) for n, moment in enumerate(self._sync_times)]
        self._busy = [(moment, m) for m, moment in enumerate(instance.free_from.tolist())]
        self.moments = sorted({moment for moment, _ in (*self._arrivals, *self._busy)})
        heapify(self._arrivals)
        heapify(self._busy)

    def advance(self, now: float) -> None:
        """Advance to ``now``: free the GPUs and ready the jobs due by then."""
        self.now = now
        while self._busy and self._busy[0][0] <= now:
            _, m = heappop(self._busy)
            self.idle[self._kind[m]].append(m)
        while self._arrivals and self._arrivals[0][0] <= now:
            _, job = heappop(self._arrivals)
            self._todo[job] = self._scale[job]
            insort(self.waiting, (self._place[job], job))

    def serve(self, entry: tuple[int, int]) -> None:
        """Begin as many tasks of the job's round as idle GPUs allow."""
        job = entry[1]
        seconds = self._whole[job]
        while self._todo[job]:
            kinds = [k for k, pool in enumerate(self.idle) if pool and seconds[k] < np.inf]
            if not kinds:
                return
            kind = min(kinds, key=seconds.__getitem__)
            self._begin(job, kind)
        self.waiting.remove(entry)
        if self._next[job] < self._last[job]:
            heappush(self._arrivals, (self._sync_times[job], job))
            heappush(self.moments, self._sync_times[job])

    def _begin(self, job: int, kind: int) -> None:
        task, m = self._next[job], self.idle[kind].pop()
        self.start[task], self.gpu[task] = self.now, m
        self._next[job] += 1
        self._todo[job] -= 1
        free = self.now + self._train[job][kind]
        self._sync_times[job] = max(self._sync_times[job], self.now + self._whole[job][kind])
        heappush(self._busy, (free, m))
        heappush(self.moments, free)
