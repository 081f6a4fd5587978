"""Finish-time fairness rho = T_sh / T_id of an app (Themis, NSDI 2020, sections 3.2 and 4.3).

T_sh is the time until the app ends in the shared cluster with an allocation that it keeps, T_id the
time on 1/N of the cluster, both since its submission. Eq. 1 (one job) is eq. 2 (phases of jobs)
with one phase of one job, so one function computes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

IN_SERVER, ACROSS_SERVERS, ACROSS_RACKS = 1.0, 1.1, 1.3
"""Slowdown S by placement, used until S is measured (section 4.3.1)."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What an app reports about one job (figure 7).

    ``seconds_per_iteration``: on one GPU. ``locality_sensitivity``: S of the allocation asked
    about, relative to one GPU. ``gpus_max``: job_demand_max of eq. 1.
    """

    iterations_left: float
    seconds_per_iteration: float
    locality_sensitivity: float
    gpus_max: int

    @property
    def work(self) -> float:
        """The remaining work in seconds of one GPU."""
        return self.iterations_left * self.seconds_per_iteration * self.locality_sensitivity


def phase_seconds(jobs: Sequence[JobInfo], gpus: float) -> float:
    """T_sh(i) of eq. 2: the time until the last job of a phase ends.

    The app divides its GPUs among the jobs as it likes, anew at every lease. With linear speed-up
    up to ``gpus_max``, the earliest possible end is the larger of all work over all GPUs and the
    longest job on as many GPUs as it can use. This gives table 3; a fixed share per job for the
    whole phase would give 1.06 where the table has 1.
    """
    if not jobs:
        return 0.0
    alone = max(job.work / min(gpus, job.gpus_max) for job in jobs)
    return max(alone, fsum(job.work for job in jobs) / gpus)


def shared_seconds(
    elapsed_seconds: float, phases: Sequence[Sequence[JobInfo]], gpus: float
) -> float:
    """T_sh of eq. 1 and 2 with ``gpus`` > 0 GPUs from now to the end."""
    return elapsed_seconds + fsum(phase_seconds(jobs, gpus) for jobs in phases)


def independent_seconds(budget: float, cluster_gpus: int, gpus_max: int, apps: float) -> float:
    """T_id of eq. 1 and 2: ``budget`` GPU seconds on all GPUs that the app can use, times N_avg."""
    return budget / min(cluster_gpus, gpus_max) * apps


def share_seconds(budget: float, cluster_gpus: int, gpus_max: int, apps: float) -> float:
    """The run time on exactly 1/N of the GPUs, which T_id approximates.

    T_id is longer by ``cluster_gpus / gpus_max`` for an app that cannot use the whole cluster and
    could use its share.
    """
    return budget / min(cluster_gpus / apps, float(gpus_max))
