"""The optimum of a small scheduling problem by trying all schedules."""

from __future__ import annotations

import numpy as np

from hopsd.policies.hare.tasks import Instance


def optimum(case: Instance) -> float:
    """The least sum of w_n C_n.

    Some optimal schedule starts every task as early as those before it in the order of starts
    let it, so all orders of the rounds' tasks on all GPUs are enough. Tasks of a round are alike.
    """
    jobs = len(case.arrival)
    best = [np.inf]
    free = [float(f) for f in case.free_from]
    ready = [float(a) for a in case.arrival]
    synced = [0.0] * jobs
    done = [0] * jobs
    total = [int(r * k) for r, k in zip(case.rounds, case.scale, strict=True)]

    def cost() -> float:
        return sum(float(case.weight[n]) * (max(synced[n], ready[n])) for n in range(jobs))

    def search() -> None:
        if cost() >= best[0]:
            return
        if done == total:
            best[0] = cost()
            return
        for n in range(jobs):
            if done[n] == total[n]:
                continue
            for m, kind in enumerate(case.gpu_type):
                train = float(case.train[n, kind])
                if not np.isfinite(train):
                    continue
                before = free[m], ready[n], synced[n]
                free[m] = max(ready[n], free[m]) + train
                synced[n] = max(synced[n], free[m] + float(case.sync[n, kind]))
                done[n] += 1
                if done[n] % int(case.scale[n]) == 0:
                    ready[n] = synced[n]
                search()
                done[n] -= 1
                free[m], ready[n], synced[n] = before

    search()
    return best[0]
