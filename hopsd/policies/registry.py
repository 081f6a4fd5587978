"""Policies by name. A policy's module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from hopsd.errors import InputError
from hopsd.policies.protocol import Policy

POLICIES = {
    "hops": "hopsd.policies.hops:plan",
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
