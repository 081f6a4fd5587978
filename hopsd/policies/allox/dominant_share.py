"""Dominant shares of interchangeable resources: how well a user is served now (AlloX, 3.3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run a job: the amount of each resource, and the run time."""

    demand: Mapping[str, float]
    seconds: float


def dominant_share(demand: Mapping[str, float], capacity: Mapping[str, float]) -> float:
    """The largest share of any resource's ``capacity`` that ``demand`` takes.

    Raises:
        ValueError: if ``demand`` includes a resource that the cluster does not have.
    """
    lacking_resources = [
        name for name, amount in demand.items() if amount and not capacity.get(name)
    ]
    if lacking_resources:
        raise ValueError(f"the cluster has no {lacking_resources[0]}; it has {', '.join(capacity)}")
    return max((amount / capacity[name] for name, amount in demand.items() if amount), default=0.0)


def value(
    configurations: Sequence[Configuration], running: Configuration, capacity: Mapping[str, float]
) -> float:
    """What a running job adds to its user's progress (section 3.3.2).

    This is the dominant share of its fastest configuration, scaled down by its present slowdown.
    """
    fastest = min(configurations, key=lambda way: way.seconds)
    share = dominant_share(fastest.demand, capacity)
    return share * fastest.seconds / running.seconds


def eligible_users(users: int, alpha: float) -> int:
    """Number of users with least progress who take part: alpha of all, rounded up, at least one."""
    return max(1, ceil(alpha * users - 1e-9))
