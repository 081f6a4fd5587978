"""Policies by name. A policy's module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from hopsd.errors import InputError
from hopsd.policies.protocol import Policy

POLICIES = {
    "hops": "hopsd.policies.hops:plan",
    "hops-ftf": "hopsd.policies.variants:ftf",
    "hops-las": "hopsd.policies.variants:las",
    "hops-sjf": "hopsd.policies.variants:sjf",
    "hops-srtf": "hopsd.policies.variants:srtf",
    "hops-fifo": "hopsd.policies.variants:fifo",
    "sia": "hopsd.policies.sia:plan",
    "sia-hops": "hopsd.policies.sia:plan_own_sizes",
    "gavel": "hopsd.policies.gavel:plan",
    "gavel-ftf": "hopsd.policies.gavel:plan_ftf",
    "gavel-makespan": "hopsd.policies.gavel:plan_makespan",
    "gavel-max-sum": "hopsd.policies.gavel:plan_max_sum",
    "gavel-queue": "hopsd.policies.gavel:plan_queue",
    "fifo": "hopsd.policies.classic:fifo",
    "sjf": "hopsd.policies.classic:sjf",
    "srtf": "hopsd.policies.classic:srtf",
    "las": "hopsd.policies.classic:las",
    "themis": "hopsd.policies.themis:plan",
    "themis-share": "hopsd.policies.themis:plan_share",
    "hare": "hopsd.policies.hare.policy:plan",
    "hare-eft": "hopsd.policies.hare.policy:plan_eft",
    "hare-dispatch": "hopsd.policies.hare.policy:plan_dispatch",
    "gandiva": "hopsd.policies.app_rivals:gandiva",
    "tiresias": "hopsd.policies.app_rivals:tiresias",
    "optimus": "hopsd.policies.app_rivals:optimus",
    "slaq": "hopsd.policies.app_rivals:slaq",
    "srtf-apps": "hopsd.policies.app_rivals:srtf",
    "srsf": "hopsd.policies.app_rivals:srsf",
    "slurm": "hopsd.policies.slurm:plan",
    "allox": "hopsd.policies.allox:plan",
    "allox+": "hopsd.policies.interchangeable:allox_plus",
    "sjf+": "hopsd.policies.interchangeable:shortest_first",
    "jsq+": "hopsd.policies.interchangeable:join_shortest_queue",
    "es": "hopsd.policies.interchangeable:equal_share",
    "drff": "hopsd.policies.interchangeable:drff",
    "drfs": "hopsd.policies.interchangeable:drfs",
    "drfa": "hopsd.policies.interchangeable:converted_share",
    "srpt": "hopsd.policies.srpt:plan",
}


def get(name: str) -> Policy:
    """The policy called ``name``.

    Raises:
        InputError: there is none.
    """
    if name not in POLICIES:
        raise InputError(f"no policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    module, function = POLICIES[name].split(":")
    return cast(Policy, getattr(import_module(module), function))
