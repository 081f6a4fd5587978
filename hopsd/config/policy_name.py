"""The name of a policy, of hops or of an installed package."""

from __future__ import annotations

from typing import Self

from hopsd.policies.registry import POLICIES, installed_policies


class PolicyName(str):
    """The name of an existing policy.

    Raises:
        ValueError: there is no such policy.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if text not in POLICIES and text not in installed_policies():
            raise ValueError(text)
        return super().__new__(cls, text)
