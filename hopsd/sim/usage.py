"""Users' shares of a virtual cluster, and the fair-share factors that Slurm derives from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from hopsd.model.ids import JobId, UserName
from hopsd.model.site import NO_RULES, Association, SiteRules
from hopsd.sim.metrics import AllocationChange

HALF_LIFE_SECONDS = 7 * 86400.0
"""Half-life of usage, as the default of PriorityDecayHalfLife in slurm.conf(5)."""


class DecayedUsage:
    """GPU-seconds of each user, halved every ``HALF_LIFE_SECONDS``.

    A user with the part U of all use and the share S has the factor 2^(-U/S), as in Slurm's classic
    fair share (priority_multifactor(5)).
    """

    def __init__(self, shares: Mapping[UserName, float]) -> None:
        total = sum(shares.values()) or 1.0
        self._shares = {user: share / total for user, share in shares.items()}
        self._seconds: dict[UserName, float] = defaultdict(float)
        self._holdings: dict[JobId, tuple[UserName, int]] = {}
        self._at = 0.0

    def holds(self, now: float, job: JobId, user: UserName, gpus: int) -> None:
        """Record how many GPUs the job holds from now on."""
        self._count(now)
        self._holdings[job] = user, gpus
        if not gpus:
            del self._holdings[job]

    def factors(self, now: float) -> dict[UserName, float]:
        """Return each user's factor: 1 for no use, 1/2 for using exactly the share."""
        self._count(now)
        total = sum(self._seconds.values())
        return {
            user: 2.0 ** (-self._seconds[user] / total / share) if total else 1.0
            for user, share in self._shares.items()
        }

    def rules(self, now: float) -> SiteRules:
        """Return the factors in the form of a Slurm reading."""
        if not self._shares:
            return NO_RULES
        rules_by_user = {
            ("", user, ""): Association("", user, share=factor)
            for user, factor in self.factors(now).items()
        }
        return SiteRules(associations=rules_by_user)

    def _count(self, now: float) -> None:
        seconds, self._at = now - self._at, now
        if seconds <= 0:
            return
        for user in self._seconds:
            self._seconds[user] *= 0.5 ** (seconds / HALF_LIFE_SECONDS)
        for user, gpus in self._holdings.values():
            self._seconds[user] += gpus * seconds


def gpu_seconds(
    changes: Sequence[AllocationChange], users: Mapping[JobId, UserName], start: float, end: float
) -> dict[UserName, float]:
    """Compute the GPU-seconds that each user held between two times."""
    holding: dict[JobId, tuple[float, int]] = {}
    total_by_user: dict[UserName, float] = dict.fromkeys(users.values(), 0.0)

    def close(job: JobId, until: float) -> None:
        since, gpus = holding.pop(job, (end, 0))
        total_by_user[users[job]] += gpus * max(0.0, min(until, end) - max(since, start))

    for change in changes:
        close(change.job, change.time)
        if change.placement:
            holding[change.job] = change.time, change.placement.gpus
    for job in list(holding):
        close(job, end)
    return total_by_user


def unmet(
    usage: Mapping[UserName, float], shares: Mapping[UserName, float]
) -> dict[UserName, float]:
    """Compute how far each user's part of all use is from its share, relative to that share."""
    total, share_total = sum(usage.values()), sum(shares.values())
    return {
        user: (usage.get(user, 0.0) / total) / (share / share_total) - 1.0 if total else -1.0
        for user, share in shares.items()
    }
