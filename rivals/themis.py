"""The schedulers that Themis is compared with, as described in its section 6.1.

Like Themis they offer GPUs whose lease has ended; each then assigns them greedily by one measure.
Schedulers that, according to the paper, ignore placement take GPUs from servers in the cluster's
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hopsd.core.placement.pools import pools_of
from hopsd.core.speed.throughput import configuration_throughput
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies import reasons
from hopsd.policies.placing import Servers
from hopsd.policies.themis.agents import Market
from hopsd.policies.themis.apps import App
from hopsd.policies.themis.leases import without_leases


@dataclass(frozen=True)
class Round:
    """A scheduler's input: contending jobs in order of submission, and idle GPUs."""

    snapshot: Snapshot
    settings: PlanSettings
    servers: Servers
    market: Market
    apps: Sequence[App]
    jobs: Sequence[Job]
    types: Mapping[NodeName, GpuType]

    def rate(self, job: Job, allocation: Allocation) -> float:
        return configuration_throughput(job, allocation, self.types)

    def best(self, job: Job, counts: Sequence[int]) -> Allocation | None:
        """Place the largest of ``counts`` that fits: where the job runs, or on the fastest GPUs."""
        for gpus in sorted(counts, reverse=True):
            if job.running.gpus == gpus and self.servers.holds(job.running):
                return job.running
            allocation = self.servers.fastest(job, gpus)
            if allocation is not None:
                return allocation
        return None


