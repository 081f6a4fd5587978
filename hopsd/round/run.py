"""One round: read, estimate, profile, plan (the policy), diff, record, apply, record.

The daemon and the simulator run this same code; only their port, store and clock differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from hopsd.core.queue.backoff import Backoff, avoided_nodes, backing_off, with_avoided
from hopsd.errors import PlanLateError
from hopsd.model.ids import JobId, NodeName
from hopsd.model.plan import RoundInfo
from hopsd.policies.protocol import Policy
from hopsd.round.carry_out import carry_out
from hopsd.round.decide import planning_inputs
from hopsd.round.observe import observe
from hopsd.round.recover import read_cluster
from hopsd.round.result import RoundResult
from hopsd.round.set_aside import decide_excluding_defective
from hopsd.round.settings import RoundSettings
from hopsd.round.under_way import carry_on, reasons
from hopsd.round.unreliable import shunned_nodes, with_shunned
from hopsd.round.window import RoundWindow, current_window
from hopsd.slurm.port import SHADOW, Port
from hopsd.store.port import Store


def run_round(
    port: Port,
    store: Store,
    policy: Policy,
    settings: RoundSettings,
    window: RoundWindow | None,
    backoffs: Mapping[JobId, Backoff] = MappingProxyType({}),
    unreliable: Mapping[NodeName, str] = MappingProxyType({}),
) -> RoundResult:
    """Plan and apply once.

    A new round begins if ``window`` is None or has ended, or if it ends early
    (:meth:`RoundWindow.ends_early`) under a policy that allows it.

    Jobs that are backing off are left out of the plan, and so is any job or node that makes
    planning raise. ``unreliable`` maps nodes to the evidence against them; no job is started there
    unless its user names the node.

    Raises:
        SlurmUnavailableError, StoreUnavailableError: a plan already begun may be half applied;
            :func:`recover` finishes or undoes it.
        PlanLateError: the policy was too slow; nothing was changed.
    """
    results = carry_on(port, store)
    reading, late_outcomes = read_cluster(port, store)
    observation = observe(port, store, settings.requirements_max, reading)
    observation = observation.carrying_on(port.under_way, reasons(port.under_way))
    now = observation.reading.now
    observation = observation.exclude(backing_off(backoffs, now))
    observation = observation.avoiding(avoided_nodes(backoffs, now))
    nodes_to_avoid = shunned_nodes(observation.reading.jobs, unreliable)
    observation = observation.avoiding(nodes_to_avoid)
    window, first = current_window(window, now, settings.seconds)
    inputs = planning_inputs(store, policy, now, settings)
    info = RoundInfo(first=first, seconds=window.end - now)
    decision = decide_excluding_defective(observation, info, inputs, settings)
    if _may_end_early(port, policy):
        if not first and window.ends_early(decision.plan, decision.snapshot, settings.seconds):
            window = window.rest(now)
            with suppress(PlanLateError):  # the round goes on, and later ticks do not retry
                info = RoundInfo(first=True, seconds=settings.seconds)
                decision = decide_excluding_defective(observation, info, inputs, settings)
                first = True
        window = window.after(decision.plan, decision.snapshot)
    waiting = with_avoided(decision.plan.waiting, backoffs, now)
    waiting = with_shunned(waiting, nodes_to_avoid, unreliable)
    decision = replace(decision, plan=replace(decision.plan, waiting=waiting))
    outcomes, profile_runs = carry_out(port, store, decision, window, first=first)
    return RoundResult(
        window,
        first,
        decision.observation,
        decision.build,
        decision.plan,
        (*results, *late_outcomes, *outcomes),
        profile_runs,
        decision.defects,
    )


def _may_end_early(port: Port, policy: Policy) -> bool:
    """Whether rounds may end early. A shadow's never do: the GPUs that its plans give stay idle."""
    return bool(getattr(policy, "ends_early", False)) and port.name != SHADOW
