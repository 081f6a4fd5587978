"""The schedulers that Themis is compared with, as described in its section 6.1.

Like Themis they offer GPUs whose lease has ended; each then assigns them greedily by one measure.
For schedulers that ignore placement according to the paper, GPUs are taken from servers in the
cluster's order.
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
from hopsd.policies.themis.leases import unleased


@dataclass(frozen=True)
class Round:
    """A scheduler's input: contending jobs in order of submission, and what is idle."""

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
        """The largest of ``counts`` that fits, where the job runs or else on its fastest GPUs."""
        for gpus in sorted(counts, reverse=True):
            if job.running.gpus == gpus and self.servers.holds(job.running):
                return job.running
            found = self.servers.fastest(job, gpus)
            if found is not None:
                return found
        return None


Give = Callable[[Round], dict[JobId, Allocation]]


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy with leases that distributes GPUs by ``give``."""

    give: Give

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        servers, placements, apps = unleased(snapshot, settings.lease_seconds)
        jobs = [job for app in apps for job in app.contending]
        able = [j for j in jobs if any(servers.runs_on(j, t, min(j.reqs)) for t in servers.types)]
        types = {node.name: node.gpu_type for node in snapshot.nodes}
        market = Market.of(snapshot, apps)
        placements |= self.give(Round(snapshot, settings, servers, market, apps, able, types))
        pools, known = pools_of(snapshot.nodes), {job.id for job in able}
        lost = Reason(ReasonCode.LOST_TO_OTHERS, "idle GPUs went to jobs of higher priority")
        waiting = {
            job.id: lost if job.id in known else reasons.nowhere(job, pools)
            for job in jobs
            if job.id not in placements
        }
        window = tuple(job.id for job in able)
        fragments = servers.left if waiting else 0
        return Plan(placements, window=window, fragments=fragments, waiting=waiting)


def in_order(now: Round, jobs: Sequence[Job], *, blind: bool) -> dict[JobId, Allocation]:
    """Each job in turn takes the largest of its counts that is idle."""
    placed: dict[JobId, Allocation] = {}
    for job in jobs:
        if not now.servers.left:
            break
        found = ignoring_placement(now, job) if blind else now.best(job, job.reqs)
        if found is not None:
            now.servers.take(found)
            placed[job.id] = found
    return placed


def ignoring_placement(now: Round, job: Job) -> Allocation | None:
    """The largest count on the first idle GPUs, over as many servers as that takes.

    A job stays where it is if it has that count. All GPUs are of one type: jobs cannot mix types.
    """
    for gpus in sorted(job.reqs, reverse=True):
        if job.running.gpus == gpus and now.servers.holds(job.running):
            return job.running
        for gpu_type in now.servers.types:
            parts: dict[NodeName, int] = {}
            missing = gpus
            for node in now.snapshot.nodes:
                if node.gpu_type == gpu_type and missing:
                    parts[node.name] = min(missing, now.servers.idle[node.name])
                    missing -= parts[node.name]
            found = Allocation.of(parts)
            if not missing and now.rate(job, found) > 0:
                return found
    return None


def _service(now: Round) -> dict[JobId, float]:
    """GPU seconds that the app of each job has had."""
    return {
        job.id: sum(j.attained_gpu_seconds for j in app.jobs)
        + max(j.app_gpu_seconds for j in app.jobs)
        for app in now.apps
        for job in app.jobs
    }


def _remaining(now: Round) -> dict[JobId, float]:
    """Seconds of one GPU that the app of each job still needs."""
    left = now.market.left
    return {job.id: sum(left[j.id] for j in app.jobs) for app in now.apps for job in app.jobs}


def _least_service(now: Round) -> dict[JobId, Allocation]:
    service = _service(now)
    return in_order(now, sorted(now.jobs, key=lambda job: service[job.id]), blind=True)


def _least_remaining_service(now: Round) -> dict[JobId, Allocation]:
    left = _remaining(now)
    return in_order(now, sorted(now.jobs, key=lambda job: left[job.id]), blind=True)


def _least_remaining_time(now: Round) -> dict[JobId, Allocation]:
    """By the time left on the fastest placement that is idle as the plan begins."""

    def seconds(job: Job) -> float:
        found = now.best(job, job.reqs)
        rate = now.rate(job, found) if found is not None else 0.0
        left = now.market.left[job.id] * now.market.rate[job.id]
        return left / rate if rate > 0 else inf

    return in_order(now, sorted(now.jobs, key=seconds), blind=False)


def _best_placement(now: Round) -> dict[JobId, Allocation]:
    """Highest placement score first: speed per GPU over the best of the job anywhere."""
    placed: dict[JobId, Allocation] = {}
    waiting = list(now.jobs)
    while waiting and now.servers.left:
        offers = []
        for place, job in enumerate(waiting):
            found = now.best(job, job.reqs)
            if found is not None:
                offers.append((placement_score(now, job, found), found.gpus, -place, job, found))
        if not offers:
            break
        *_, job, found = max(offers, key=lambda offer: offer[:3])
        now.servers.take(found)
        placed[job.id] = found
        waiting = [other for other in waiting if other.id != job.id]
    return placed


def placement_score(now: Round, job: Job, allocation: Allocation) -> float:
    """1/S of an allocation: its speed per GPU over that of as many GPUs close together."""
    gpu_type = now.types[allocation.nodes[0]]
    close = now.servers.rate_on(job, gpu_type, allocation.gpus)
    return now.rate(job, allocation) / close if close > 0 else 0.0


def _by_gain(
    now: Round, gain: Callable[[Round, Job, float, float], float]
) -> dict[JobId, Allocation]:
    """Repeatedly raise the count of the job with the largest gain per GPU; then place, large first.

    ``gain`` of a job that goes from one speed to another, in samples per second.
    """
    counts = dict.fromkeys((job.id for job in now.jobs), 0)
    left = now.servers.left
    growing = list(now.jobs)
    while growing and left:
        steps = []
        for place, job in enumerate(growing):
            more = min((r for r in job.reqs if r > counts[job.id]), default=None)
            if more is not None and more - counts[job.id] <= left:
                gained = gain(now, job, _speed(now, job, counts[job.id]), _speed(now, job, more))
                steps.append((gained / (more - counts[job.id]), -place, job, more))
        if not steps:
            break
        *_, job, more = max(steps, key=lambda step: step[:2])
        left -= more - counts[job.id]
        counts[job.id] = more
        growing = [j for j in growing if max(j.reqs) > counts[j.id]]
    placed = {}
    for job in sorted(now.jobs, key=lambda job: -counts[job.id]):
        found = now.best(job, [r for r in job.reqs if r <= counts[job.id]])
        if found is not None:
            now.servers.take(found)
            placed[job.id] = found
    return placed


def _speed(now: Round, job: Job, gpus: int) -> float:
    """On the type where ``gpus`` GPUs are fastest, close together."""
    return max(now.servers.rate_on(job, t, gpus) for t in now.servers.types) if gpus else 0.0


def _scaling(now: Round, job: Job, before: float, after: float) -> float:  # noqa: ARG001
    """New speed over old; infinite without an old one."""
    return after / before if before > 0 else inf


LOSS_STEEPNESS = 10.0
"""Assumption: the loss after a share p of the training is 1 / (1 + 10 p)."""


def _loss(now: Round, job: Job, before: float, after: float) -> float:
    """By how much more the loss falls within a lease."""
    seconds = max(now.settings.lease_seconds, now.snapshot.round.seconds)
    serial = now.market.serial[job.id]
    done = 1.0 - now.market.left[job.id] / serial
    whole = serial * now.market.rate[job.id]

    def at(speed: float) -> float:
        return 1.0 / (1.0 + LOSS_STEEPNESS * min(1.0, done + speed * seconds / whole))

    return at(before) - at(after)


gandiva = Rival(_best_placement)
tiresias = Rival(_least_service)
optimus = Rival(lambda now: _by_gain(now, _scaling))
slaq = Rival(lambda now: _by_gain(now, _loss))
srtf = Rival(_least_remaining_time)
srsf = Rival(_least_remaining_service)
