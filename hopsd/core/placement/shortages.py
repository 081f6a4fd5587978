"""GPU types with too little memory for a workload, which gets more GPUs of the type, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from hopsd.core.placement.pools import Pools, could_run
from hopsd.model.ids import GpuType, UserName, WorkloadName
from hopsd.model.job import Job
from hopsd.model.knowledge import Shortage

KNOWN_SECONDS = 7 * 86_400.0
"""How long a shortage counts; by then, the training may have changed in ways hops cannot see."""


class Shortages:
    """The shortages that count at ``now``."""

    def __init__(self, shortages: Iterable[Shortage], now: float) -> None:
        self._counts_by_workload: dict[tuple[UserName, WorkloadName], dict[GpuType, int]] = (
            defaultdict(dict)
        )
        for shortage in shortages:
            if now - shortage.at < KNOWN_SECONDS:
                counts_by_type = self._counts_by_workload[shortage.user, shortage.workload]
                counts_by_type[shortage.gpu_type] = shortage.gpus

    def avoid(
        self, job: Job, workload: WorkloadName, pools: Pools, *, lasting: bool = True
    ) -> tuple[Job, str]:
        """Drop the counts with which the job ran out of memory; also return a note for its user.

        If the job could not run anywhere then, it keeps all counts: it may have been changed, or
        other processes may have used the memory. This is not done unless ``lasting``: the job may
        have nowhere to run only because it avoids nodes, for a while, where Slurm did not start it.
        """
        short = {
            t: n
            for t, n in self._counts_by_workload.get((job.user, workload), {}).items()
            if t in pools
        }
        if not short:
            return job, ""
        min_counts = tuple(sorted((gpu_type, gpus + 1) for gpu_type, gpus in short.items()))
        variant = replace(job, rules=replace(job.rules, min_gpus=min_counts))
        if lasting and could_run(job, pools) and not could_run(variant, pools):
            return job, (
                f"it ran out of GPU memory on {_list_counts(short)}, which leaves it no other GPUs:"
                " it may get the same again"
            )
        return variant, "; ".join(_note(job, *pair) for pair in sorted(short.items()))


def _list_counts(short: dict[GpuType, int]) -> str:
    return " and ".join(f"{gpus} {gpu_type}" for gpu_type, gpus in sorted(short.items()))


def _note(job: Job, gpu_type: GpuType, gpus: int) -> str:
    counts = [count for count in job.reqs if count > gpus]
    options = f"only {min(counts)} {gpu_type} GPUs or more" if counts else f"no {gpu_type} GPUs"
    return f"it gets {options}, since it ran out of GPU memory on {gpus}"
