"""The base of policies that change what another policy is asked or answers."""

from __future__ import annotations

from typing import Any

from hopsd.policies.protocol import Policy


class Wrapper:
    """Holds the wrapped policy, and passes on its optional attributes, such as ``only_first``."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        # A private name is asked for before __init__ has run, as when unpickled: no recursion.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._policy, name)
