"""The base of policies that change the input or the plans of another policy."""

from __future__ import annotations

from typing import Any

from hopsd.policies.protocol import Policy


class Wrapper:
    """Holds the wrapped policy, and passes on its optional attributes, such as ``only_first``."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        # Avoids recursion if a private name is looked up before __init__ ran, as in unpickling.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._policy, name)
