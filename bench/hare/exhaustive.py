"""Optimum of a small scheduling problem by exhaustive search."""

from __future__ import annotations

from math import inf, isfinite

from hopsd.policies.hare.tasks import Instance


def optimum(case: Instance) -> float:
    """Return the minimum of the sum of w_n C_n.

    Some optimal schedule starts every task as early as the tasks before it permit, so it suffices
    to append tasks to GPUs in the order of their starts. Tasks of a round are interchangeable; a
    branch is pruned when its lower bound reaches the best schedule.
    """
    search = _Search(case)
    search.descend(-inf)
    return search.best


class _Search:
    """A partial schedule: when each GPU is ``free``, when each job's next round is ``ready``, and
    the ``sync_times`` of the last finished rounds.
    """

    def __init__(self, case: Instance) -> None:
        self.best = inf
        self.jobs = range(len(case.arrival))
        self.kinds = case.gpu_type.tolist()
        self.train, self.sync = case.train.tolist(), case.sync.tolist()
        self.weight, self.scale = case.weight.tolist(), case.scale.tolist()
        self.rounds = case.rounds.tolist()
        self.shortest = [
            min(self.train[n][k] + self.sync[n][k] for k in self.kinds) for n in self.jobs
        ]
        self.free, self.ready = case.free_from.tolist(), case.arrival.tolist()
        self.sync_times = case.arrival.tolist()
        self.tasks_done = [0 for _ in self.jobs]

    def lower_bound(self) -> float:
        """Lower bound on the cost of any completion; exact for a complete schedule."""
        total = 0.0
        for n in self.jobs:
            remaining_rounds = self.rounds[n] - self.tasks_done[n] // self.scale[n]
            end = self.ready[n] + remaining_rounds * self.shortest[n]
            total += self.weight[n] * max(self.sync_times[n], end)
        return total

    def descend(self, last: float) -> None:
        """Try every next task that starts at ``last`` or later."""
        bound = self.lower_bound()
        if bound >= self.best:
            return
        unfinished_jobs = [
            n for n in self.jobs if self.tasks_done[n] < self.rounds[n] * self.scale[n]
        ]
        if not unfinished_jobs:
            self.best = bound
        for n in unfinished_jobs:
            for m, kind in enumerate(self.kinds):
                start = max(self.ready[n], self.free[m])
                if start >= last and isfinite(self.train[n][kind]):
                    self._append(n, m, start)

    def _append(self, n: int, m: int, start: float) -> None:
        kind = self.kinds[m]
        before = self.free[m], self.ready[n], self.sync_times[n]
        self.free[m] = start + self.train[n][kind]
        self.sync_times[n] = max(self.sync_times[n], self.free[m] + self.sync[n][kind])
        self.tasks_done[n] += 1
        if self.tasks_done[n] % self.scale[n] == 0:
            self.ready[n] = self.sync_times[n]
        self.descend(start)
        self.tasks_done[n] -= 1
        self.free[m], self.ready[n], self.sync_times[n] = before
