"""Policies by name: those of hops, and entry points of installed packages (docs/api.md).

A policy's module is imported on first use.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from hopsd.errors import InputError
from hopsd.policies.by_tier import ByTier
from hopsd.policies.protocol import Policy
from hopsd.policies.rack_fragments import RackFragments
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
    "themis": "hopsd.policies.themis.policy:plan",
    "allox": "hopsd.policies.allox.policy:plan",
    "hare": "hopsd.policies.hare.policy:plan",
    "slurm": "hopsd.policies.slurm:plan",
    "slurm-multifactor": "hopsd.policies.slurm:plan_multifactor",
}
"""The policies of hops that a site can choose."""

GROUP = "hops.policies"
"""Entry point group of other packages' policies, which a site can choose, too."""

RIVALS = "hops.rivals"
"""Entry point group of other papers' schedulers, only for comparisons in the simulator."""

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)
"""What a name may be, since it becomes part of file names."""


def names() -> list[str]:
    """Names of all policies: those of hops, of installed packages, and rivals."""
    return [*POLICIES, *sorted(installed_policies()), *sorted(rivals())]


def installed_policies() -> dict[str, EntryPoint]:
    """Policies of other packages; they cannot replace a policy of hops or a rival."""
    reserved_names = POLICIES.keys() | rivals().keys()
    return {
        name: point
        for name, point in packaged_policies(GROUP).items()
        if name not in reserved_names
    }


def rivals() -> dict[str, EntryPoint]:
    """Policies that only simulations use."""
    return {name: p for name, p in packaged_policies(RIVALS).items() if name not in POLICIES}


@cache
def packaged_policies(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group, cached since a scan takes about 5 ms."""
    return {point.name: point for point in entry_points(group=group) if _NAME.fullmatch(point.name)}


def get(name: str) -> Policy:
    """Load the policy called ``name``.

    Raises:
        InputError: if there is none, or its entry point cannot be loaded or is not callable.
    """
    if name in POLICIES:
        module, function = POLICIES[name].split(":")
        return complete(cast(Policy, getattr(import_module(module), function)))
    point = (installed_policies() | rivals()).get(name)
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
            f"policy {name!r}: {point.value} is not callable; expected policy(snapshot, settings)"
            " -> Plan"
        )
    return complete(cast(Policy, policy))


def complete(policy: Policy) -> Policy:
    """Wrap ``policy`` so that it plans by partition tier, its plans obey the rules of accounts and
    scripts, Slurm may carry out its starts in any order, and its plans include rack fragments.
    """
    return RackFragments(Staggered(WithinRules(ByTier(policy))))
