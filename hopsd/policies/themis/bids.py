"""Tables of bids (Themis, table 2 and figure 6), and what each bidder wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.generate import generate
from hopsd.core.queue.history import AppKey
from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats, Ints
from hopsd.model.ids import NodeName, RackName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, Snapshot
from hopsd.policies.placing import Servers
from hopsd.policies.themis.agents import Agent, Offer, Part
from hopsd.policies.themis.apps import App, union
from hopsd.policies.themis.auction import ROUNDING, Outcome, after_payment, auction, program_of

UNSERVED_FACTOR = 10.0
"""The rho of an app without GPUs, which would never end, as a multiple of its best bid, since the
auction's program needs a finite value. Thus serving an app outweighs most improvements of others,
and as much again for every lease that it has waited. An app that overstates the rho of its worse
bids only lowers what it bids for them."""


def offer_of(allocation: Allocation, nodes: Mapping[NodeName, Node]) -> Offer:
    """Convert an allocation to an offer."""
    allocations = [(nodes[name], gpus) for name, gpus in allocation if name in nodes]
    parts = tuple(
        Part(node.gpu_type, gpus, RackName(node.leaf) or None) for node, gpus in allocations
    )
    return Offer(()).union(Offer(parts))


@dataclass(frozen=True, slots=True)
class Bids:
    """All tables of bids; a column is a shape for an app.

    ``rho`` (columns,): the app's rho with that shape. ``rho_without`` (apps,): its rho if it wins
    nothing.
    """

    apps: Sequence[App]
    columns: Configurations
    capacity: Ints
    rho: Floats
    rho_without: Floats
    names: Sequence[NodeName]

    @staticmethod
    def collect(
        apps: Sequence[App],
        agents: Sequence[Agent],
        snapshot: Snapshot,
        servers: Servers,
        wait_by_app: Mapping[AppKey, float],
    ) -> Bids:
        """Ask all agents for bids on idle GPUs. ``wait_by_app``: leases since an app held any."""
        nodes = snapshot.nodes
        columns = generate(
            [_bidder(app, servers) for app in apps],
            servers.available(),
            [0.0] * len(apps),
            sigma=1.0,
            keep_present=snapshot.round.first,
        ).write_out()
        by_name = {node.name: node for node in nodes}
        offers = [
            offer_of(
                Allocation.of({nodes[t].name: g for t, g in columns.shapes.parts(shape)}), by_name
            )
            for shape in range(len(columns.shapes))
        ]
        rho = np.empty(len(columns))
        baseline = np.empty(len(apps))
        for i, (first, last) in enumerate(pairwise(columns.start.tolist())):
            rho[first:last], baseline[i] = _table(
                apps[i], agents[i], [offers[s] for s in columns.shape[first:last]],
                int(columns.present[i]) - first, wait_by_app[apps[i].key],
            )  # fmt: skip
        return Bids(apps, columns, columns.capacity, rho, baseline, [node.name for node in nodes])

    def settle(self, settings: PlanSettings) -> Outcome:
        """Hold the auction."""
        worth = np.log(np.repeat(self.rho_without, np.diff(self.columns.start)) / self.rho)
        program = program_of(self.columns, self.capacity, worth)
        worthwhile = np.flatnonzero(worth > ROUNDING)
        outcome = auction(program, settings.gap, settings.time_limit_seconds, settings.seed)
        choice = outcome.choice.copy()
        choice[choice >= 0] = worthwhile[choice[choice >= 0]]
        return replace(outcome, choice=choice)

    def winnings(self, outcome: Outcome, rng: Random) -> list[Allocation]:
        """What every app keeps after its payment, empty for those that win nothing."""
        winners = []
        for app, column, factor in zip(self.apps, outcome.choice, outcome.kept_share, strict=True):
            if column < 0:
                winners.append(Allocation())
                continue
            parts = self.columns.shapes.parts(int(self.columns.shape[column]))
            allocation = Allocation.of({self.names[server]: gpus for server, gpus in parts})
            counts = app.contending[0].reqs
            if len(app.contending) > 1:
                counts = tuple(range(min(min(j.reqs) for j in app.contending), allocation.gpus + 1))
            winners.append(after_payment(allocation, float(factor), counts, rng.random()))
        return winners


def _table(
    app: App, agent: Agent, offers: Sequence[Offer], present: int, wait_seconds: float
) -> tuple[Floats, float]:
    """Compute rho with every offer, and without any; equal offers are evaluated once.

    Running apps pay for a restart except with the offer ``present``, their current GPUs.
    """
    restart = max(job.restart_seconds if job.running else 0.0 for job in app.contending)
    rho_of_offer = {offer: agent.rho(offer, restart) for offer in dict.fromkeys(offers)}
    rho = np.array([rho_of_offer[offer] for offer in offers])
    if restart and present >= 0:
        rho[present] = agent.rho(offers[present])
    finite = rho[np.isfinite(rho)]
    rho_without = agent.rho(Offer(()))
    if not np.isfinite(rho_without):
        rho_without = UNSERVED_FACTOR * (1.0 + wait_seconds) * float(finite.min(initial=np.inf))
    if not np.isfinite(rho_without):
        return np.ones(len(offers)), 1.0
    return np.where(np.isfinite(rho), rho, rho_without), rho_without


def _bidder(app: App, servers: Servers) -> Job:
    """A job whose configurations are the bids of the app.

    An app of several jobs bids for powers of two of GPUs, and for as many as it can use.
    """
    first = app.contending[0]
    if len(app.contending) == 1:
        return first
    gpus_max = min(servers.left, sum(max(job.reqs) for job in app.contending))
    counts = {2**i for i in range(gpus_max.bit_length())} | {gpus_max}
    smallest = min(min(job.reqs) for job in app.contending)
    usable = {t for job in app.contending for t in job.throughput}
    return replace(
        first,
        reqs=tuple(sorted(count for count in counts if count >= min(smallest, gpus_max))),
        throughput={t: ThroughputTable({1: 1.0}, {2: 1.0}) for t in usable},
        server_factor={},
        server_factor_at={},
        running=union(job.running for job in app.contending),
    )
