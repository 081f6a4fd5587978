"""Themis (Mahajan et al., NSDI 2020): finish-time fairness by auctions of leased GPUs.

A plan is one round of pseudocode 1. The GPUs on offer are those without a lease. Of the apps that
could use one, the share 1 - f with the largest rho bids; the winners of the auction keep what
their hidden payments leave them, and what is left goes to the apps that did not bid, in random
order; what these cannot use, to those that bid and won nothing. Who paid does not get it back: a
payment that nobody can use stays idle until the next plan. Within an app its scheduler divides
what the app won.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as bind
from itertools import pairwise
from math import ceil

import numpy as np

from hopsd.core.configurations import Configurations, generate
from hopsd.core.history import AppKey
from hopsd.core.pools import Pools, pools_of
from hopsd.core.shapes import Floats, Ints
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import JobNumbers, Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies import reasons
from hopsd.policies.agents import Agent, Agents, Market, Offer, honest
from hopsd.policies.apps import App, apps_of, divide, grow
from hopsd.policies.auction import Outcome, auction, partial, program_of
from hopsd.policies.finish_time import share_seconds
from hopsd.policies.leases import leased
from hopsd.policies.placing import Sites

UNSERVED = 10.0
"""An app without any GPU never ends, so its rho has no bound; the auction's program needs one. It
counts this many times the app's worst bid, so that serving an app outweighs most improvements of
others."""


@dataclass(frozen=True, slots=True)
class Themis:
    """``agents``: who bids for an app."""

    agents: Agents = honest

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        stay = leased(snapshot, settings.lease_seconds)
        apps = apps_of(snapshot, stay)
        sites = Sites(snapshot)
        placements = {job.id: job.running for job in snapshot.jobs if job.id in stay}
        for allocation in placements.values():
            sites.take(allocation)
        market = Market.of(snapshot, apps)
        types = {node.name: node.gpu_type for node in snapshot.nodes}
        able = [app for app in map(bind(_able, sites), apps) if app.contending]
        agents = {app.key: self.agents(app, market, offer_of(app.kept, types)) for app in able}
        rho = {app.key: current_rho(app, agents[app.key], types) for app in able}
        able.sort(key=lambda app: (-rho[app.key], app.order))
        bidders = able[: bidding(len(able), settings.filter_share)] if sites.left else []
        rng = random.Random(settings.seed + snapshot.now)  # noqa: S311
        worth = bound = 0.0
        if bidders:
            bids = Bids.collect(bidders, [agents[app.key] for app in bidders], snapshot, sites)
            outcome = bids.settle(settings)
            worth, bound = outcome.worth, outcome.bound
            for app, won in zip(bidders, bids.won(outcome, rng), strict=True):
                _give(app, won, market, sites, placements)
        for group in (able[len(bidders) :], bidders):
            jobs = [job for app in group for job in app.contending if job.id not in placements]
            rng.shuffle(jobs)
            leftovers(jobs, sites, placements)
        waiting = _reasons(apps, able, bidders, rho, placements, pools_of(snapshot.nodes))
        return Plan(
            placements=placements,
            objective=worth,
            upper_bound=bound,
            gap=(bound - worth) / bound if bound > 0 else 0.0,
            window=tuple(job.id for app in able for job in app.contending),
            fragments=sites.left if waiting else 0,
            waiting=waiting,
            jobs={
                job.id: JobNumbers(rho[app.key], None, None, None, None)
                for app in able
                for job in app.contending
            },
        )


def bidding(apps: int, filter_share: float) -> int:
    """How many of ``apps`` bid: the share 1 - f, one at least."""
    return min(apps, max(1, ceil((1.0 - filter_share) * apps - 1e-9)))


def offer_of(allocation: Allocation, types: dict[NodeName, GpuType]) -> Offer:
    return Offer(()).together(
        Offer(tuple((types[node], gpus) for node, gpus in allocation if node in types))
    )


def current_rho(app: App, agent: Agent, types: dict[NodeName, GpuType]) -> float:
    """rho with what the app holds now.

    For one that holds nothing it has no bound, which would not tell such apps apart: theirs is
    that of one GPU from now on, which grows as long as they wait.
    """
    now = offer_of(app.present, types)
    if now.gpus:
        return replace(agent, kept=now).rho(Offer(()))
    usable = {t for job in app.contending for t in job.throughput}
    return min(agent.rho(Offer(((t, 1),))) for t in sorted(usable & set(types.values())))


def _able(sites: Sites, app: App) -> App:
    """The app without contending jobs that no idle cluster could hold."""
    runs = tuple(
        job
        for job in app.contending
        if any(sites.runs_on(job, t, min(job.reqs)) for t in sites.types)
    )
    return replace(app, contending=runs)


@dataclass(frozen=True, slots=True)
class Bids:
    """Every bidder's table of bids: a column is an app with a shape, ``rho`` (columns,) what it
    would have then, ``without`` (apps,) what it has if it wins nothing.
    """

    apps: Sequence[App]
    columns: Configurations
    capacity: Ints
    rho: Floats
    without: Floats
    names: Sequence[NodeName]

    @staticmethod
    def collect(
        apps: Sequence[App], agents: Sequence[Agent], snapshot: Snapshot, sites: Sites
    ) -> Bids:
        """Ask all agents for their bids on what is idle."""
        nodes = snapshot.nodes
        idle = np.array([sites.idle[node.name] for node in nodes], dtype=np.int64)
        columns = generate(
            [_bidder(app, sites) for app in apps],
            nodes,
            idle,
            [0.0] * len(apps),
            sigma=1.0,
            keep_present=snapshot.round.first,
        )
        offers = [
            offer_of(
                Allocation.of({nodes[t].name: g for t, g in columns.shapes.parts(shape)}),
                {node.name: node.gpu_type for node in nodes},
            )
            for shape in range(len(columns.shapes))
        ]
        rho = np.empty(len(columns))
        without = np.empty(len(apps))
        for i, (first, last) in enumerate(pairwise(columns.start.tolist())):
            rho[first:last], without[i] = _table(
                apps[i], agents[i], [offers[s] for s in columns.shape[first:last]],
                int(columns.present[i]) - first,
            )  # fmt: skip
        return Bids(apps, columns, idle, rho, without, [node.name for node in nodes])

    def settle(self, settings: PlanSettings) -> Outcome:
        worth = np.log(np.repeat(self.without, np.diff(self.columns.start)) / self.rho)
        program = program_of(self.columns, self.capacity, worth)
        kept = np.flatnonzero(worth > 1e-9)
        outcome = auction(program, settings.gap, settings.time_limit_seconds, settings.seed)
        choice = outcome.choice.copy()
        choice[choice >= 0] = kept[choice[choice >= 0]]
        return replace(outcome, choice=choice)

    def won(self, outcome: Outcome, rng: random.Random) -> list[Allocation]:
        """What every app has left after its payment, empty for those that win nothing."""
        found = []
        for app, column, kept in zip(self.apps, outcome.choice, outcome.kept, strict=True):
            if column < 0:
                found.append(Allocation())
                continue
            parts = self.columns.shapes.parts(int(self.columns.shape[column]))
            whole = Allocation.of({self.names[server]: gpus for server, gpus in parts})
            counts = app.contending[0].reqs
            if len(app.contending) > 1:
                counts = tuple(range(min(min(j.reqs) for j in app.contending), whole.gpus + 1))
            found.append(partial(whole, float(kept), counts, rng.random()))
        return found


def _table(app: App, agent: Agent, offers: Sequence[Offer], present: int) -> tuple[Floats, float]:
    """rho of every offer, and without any. Equal offers are asked about once.

    Whoever runs pays for a restart, but for staying at offer ``present``.
    """
    restart = max(job.restart_seconds if job.running else 0.0 for job in app.contending)
    known = {offer: agent.rho(offer, restart) for offer in dict.fromkeys(offers)}
    rho = np.array([known[offer] for offer in offers])
    if restart and present >= 0:
        rho[present] = agent.rho(offers[present])
    finite = rho[np.isfinite(rho)]
    without = agent.rho(Offer(()))
    if not np.isfinite(without):
        without = UNSERVED * float(finite.max(initial=1.0))
    return np.where(np.isfinite(rho), rho, without), without


def _bidder(app: App, sites: Sites) -> Job:
    """The job by which the configurations of an app's bids are enumerated.

    An app of several jobs bids for powers of two of GPUs, and for as many as it can use.
    """
    first = app.contending[0]
    if len(app.contending) == 1:
        return first
    most = min(sites.left, sum(max(job.reqs) for job in app.contending))
    counts = {2**i for i in range(most.bit_length())} | {most}
    smallest = min(min(job.reqs) for job in app.contending)
    usable = {t for job in app.contending for t in job.throughput}
    return replace(
        first,
        reqs=tuple(sorted(count for count in counts if count >= min(smallest, most))),
        throughput={t: ThroughputTable({1: 1.0}, {2: 1.0}) for t in usable},
        server_factor={},
        running=_runs_now(app),
    )


def _runs_now(app: App) -> Allocation:
    held: dict[NodeName, int] = {}
    for job in app.contending:
        for node, gpus in job.running:
            held[node] = held.get(node, 0) + gpus
    return Allocation.of(held)


def _give(
    app: App,
    won: Allocation,
    market: Market,
    sites: Sites,
    placements: dict[JobId, Allocation],
) -> None:
    """What an app won, to its jobs."""
    if not won:
        return
    if len(app.contending) == 1:
        given = {app.contending[0].id: won}
    else:
        given = divide([(job, market.left[job.id]) for job in app.contending], won, sites)
    for job, allocation in given.items():
        sites.take(allocation)
        placements[job] = allocation


def leftovers(jobs: Sequence[Job], sites: Sites, placements: dict[JobId, Allocation]) -> None:
    """GPUs that nobody won, to ``jobs`` in their order.

    Whoever can stay where it runs does, others start on their smallest count. Then all but the
    former grow as far as there is room.
    """
    started = []
    for job in jobs:
        if not sites.left:
            return
        found = job.running if job.running and sites.holds(job.running) else None
        if found is None:
            found = sites.fastest(job, min(job.reqs))
            started += [job] if found is not None else []
        if found is not None:
            sites.take(found)
            placements[job.id] = found
    while started and sites.left:
        started = [job for job in started if grow(job, placements, sites)]


def _reasons(
    apps: Sequence[App],
    able: Sequence[App],
    bidders: Sequence[App],
    rho: Mapping[AppKey, float],
    placements: Mapping[JobId, Allocation],
    pools: Pools,
) -> dict[JobId, Reason]:
    runs = {job.id for app in able for job in app.contending}
    waiting = {
        job.id: reasons.nowhere(job, pools)
        for app in apps
        for job in app.contending
        if job.id not in runs
    }
    for place, app in enumerate(able, 1):
        text = f"rho of its app is {rho[app.key]:.3g}, number {place} of {len(able)}; "
        if place <= len(bidders):
            text += f"it bid, and the {len(bidders)} bidders' rho improves more without it"
        else:
            text += f"the first {len(bidders)} bid, and nothing that fits was left for it"
        for job in app.contending:
            if job.id not in placements:
                waiting[job.id] = Reason(ReasonCode.LOST_TO_OTHERS, text)
    return waiting


plan = Themis()
plan_share = Themis(bind(honest, independent=share_seconds))
