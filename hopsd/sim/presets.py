"""The paper's clusters and job mixes (sections 4.2 and 4.3, table 2, figure 8)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from hopsd.core.speed.throughput import theory_table
from hopsd.errors import InputError
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.sim import models
from hopsd.sim.models import MODELS, Hardware, basic_times

GPU_HOURS = {"S": (0.05, 1.0), "M": (1.0, 10.0), "L": (10.0, 50.0), "XL": (50.0, 100.0)}
"""Hours on one GPU of the mean type by category (section 4.2); the paper gives no lower bound for
S and no upper bound for XL."""

MIX_64 = {"S": 0.25, "M": 0.30, "L": 0.30, "XL": 0.15}
MIX_512 = {"S": 0.40, "M": 0.35, "L": 0.20, "XL": 0.05}
"""Assumptions, since figure 8 prints no numbers. With these, all jobs together need 8 hours of
64 GPUs and 10 hours of 512, so that the makespans of tables 3 and 4 are possible."""

MAX_GPUS = 16
MAX_HOURS = 8.0
"""Assumption: no job asks for so few GPUs that its median count takes more hours on the mean type.
Otherwise one rigid 1-GPU job of category XL would make every makespan a week."""

SERVER_FACTOR_SIGMA = 0.03
"""Relative spread of servers of one type; the paper's figure 1a shows a few percent."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A cluster as groups of equal servers, and the workload that the paper ran on it."""

    groups: Sequence[tuple[Hardware, int, int]]
    jobs: int
    hours: float
    mix: Mapping[str, float]

    def cluster(self) -> Cluster:
        """Return the cluster; servers of one group are neighbours, as in a rack."""
        servers = [
            Server(NodeName(f"{hardware.gpu_type}-{i}"), hardware.gpu_type, gpus)
            for hardware, count, gpus in self.groups
            for i in range(count)
        ]
        links = {hardware.gpu_type: hardware.links for hardware, _, _ in self.groups}
        return Cluster(tuple(servers), links)

    def workload(
        self, seed: int, *, jobs: int | None = None, rate_per_hour: float | None = None
    ) -> Workload:
        """Generate Poisson arrivals over the preset's hours; the arguments override its numbers."""
        cluster = self.cluster()
        count = jobs or self.jobs
        rate = (rate_per_hour or self.jobs / self.hours) / 3600.0
        tables = {
            model.name: {
                hardware.gpu_type: theory_table(basic_times(model, hardware), gpus)
                for hardware, _, gpus in self.groups
            }
            for model in MODELS
        }
        kinds = [TrainingKind(model.name, model.category, model.batch) for model in MODELS]
        return generate(cluster, tables, kinds, self.mix, count, rate, seed)


PRESETS = {
    "paper-64": Preset(
        groups=(
            (models.GTX1080TI, 2, 8),
            (models.TITANXP, 4, 8),
            (models.RTX3090_192G_4, 2, 4),
            (models.RTX3090_384G_4, 2, 4),
        ),
        jobs=25,
        hours=2.5,
        mix=MIX_64,
    ),
    "paper-512": Preset(
        groups=(
            (models.GTX1080TI, 16, 8),
            (models.TITANXP, 16, 8),
            (models.RTX3090_192G_8, 16, 8),
            (models.RTX3090_384G_8, 8, 8),
            (models.RTX3090_384G_5320, 8, 8),
        ),
        jobs=500,
        hours=5.0,
        mix=MIX_512,
    ),
}


def preset(name: str) -> Preset:
    """Return the preset of this name.

    Raises:
        InputError: if there is no such preset.
    """
    if name not in PRESETS:
        raise InputError(f"preset {name!r} is unknown; choose from {', '.join(PRESETS)}")
    return PRESETS[name]


Tables = Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]]


@dataclass(frozen=True, slots=True)
class TrainingKind:
    """A kind of training that jobs of a category may run; ``batch`` is in samples per GPU."""

    name: WorkloadName
    category: str
    batch: int


def generate(
    cluster: Cluster,
    tables: Tables,
    kinds: Sequence[TrainingKind],
    mix: Mapping[str, float],
    count: int,
    rate_per_second: float,
    seed: int,
) -> Workload:
    """Generate ``count`` jobs with Poisson arrivals, the first at 0.

    Each job's category follows ``mix``, its kind is one of that category, its hours on one
    GPU of the mean type are log-uniform within the category, its requirements are up to 8
    of the counts 1 to 16 (section 4.2).
    """
    rng = random.Random(seed)  # noqa: S311  # a simulation, not a secret
    present = cluster.gpus_by_type()
    categories, weights = zip(*mix.items(), strict=True)
    clock = 0.0
    jobs = []
    for number in range(1, count + 1):
        category = rng.choices(categories, weights)[0]
        model = rng.choice([k for k in kinds if k.category == category])
        low, high = GPU_HOURS[category]
        hours = low * (high / low) ** rng.random()
        reqs = _requirements(rng, hours)
        jobs.append(
            WorkloadJob(
                id=JobId(str(number)),
                user=UserName(f"user{rng.randrange(20)}"),
                submit=round(clock, 3),
                workload=model.name,
                samples=float(round(hours * 3600.0 * mean_rate(tables[model.name], present))),
                batch_size=model.batch,
                reqs=reqs,
            )
        )
        clock += rng.expovariate(rate_per_second)
    factors = server_factors(cluster, tables, rng)
    return Workload(tables, tuple(jobs), factors)


def _requirements(rng: random.Random, hours: float) -> tuple[int, ...]:
    """Draw 1 to 8 of the counts 1 to 16 whose median ends the job within a working day."""
    while True:
        reqs = tuple(sorted(rng.sample(range(1, MAX_GPUS + 1), rng.randint(1, 8))))
        if hours / median_low(reqs) <= MAX_HOURS:
            return reqs


def mean_rate(tables: Mapping[GpuType, ThroughputTable], gpus: Mapping[GpuType, int]) -> float:
    """Samples per second of one mean GPU, on which the run time is eq. 9's expectation."""
    usable_types = {t: n for t, n in gpus.items() if t in tables}
    seconds_per_sample = sum(n / tables[t].aggregated[1] for t, n in usable_types.items())
    return sum(usable_types.values()) / seconds_per_sample


def server_factors(
    cluster: Cluster, tables: Tables, rng: random.Random
) -> dict[WorkloadName, dict[NodeName, float]]:
    """Draw a speed factor per server, the same for all workloads, as for cooling or disks."""
    factors = {
        s.name: round(min(1.1, max(0.9, rng.gauss(1.0, SERVER_FACTOR_SIGMA))), 4)
        for s in cluster.servers
    }
    return dict.fromkeys(tables, factors)
