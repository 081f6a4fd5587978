"""Policies by name: ours, and those that installed packages offer as entry points of the group
``hops.policies`` (docs/api.md). A policy's module is imported on first use.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from hopsd.errors import InputError
from hopsd.policies.by_tier import ByTier
from hopsd.policies.protocol import Policy
from hopsd.policies.staggered import Staggered
from hopsd.policies.within_rules import WithinRules

POLICIES = {
    "hops": "hopsd.policies.hops.policy:plan",
    "hops+": "hopsd.policies.hops.plus:plan",
    "hops-ftf": "hopsd.policies.hops.variants:ftf",
    "hops-las": "hopsd.policies.hops.variants:las",
    "hops-sjf": "hopsd.policies.hops.variants:sjf",
    "hops-srtf": "hopsd.policies.hops.variants:srtf",
    "hops-fifo": "hopsd.policies.hops.variants:fifo",
    "sia": "hopsd.policies.sia:plan",
    "sia-hops": "hopsd.policies.sia:plan_own_sizes",
    "gavel": "hopsd.policies.gavel.policy:plan",
    "gavel-ftf": "hopsd.policies.gavel.policy:plan_ftf",
    "gavel-makespan": "hopsd.policies.gavel.policy:plan_makespan",
    "gavel-max-sum": "hopsd.policies.gavel.policy:plan_max_sum",
    "gavel-queue": "hopsd.policies.gavel.policy:plan_queue",
    "fifo": "hopsd.policies.classic:fifo",
    "sjf": "hopsd.policies.classic:sjf",
    "srtf": "hopsd.policies.classic:srtf",
    "las": "hopsd.policies.classic:las",
    "themis": "hopsd.policies.themis.policy:plan",
    "themis-share": "hopsd.policies.themis.policy:plan_share",
    "hare": "hopsd.policies.hare.policy:plan",
    "hare-eft": "hopsd.policies.hare.policy:plan_eft",
    "hare-dispatch": "hopsd.policies.hare.policy:plan_dispatch",
    "gandiva": "hopsd.policies.themis.rivals:gandiva",
    "tiresias": "hopsd.policies.themis.rivals:tiresias",
    "optimus": "hopsd.policies.themis.rivals:optimus",
    "slaq": "hopsd.policies.themis.rivals:slaq",
    "srtf-apps": "hopsd.policies.themis.rivals:srtf",
    "srsf": "hopsd.policies.themis.rivals:srsf",
    "slurm": "hopsd.policies.slurm:plan",
    "slurm-multifactor": "hopsd.policies.slurm:plan_multifactor",
    "allox": "hopsd.policies.allox.policy:plan",
    "allox+": "hopsd.policies.allox.rivals:allox_plus",
    "sjf+": "hopsd.policies.allox.rivals:shortest_first",
    "jsq+": "hopsd.policies.allox.rivals:join_shortest_queue",
    "es": "hopsd.policies.allox.rivals:equal_share",
    "drff": "hopsd.policies.allox.rivals:drff",
    "drfs": "hopsd.policies.allox.rivals:drfs",
    "drfa": "hopsd.policies.allox.rivals:converted_share",
    "srpt": "hopsd.policies.allox.srpt:plan",
}


GROUP = "hops.policies"

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)
"""Of an installed policy: names become names of files."""


def names() -> list[str]:
    """Every policy's name: ours first."""
    return [*POLICIES, *sorted(installed())]


def installed() -> dict[str, EntryPoint]:
    """Policies of other packages. None of them replaces one of ours."""
    found = entry_points(group=GROUP)
    return {e.name: e for e in found if e.name not in POLICIES and _NAME.fullmatch(e.name)}


def get(name: str) -> Policy:
    """The policy called ``name``.

    Raises:
        InputError: there is none, or its package does not have what it promises.
    """
    if name in POLICIES:
        module, function = POLICIES[name].split(":")
        return complete(cast(Policy, getattr(import_module(module), function)))
    point = installed().get(name)
    if point is None:
        raise InputError(f"no policy {name!r}; there are {', '.join(sorted(names()))}")
    try:
        policy = point.load()
    except Exception as error:
        raise InputError(
            f"policy {name!r} cannot be loaded from {point.value}: {type(error).__name__}: {error}"
        ) from error
    if not callable(policy):
        raise InputError(
            f"policy {name!r}: {point.value} is no function (snapshot, settings) -> plan"
        )
    return complete(cast(Policy, policy))


def complete(policy: Policy) -> Policy:
    """``policy`` by partitions' tiers, its plans kept within accounts' and scripts' rules, its
    starts in an order that Slurm may change.
    """
    return Staggered(WithinRules(ByTier(policy)))
