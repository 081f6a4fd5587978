"""Agents bid for apps: they turn what an app reports into its rho (Themis, section 4.3).

The interface to the app is exactly that of figure 7: given an allocation, an app returns its jobs
in a phase. A search by performance curves is an app of one phase with the remaining jobs, each with
its most optimistic forecast; a single job is an app of one phase with one job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, inf
from statistics import median
from typing import NamedTuple, Protocol

from hopsd.core.queue.priority import ages
from hopsd.core.speed.speed_answer import ASSUMED
from hopsd.core.speed.throughput import per_gpu, single_gpu
from hopsd.model.ids import GpuType, JobId, RackName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import Snapshot
from hopsd.policies.themis.apps import App
from hopsd.policies.themis.finish_time import (
    ACROSS_RACKS,
    ACROSS_SERVERS,
    IN_SERVER,
    JobInfo,
    independent_seconds,
    shared_seconds,
)

MIN_LEFT = 1e-3
"""Minimum share of its work that a job is expected to have left."""


class Part(NamedTuple):
    """A server's part of an offer: its GPUs."""

    gpu_type: GpuType
    gpus: int
    rack: RackName | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs of one or more types, as one of ``parts`` per server, the largest first.

    No app distinguishes between offers that compare as equal.
    """

    parts: tuple[Part, ...]

    @property
    def gpus(self) -> int:
        return sum(part.gpus for part in self.parts)

    def union(self, second: Offer) -> Offer:
        return Offer(tuple(sorted(self.parts + second.parts, key=_largest_first)))


def _largest_first(part: Part) -> tuple[int, GpuType, str]:
    return -part.gpus, part.gpu_type, part.rack or ""


class AppScheduler(Protocol):
    """The hyper-parameter optimiser as seen by an agent (figure 7)."""

    def phases(self) -> int:
        """getNumPhases: the remaining phases, the present one first."""
        ...

    def jobs_in_phase(self, phase: int, offer: Offer) -> Sequence[JobInfo]:
        """getJobsInPhase; with one phase getJobsRemaining."""
        ...


@dataclass(frozen=True)
class Market:
    """Data shared by all agents of an auction.

    ``serial`` and ``remaining``: total and remaining seconds of each job on one mean GPU; ``rate``:
    samples per second of that GPU.
    """

    now: float
    gpus: int
    apps: int
    serial: dict[JobId, float]
    remaining: dict[JobId, float]
    rate: dict[JobId, float]

    @staticmethod
    def from_apps(snapshot: Snapshot, apps: Sequence[App]) -> Market:
        jobs = [job for app in apps for job in app.jobs]
        gpus: dict[GpuType, int] = {}
        for node in snapshot.nodes:
            gpus[node.gpu_type] = gpus.get(node.gpu_type, 0) + node.gpus
        age = ages(jobs, snapshot.nodes)
        serial = {job.id: age[job.id] * fsum(job.reqs) / len(job.reqs) for job in jobs}
        return Market(
            now=snapshot.now,
            gpus=sum(gpus.values()),
            apps=len(apps),
            serial=serial,
            remaining={job.id: serial[job.id] * _share_left(job, age[job.id]) for job in jobs},
            rate={job.id: _mean_rate(job, gpus) for job in jobs},
        )


def _share_left(job: Job, age: float) -> float:
    done_share = job.samples_done / job.samples if job.samples else job.run_seconds / age
    return max(MIN_LEFT, 1.0 - done_share)


def _mean_rate(job: Job, gpus: dict[GpuType, int]) -> float:
    """The rate of eq. 9 of the Hops paper, from the mean over GPUs of the seconds per sample."""
    usable_gpus = {t: n for t, n in gpus.items() if t in job.throughput and single_gpu(job, t) > 0}
    if not usable_gpus:
        return 1.0
    return sum(usable_gpus.values()) / fsum(n / single_gpu(job, t) for t, n in usable_gpus.items())


@dataclass(frozen=True)
class JobsApp:
    """The app scheduler of an app that consists of Slurm jobs.

    Phases are those of the jobs' comments. Which jobs survive a phase is not known before its end:
    jobs of later phases count with the median pace of the present ones (section 4.3.3).
    """

    app: App
    market: Market

    @cached_property
    def _phases(self) -> list[list[Job]]:
        numbers = sorted({job.phase for job in self.app.jobs})
        return [[job for job in self.app.jobs if job.phase == number] for number in numbers]

    def phases(self) -> int:
        return len(self._phases)

    def jobs_in_phase(self, phase: int, offer: Offer) -> Sequence[JobInfo]:
        jobs, present = self._phases[phase], self._phases[0]
        seconds = [1.0 / self.market.rate[job.id] for job in present]
        slowdown = [
            slowdown_of(job, offer, len(jobs), r) for job, r in zip(present, seconds, strict=True)
        ]
        if phase > 0:
            seconds, slowdown = [median(seconds)] * len(jobs), [median(slowdown)] * len(jobs)
        return [
            JobInfo(
                self.market.remaining[job.id] * self.market.rate[job.id],
                job_seconds,
                factor,
                max(job.reqs),
            )
            for job, job_seconds, factor in zip(jobs, seconds, slowdown, strict=True)
        ]


def slowdown_of(job: Job, offer: Offer, jobs: int, seconds: float) -> float:
    """S of a job's share of ``offer`` among ``jobs``, relative to ``seconds`` a sample on one GPU.

    It is as measured, or depends on the placement if the type's table is only assumed.
    """
    share = min(max(job.reqs), max(1, offer.gpus // jobs))
    servers, assumed_slowdown = _placement(offer, share, min(jobs, offer.gpus // share))
    usable = [part for part in offer.parts if part.gpu_type in job.throughput]
    pace = fsum(
        part.gpus * _pace(job.throughput[part.gpu_type], share, servers, assumed_slowdown)
        for part in usable
    )
    return pace / sum(part.gpus for part in usable) / seconds if usable else inf


def _placement(offer: Offer, share: int, gpus_needed: int) -> tuple[int, float]:
    """The number of servers over which a share of GPUs spreads, and S by placement.

    A share counts as being in one server, or one rack, if all ``gpus_needed`` shares can be.
    """
    if sum(part.gpus // share for part in offer.parts) >= gpus_needed:
        return 1, IN_SERVER
    racks = Counter[RackName | None]()
    for part in offer.parts:
        racks[part.rack] += part.gpus
    fits_in_racks = sum(gpus // share for gpus in racks.values()) >= gpus_needed
    return _servers(offer, share), ACROSS_SERVERS if fits_in_racks else ACROSS_RACKS


def _servers(offer: Offer, gpus: int) -> int:
    """The smallest number of the offer's servers that hold ``gpus`` GPUs."""
    for count, part in enumerate(offer.parts, 1):
        gpus -= part.gpus
        if gpus <= 0:
            return count
    return len(offer.parts)


