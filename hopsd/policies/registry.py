"""Policies by name. A policy's module is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from hopsd.errors import InputError
from hopsd.policies.by_tier import ByTier
from hopsd.policies.protocol import Policy
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


def get(name: str) -> Policy:
    """The policy called ``name``.

    Raises:
        InputError: there is none.
    """
    if name not in POLICIES:
        raise InputError(f"no policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    module, function = POLICIES[name].split(":")
    return WithinRules(ByTier(cast(Policy, getattr(import_module(module), function))))
