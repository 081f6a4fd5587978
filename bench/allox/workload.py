"""The hybrid cluster and the jobs of section 5 of the AlloX paper, as far as it prints them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.allox.sampling import Sample, run_seconds
from hopsd.model.devices import CPU
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.protocol import Policy

GPU = GpuType("k80")
DEVICES = 20
"""Number of GPUs, and of CPUs with 20 cores each. Jobs use 19 cores of a CPU; one is kept free."""

USERS = 10
LONG_USER = UserName("user0")
LONG = 4.0
"""How many times longer one user's jobs are (figure 15 has such a user)."""

SPEEDUPS = (1.8, 2.2, 2.7, 3.3, 4.0, 4.8, 5.8, 7.0, 8.4, 10.0)
"""GPU speedups of ten models: 1.8 to 10 in the paper; we choose equal ratios in between."""

MEDIAN_SECONDS, SIGMA = 120.0, 1.5
"""Log-normal run time on a GPU. The paper only says: many short jobs, few long ones."""

PERIOD_SECONDS, SWING = 7200.0, 0.8
"""The arrival rate alternates around its mean: busy and quiet hours, since the paper does not
publish its trace."""


def cluster() -> Cluster:
    """A cluster with one server per device: a job takes one GPU or one CPU."""
    kinds = ((GPU, "gpu"), (CPU, "cpu"))
    return Cluster(
        tuple(Server(NodeName(f"{n}{i}"), t, 1) for t, n in kinds for i in range(DEVICES))
    )


def workload(seed: int, jobs_per_user: int, load: float, overhead: float) -> Workload:
    """Draw ``jobs_per_user`` jobs for every user.

    ``load`` is the GPU seconds that arrive per second, divided by the number of GPUs;
    ``overhead`` is the share of a job that its samples cost.
    """
    rng = random.Random(seed)
    tables = {
        WorkloadName(f"model{i}"): {
            GPU: ThroughputTable({1: 1000.0}),
            CPU: ThroughputTable({1: 1000.0 / speedup}),
        }
        for i, speedup in enumerate(SPEEDUPS)
    }
    users = [UserName(f"user{i}") for i in range(USERS)] * jobs_per_user
    rng.shuffle(users)
    specs = []
    for user in users:
        seconds = rng.lognormvariate(0.0, SIGMA) * MEDIAN_SECONDS
        specs.append((user, seconds * (LONG if user == LONG_USER else 1.0)))
    rate = load * DEVICES * len(specs) / sum(seconds for _, seconds in specs)
    names = list(tables)
    clock, jobs = 0.0, []
    for number, (user, seconds) in enumerate(specs):
        jobs.append(
            WorkloadJob(
                id=JobId(str(number)),
                user=user,
                submit=round(clock, 3),
                workload=rng.choice(names),
                samples=1000.0 * seconds * (1.0 + overhead),
                reqs=(1,),
                cpu=True,
            )
        )
        busy = 1.0 + (SWING if clock % PERIOD_SECONDS < PERIOD_SECONDS / 2 else -SWING)
        clock += rng.expovariate(rate * busy)
    return Workload(tables, tuple(jobs))


@dataclass(frozen=True, slots=True)
class Misestimating:
    """A policy that knows run times from two samples of each job on each type.

    ``noise`` is the relative standard deviation of a sample's measured time. Samples are 0.5 and
    1 % of a job, so that four of them make the paper's 3 %.
    """

    policy: Policy
    noise: float
    seed: int

    @property
    def every_first(self) -> bool:
        return bool(getattr(self.policy, "every_first", False))

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        return self.policy(
            replace(snapshot, jobs=tuple(map(self._with_estimates, snapshot.jobs))), settings
        )

    def _with_estimates(self, job: Job) -> Job:
        tables: Mapping[GpuType, ThroughputTable] = {
            gpu_type: ThroughputTable({1: table.aggregated[1] * self.factor(job.id, gpu_type)})
            for gpu_type, table in job.throughput.items()
        }
        return replace(job, throughput=tables)

    def factor(self, job: JobId, gpu_type: GpuType) -> float:
        """True over estimated run time."""
        rng = random.Random(f"{self.seed} {job} {gpu_type}")
        short, long = (Sample(n, n * max(0.1, rng.gauss(1.0, self.noise))) for n in (0.5, 1.0))
        return 100.0 / run_seconds(short, long, 100.0)
