"""Traces with run times: Philly's, and a generated one in which programs are run again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp

from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.scenario import Cluster, Workload, WorkloadJob
from hopsd.sim.facts import facts_of
from hopsd.sim.logs.importers import philly, workload_of
from hopsd.sim.presets import preset

PROGRAMS_EACH, USERS = 3, 8
"""Repeated programs per user, and number of users."""

NEW_SHARE, BROKEN_SHARE = 0.15, 0.15
"""Shares of jobs whose program runs once, and that fail within a tenth of their time."""

AGAIN_SIGMA = 0.25
"""Standard deviation of ln(run time) between the runs of one program. 3Sigma's authors find 8 to
23 % of the predictions in their traces off by a factor of two or more."""


@dataclass(frozen=True)
class LoggedJob:
    """A job that ran for ``seconds`` as soon as it was submitted; ``limit`` is in seconds, too."""

    user: UserName
    workload: WorkloadName
    submit: float
    seconds: float
    gpus: float
    limit: float


def repeat_programs(
    name: str, seed: int, jobs: int, rate_per_hour: float | None = None
) -> Workload:
    """The preset's models, arrivals and requirements, with repeated programs.

    Each user has a few programs, each with the model, requirements and length of one of the
    preset's jobs. A job is a run of one of them, a little shorter or longer, or of a new program;
    some fail early.
    """
    base = preset(name).workload(seed, jobs=jobs, rate_per_hour=rate_per_hour)
    rng = random.Random(seed)  # a simulation, not a secret
    pool = list(preset(name).workload(seed + 1000, jobs=max(jobs, USERS * PROGRAMS_EACH)).jobs)
    programs_by_user = [[pool.pop() for _ in range(PROGRAMS_EACH)] for _ in range(USERS)]
    workload_names = {
        (user, k): WorkloadName(f"u{user}.{program.workload}.{k}")
        for user, programs in enumerate(programs_by_user)
        for k, program in enumerate(programs)
    }
    jobs_of_runs: list[WorkloadJob] = []
    model: dict[WorkloadName, WorkloadName] = {}
    for number, job in enumerate(base.jobs):
        user = rng.randrange(USERS)
        k = rng.randrange(PROGRAMS_EACH)
        program, workload = programs_by_user[user][k], workload_names[user, k]
        if rng.random() < NEW_SHARE:
            program, workload = job, WorkloadName(f"u{user}.{job.workload}.once{number}")
        length = exp(rng.gauss(0.0, AGAIN_SIGMA))
        if rng.random() < BROKEN_SHARE:
            length *= rng.uniform(0.001, 0.1)
        model[workload] = program.workload
        jobs_of_runs.append(
            replace(
                job,
                user=UserName(f"u{user}"),
                workload=workload,
                samples=max(1.0, program.samples * length),
                reqs=program.reqs,
                batch_size=program.batch_size,
            )
        )
    return Workload(
        {name: base.throughput[model_name] for name, model_name in model.items()},
        tuple(jobs_of_runs),
        {name: base.server_factor[model_name] for name, model_name in model.items()},
    )


def log_jobs(
    cluster: Cluster, workload: Workload, limits: Mapping[JobId, float]
) -> list[LoggedJob]:
    """Jobs with the run time of eq. 9, as on an idle cluster."""
    return [
        LoggedJob(
            spec.user,
            spec.workload,
            spec.submit,
            facts.age,
            facts.gpu_seconds / facts.age,
            limits[spec.id],
        )
        for spec, facts in zip(workload.jobs, facts_of(cluster, workload), strict=True)
    ]


def philly_workload(text: str, cluster: Cluster) -> Workload:
    """Philly's jobs; a virtual cluster counts as a user, and each job as a separate program."""
    workload = workload_of(philly(text), cluster)
    names = {job.id: WorkloadName(f"{job.workload}-{job.id}") for job in workload.jobs}
    (table,) = workload.throughput.values()
    jobs = tuple(replace(job, workload=names[job.id]) for job in workload.jobs)
    return Workload(dict.fromkeys(names.values(), table), jobs)
