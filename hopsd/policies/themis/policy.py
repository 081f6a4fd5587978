"""Themis (Mahajan et al., NSDI 2020): finish-time fairness by auctions of leased GPUs.

A plan is one round of pseudocode 1. The GPUs on offer are those without a lease. The share 1 - f of
the apps that could use one, those with the largest rho, bid; the winners of the auction keep what
their hidden payments leave them, and the rest goes to the apps that did not bid, in random order,
and then to those that bid and won nothing. Payments are not returned: GPUs that no other app can
use stay idle until the next plan. An app's scheduler divides what the app won among its jobs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as bind
from math import ceil, log

from hopsd.core.placement.pools import pools_of
from hopsd.core.queue.history import AppKey
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import Job, Node
from hopsd.model.plan import JobNumbers, Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies import reasons
from hopsd.policies.placing import Servers
from hopsd.policies.themis.agents import (
    Agent,
    Agents,
    Market,
    Offer,
    Part,
    gpus_max,
    honest,
)
from hopsd.policies.themis.apps import App, divide, grow
from hopsd.policies.themis.bids import Bids, offer_of
from hopsd.policies.themis.leases import without_leases


@dataclass(frozen=True, slots=True)
class Themis:
    """The Themis policy. ``agents`` makes the bidder of each app."""

    agents: Agents = honest

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        servers, placements, everyone = without_leases(snapshot, settings.lease_seconds)
        market = Market.from_apps(snapshot, everyone)
        apps = [app for app in map(bind(_runnable_part, servers), everyone) if app.contending]
        nodes = {node.name: node for node in snapshot.nodes}
        agents = {app.key: self.agents(app, market, offer_of(app.kept_gpus, nodes)) for app in apps}
        rho = {app.key: current_rho(app, agents[app.key], nodes) for app in apps}
        wait_by_app = {
            app.key: leases_waited(app, snapshot, settings.lease_seconds) for app in apps
        }
        rng = random.Random(settings.seed + snapshot.now)  # noqa: S311
        lot = {app.key: rng.random() for app in sorted(apps, key=lambda app: app.order)}
        apps.sort(key=lambda app: (-_claim(rho[app.key], wait_by_app[app.key]), lot[app.key]))
        bidders = apps[: bidder_count(len(apps), settings.filter_share)] if servers.left else []
        worth = bound = 0.0
        if bidders:
            bidding_agents = [agents[app.key] for app in bidders]
            bids = Bids.collect(bidders, bidding_agents, snapshot, servers, wait_by_app)
            outcome = bids.settle(settings)
            worth, bound = outcome.worth, outcome.bound
            for app, allocation in zip(bidders, bids.winnings(outcome, rng), strict=True):
                _give(app, allocation, market, servers, placements)
        for group in (apps[len(bidders) :], bidders):
            jobs = [job for app in group for job in app.contending if job.id not in placements]
            rng.shuffle(jobs)
            give_leftovers(jobs, servers, placements)
        waiting = {
            **_unplaceable_reasons(everyone, apps, snapshot),
            **_waiting_reasons(apps, len(bidders), rho, placements),
        }
        return Plan(
            placements=placements,
            objective=worth,
            upper_bound=bound,
            gap=(bound - worth) / bound if bound > 0 else 0.0,
            window=tuple(job.id for app in apps for job in app.contending),
            fragments=servers.left if waiting else 0,
            waiting=waiting,
            jobs=_numbers(apps, rho),
        )


def bidder_count(apps: int, filter_share: float) -> int:
    """Number of ``apps`` that bid: the share 1 - f, at least one."""
    return min(apps, max(1, ceil((1.0 - filter_share) * apps - 1e-9)))


def current_rho(app: App, agent: Agent, nodes: Mapping[NodeName, Node]) -> float:
    """rho with what the app holds now.

    It would be infinite for all apps that hold nothing. They are ranked instead by the rho with all
    GPUs that they can use, on one server, from now on, whatever they bid for less.
    """
    now = offer_of(app.present, nodes)
    if now.gpus:
        return replace(agent, kept_gpus=now).rho(Offer(()))
    usable = {t for job in app.contending for t in job.throughput}
    present = {node.gpu_type for node in nodes.values()}
    gpus_limit = gpus_max(app)
    return min(agent.rho(Offer((Part(t, gpus_limit),))) for t in sorted(usable & present))


def leases_waited(app: App, snapshot: Snapshot, lease_seconds: float) -> float:
    """Number of leases during which the app has held nothing."""
    if app.waits_since is None:
        return 0.0
    lease = max(lease_seconds, snapshot.round.seconds, 1.0)
    return max(0.0, snapshot.now - app.waits_since) / lease


def _claim(rho: float, wait_seconds: float) -> float:
    """The log of an app's claim to bid: its rho, doubled for each lease of waiting.

    By rho alone, an app that arrives late would wait until all earlier apps have ended.
    """
    return log(max(rho, 1e-12)) + log(2.0) * wait_seconds


def _runnable_part(servers: Servers, app: App) -> App:
    """Remove contending jobs that no idle cluster could hold from the app."""
    runs = tuple(
        job
        for job in app.contending
        if any(servers.runs_on(job, t, min(job.reqs)) for t in servers.types)
    )
    return replace(app, contending=runs)


def _give(
    app: App,
    win: Allocation,
    market: Market,
    servers: Servers,
    placements: dict[JobId, Allocation],
) -> None:
    """Give an app's jobs what it won."""
    if not win:
        return
    if len(app.contending) == 1:
        allocations = {app.contending[0].id: win}
    else:
        allocations = divide(
            [(job, market.remaining[job.id]) for job in app.contending], win, servers
        )
    for job, allocation in allocations.items():
        servers.take(allocation)
        placements[job] = allocation