Give = Callable[[Round], dict[JobId, Allocation]]


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy with leases that distributes GPUs by ``give``."""

    give: Give

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        servers, placements, apps = without_leases(snapshot, settings.lease_seconds)
        jobs = [job for app in apps for job in app.contending]
        runnable = [
            j for j in jobs if any(servers.runs_on(j, t, min(j.reqs)) for t in servers.types)
        ]
        types = {node.name: node.gpu_type for node in snapshot.nodes}
        market = Market.from_apps(snapshot, apps)
        placements |= self.give(Round(snapshot, settings, servers, market, apps, runnable, types))
        pools, runnable_ids = pools_of(snapshot.nodes), {job.id for job in runnable}
        reason = Reason(ReasonCode.LOST_TO_OTHERS, "idle GPUs went to jobs of higher priority")
        waiting = {
            job.id: reason if job.id in runnable_ids else reasons.nowhere(job, pools)
            for job in jobs
            if job.id not in placements
        }
        window = tuple(job.id for job in runnable)
        fragments = servers.left if waiting else 0
        return Plan(placements, window=window, fragments=fragments, waiting=waiting)


def in_order(round_: Round, jobs: Sequence[Job], *, blind: bool) -> dict[JobId, Allocation]:
    """Let each job in turn take the largest of its counts that fits on idle GPUs."""
    placements: dict[JobId, Allocation] = {}
    for job in jobs:
        if not round_.servers.left:
            break
        allocation = ignoring_placement(round_, job) if blind else round_.best(job, job.reqs)
        if allocation is not None:
            round_.servers.take(allocation)
            placements[job.id] = allocation
    return placements


def ignoring_placement(round_: Round, job: Job) -> Allocation | None:
    """Place the largest count on the first idle GPUs, over as many servers as that takes.

    A job stays where it is if it has that count. All GPUs are of one type: jobs cannot mix types.
    """
    for gpus in sorted(job.reqs, reverse=True):
        if job.running.gpus == gpus and round_.servers.holds(job.running):
            return job.running
        for gpu_type in round_.servers.types:
            parts: dict[NodeName, int] = {}
            missing = gpus
            for node in round_.snapshot.nodes:
                if node.gpu_type == gpu_type and missing:
                    parts[node.name] = min(missing, round_.servers.idle[node.name])
                    missing -= parts[node.name]
            allocation = Allocation.of(parts)
            if not missing and round_.rate(job, allocation) > 0:
                return allocation
    return None


def _service(round_: Round) -> dict[JobId, float]:
    """GPU seconds that the app of each job has received."""
    return {
        job.id: sum(j.attained_gpu_seconds for j in app.jobs)
        + max(j.app_gpu_seconds for j in app.jobs)
        for app in round_.apps
        for job in app.jobs
    }


def _remaining(round_: Round) -> dict[JobId, float]:
    """GPU seconds that the app of each job still needs."""
    remaining_share = round_.market.remaining
    return {
        job.id: sum(remaining_share[j.id] for j in app.jobs)
        for app in round_.apps
        for job in app.jobs
    }


def _least_service(round_: Round) -> dict[JobId, Allocation]:
    service = _service(round_)
    return in_order(round_, sorted(round_.jobs, key=lambda job: service[job.id]), blind=True)


def _least_remaining_service(round_: Round) -> dict[JobId, Allocation]:
    remaining = _remaining(round_)
    return in_order(round_, sorted(round_.jobs, key=lambda job: remaining[job.id]), blind=True)


def _least_remaining_time(round_: Round) -> dict[JobId, Allocation]:
    """Order by the time left on the fastest placement that is idle when the plan begins."""

    def seconds(job: Job) -> float:
        allocation = round_.best(job, job.reqs)
        rate = round_.rate(job, allocation) if allocation is not None else 0.0
        remaining_seconds = round_.market.remaining[job.id] * round_.market.rate[job.id]
        return remaining_seconds / rate if rate > 0 else inf

    return in_order(round_, sorted(round_.jobs, key=seconds), blind=False)


def _best_placement(round_: Round) -> dict[JobId, Allocation]:
    """Place by highest score: speed per GPU over that of as many GPUs close together."""
    placements: dict[JobId, Allocation] = {}
    waiting = list(round_.jobs)
    while waiting and round_.servers.left:
        offers = []
        for place, job in enumerate(waiting):
            allocation = round_.best(job, job.reqs)
            if allocation is not None:
                offers.append(
                    (
                        placement_score(round_, job, allocation),
                        allocation.gpus,
                        -place,
                        job,
                        allocation,
                    )
                )
        if not offers:
            break
        *_, job, allocation = max(offers, key=lambda offer: offer[:3])
        round_.servers.take(allocation)
        placements[job.id] = allocation
        waiting = [waiting_job for waiting_job in waiting if waiting_job.id != job.id]
    return placements


def placement_score(round_: Round, job: Job, allocation: Allocation) -> float:
    """1/S of an allocation: its speed per GPU over that of as many GPUs close together."""
    gpu_type = round_.types[allocation.nodes[0]]
    close = round_.servers.rate_on(job, gpu_type, allocation.gpus)
    return round_.rate(job, allocation) / close if close > 0 else 0.0


def _by_gain(
    round_: Round, gain: Callable[[Round, Job, float, float], float]
) -> dict[JobId, Allocation]:
    """Repeatedly raise the count of the job with the largest gain per GPU; then place, large first.

    ``gain`` values a job's change from one speed to another, in samples per second.
    """
    counts = dict.fromkeys((job.id for job in round_.jobs), 0)
    idle_gpus = round_.servers.left
    growing = list(round_.jobs)
    while growing and idle_gpus:
        steps = []
        for place, job in enumerate(growing):
            next_count = min((r for r in job.reqs if r > counts[job.id]), default=None)
            if next_count is not None and next_count - counts[job.id] <= idle_gpus:
                step_gain = gain(
                    round_,
                    job,
                    _speed(round_, job, counts[job.id]),
                    _speed(round_, job, next_count),
                )
                steps.append((step_gain / (next_count - counts[job.id]), -place, job, next_count))
        if not steps:
            break
        *_, job, next_count = max(steps, key=lambda step: step[:2])
        idle_gpus -= next_count - counts[job.id]
        counts[job.id] = next_count
        growing = [j for j in growing if max(j.reqs) > counts[j.id]]
    placements = {}
    for job in sorted(round_.jobs, key=lambda job: -counts[job.id]):
        allocation = round_.best(job, [r for r in job.reqs if r <= counts[job.id]])
        if allocation is not None:
            round_.servers.take(allocation)
            placements[job.id] = allocation
    return placements


def _speed(round_: Round, job: Job, gpus: int) -> float:
    """Samples per second on the type where ``gpus`` GPUs, close together, are fastest."""
    return max(round_.servers.rate_on(job, t, gpus) for t in round_.servers.types) if gpus else 0.0


def _scaling(round_: Round, job: Job, before: float, after: float) -> float:  # noqa: ARG001
    """Return new speed over old; infinite without an old one."""
    return after / before if before > 0 else inf


LOSS_STEEPNESS = 10.0
"""Assumption: the loss after a share p of the training is 1 / (1 + LOSS_STEEPNESS p)."""


def _loss(round_: Round, job: Job, before: float, after: float) -> float:
    """Compute by how much more the loss falls within a lease."""
    seconds = max(round_.settings.lease_seconds, round_.snapshot.round.seconds)
    serial = round_.market.serial[job.id]
    done_share = 1.0 - round_.market.remaining[job.id] / serial
    total_seconds = serial * round_.market.rate[job.id]

    def at(speed: float) -> float:
        return 1.0 / (1.0 + LOSS_STEEPNESS * min(1.0, done_share + speed * seconds / total_seconds))

    return at(before) - at(after)


gandiva = Rival(_best_placement)
tiresias = Rival(_least_service)
optimus = Rival(lambda now: _by_gain(now, _scaling))
slaq = Rival(lambda now: _by_gain(now, _loss))
srtf = Rival(_least_remaining_time)
srsf = Rival(_least_remaining_service)
