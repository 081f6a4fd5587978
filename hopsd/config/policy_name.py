"""The name of a policy that comes with hops or with an installed package."""

from __future__ import annotations

from typing import Self

from hopsd.policies.registry import POLICIES, installed_policies


class PolicyName(str):
    """The name of an existing policy.

    Raises:
        ValueError: if there is no such policy.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if text not in POLICIES and text not in installed_policies():
            raise ValueError(text)
        return super().__new__(cls, text)