def give_leftovers(
    jobs: Sequence[Job], servers: Servers, placements: dict[JobId, Allocation]
) -> None:
    """Give the GPUs that nobody won to ``jobs``, in their order.

    Jobs that can stay where they run do; the others start on their smallest count, and then grow as
    long as there is room.
    """
    growable = []
    for job in jobs:
        if not servers.left:
            return
        allocation = job.running if job.running and servers.holds(job.running) else None
        if allocation is None:
            allocation = servers.fastest(job, min(job.reqs))
            growable += [job] if allocation is not None else []
        if allocation is not None:
            servers.take(allocation)
            placements[job.id] = allocation
    while growable and servers.left:
        growable = [job for job in growable if grow(job, placements, servers)]


def _unplaceable_reasons(
    everyone: Sequence[App], apps: Sequence[App], snapshot: Snapshot
) -> dict[JobId, Reason]:
    """Give reasons for jobs that contend in no app, since no idle cluster could hold them."""
    pools = pools_of(snapshot.nodes)
    contenders = {job.id for app in apps for job in app.contending}
    jobs = [job for app in everyone for job in app.contending]
    return {job.id: reasons.nowhere(job, pools) for job in jobs if job.id not in contenders}


def _waiting_reasons(
    apps: Sequence[App],
    bidders: int,
    rho: Mapping[AppKey, float],
    placements: Mapping[JobId, Allocation],
) -> dict[JobId, Reason]:
    waiting: dict[JobId, Reason] = {}
    for place, app in enumerate(apps, 1):
        text = f"rho of its app is {rho[app.key]:.3g}, number {place} of {len(apps)}; "
        if place <= bidders:
            text += f"it bid, and the {bidders} bidders' rho improves more without it"
        else:
            text += f"the first {bidders} bid, and nothing that fits was left for it"
        for job in app.contending:
            if job.id not in placements:
                waiting[job.id] = Reason(ReasonCode.LOST_TO_OTHERS, text)
    return waiting


def _numbers(apps: Sequence[App], rho: Mapping[AppKey, float]) -> dict[JobId, JobNumbers]:
    """Report the rho of its app as each job's priority."""
    return {
        job.id: JobNumbers(rho[app.key], None, None, None, None)
        for app in apps
        for job in app.contending
    }


plan = Themis()