def _pace(table: ThroughputTable, gpus: int, servers: int, assumed_slowdown: float) -> float:
    """GPU seconds per sample; ``assumed_slowdown`` is S where the table is not measured."""
    if table.source_of(gpus, servers) == ASSUMED:
        return assumed_slowdown / per_gpu(table, 1, 1)
    rate = per_gpu(table, gpus, servers)
    return 1.0 / rate if rate > 0 else inf


IndependentTime = Callable[[float, int, int, float], float]


@dataclass(frozen=True, slots=True)
class Agent:
    """Bids for one app. ``independent`` is T_id; ``kept_gpus`` are GPUs that it keeps anyway."""

    scheduler: AppScheduler
    elapsed_seconds: float
    independent: float
    kept_gpus: Offer

    def rho(self, offer: Offer, lost_seconds: float = 0.0) -> float:
        """rho with ``offer`` and what the app keeps, after ``lost_seconds`` for a restart.

        It is infinite without any GPU, as the app would never end.
        """
        combined_offer = self.kept_gpus.union(offer)
        if not combined_offer.gpus:
            return inf
        phases = [
            self.scheduler.jobs_in_phase(i, combined_offer) for i in range(self.scheduler.phases())
        ]
        elapsed_seconds = self.elapsed_seconds + lost_seconds
        return shared_seconds(elapsed_seconds, phases, combined_offer.gpus) / self.independent


Agents = Callable[[App, Market, Offer], Agent]


def honest(
    app: App, market: Market, offer: Offer, independent: IndependentTime = independent_seconds
) -> Agent:
    """A truthful agent for an app that consists of Slurm jobs."""
    budget = fsum(market.serial[job.id] for job in app.jobs)
    budget += max(job.app_gpu_seconds for job in app.jobs)
    eldest = min(app.jobs, key=lambda job: job.submit)
    return Agent(
        JobsApp(app, market),
        max(0.0, market.now - app.submit),
        independent(budget, market.gpus, gpus_max(app), eldest.contention or float(market.apps)),
        offer,
    )


def gpus_max(app: App) -> int:
    """app_demand_max: the most GPUs that its widest phase can use."""
    wide: dict[int, int] = {}
    for job in app.jobs:
        wide[job.phase] = wide.get(job.phase, 0) + max(job.reqs)
    return max(wide.values())
