"""The site's bounds that apply to a job, one for each resource that is counted.

A bound of the partition's QOS overrides one of the job's QOS (unless the latter has the flag
OverPartQOS), and either overrides the same kind of bound of the job's associations, at every level
(Slurm's resource limits page, and acct_policy.c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeVar

from hopsd.model.ids import UserName
from hopsd.model.site import NO_RULES, Association, Bounds, Kind, Qos, SiteRules

R = TypeVar("R")

_DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job counts: its user, account, QOS and partition."""

    user: UserName
    account: str
    qos: str
    partition: str


@dataclass(frozen=True, slots=True)
class Counted:
    """A group counted together, such as a user's jobs in a QOS; ``name`` is shown to users."""

    name: str


@dataclass(frozen=True, slots=True)
class Bound:
    """``most`` of ``kind`` for all that is ``counted`` together; ``used``: minutes so far."""

    counted: Counted
    kind: str
    most: int
    used: int = 0


def _once_a_place(work: Callable[[SiteRules, Place], R]) -> Callable[[SiteRules, Place], R]:
    """``work`` done once for each place of the newest rules: 20,000 jobs are in some 1,000 places.

    What it returns is shared.
    """
    newest: tuple[SiteRules, dict[Place, R]] = NO_RULES, {}

    @wraps(work)
    def of(rules: SiteRules, place: Place) -> R:
        nonlocal newest
        known = newest
        if known[0] is not rules:
            known = newest = rules, {}
        try:
            return known[1][place]
        except KeyError:
            found = known[1][place] = work(rules, place)
            return found

    return of


@_once_a_place
def qos_of(rules: SiteRules, place: Place) -> Sequence[Qos]:
    """The QOS of the job and of its partition, the one that takes precedence first."""
    partition = rules.partitions.get(place.partition)
    own = rules.qos.get(place.qos)
    other = rules.qos.get(partition.own_qos) if partition and partition.own_qos else None
    found = [one for one in (other, own) if one is not None]
    return found[::-1] if own is not None and own.over_partition else found


@_once_a_place
def association_chain(rules: SiteRules, place: Place) -> Sequence[Association]:
    """The user's association and its ancestors, those that Slurm knows."""
    known = rules.associations
    whole = UserName("")
    keys = ((place.user, place.partition), (place.user, ""), (whole, ""))
    found = next((known[k] for key in keys if (k := (place.account, *key)) in known), None)
    links: list[Association] = []
    while found is not None and len(links) < _DEPTH_MAX:
        links.append(found)
        found = known.get((found.parent, whole, "")) if found.parent else None
    return links


@_once_a_place
def counted_at(rules: SiteRules, place: Place) -> frozenset[Counted]:
    """Everything that a running job of this place counts towards."""
    counts: frozenset[Counted] = frozenset()
    for qos in qos_of(rules, place):
        counts |= {counted for counted, _ in _levels(qos, place)}
    return counts | {_association(link) for link in association_chain(rules, place)}


@_once_a_place
def bounds(rules: SiteRules, place: Place) -> Sequence[Bound]:
    """The bounds that a job of this place shares with others."""
    if not rules.limited:
        return []
    return list(_bounds(rules, place))


def _bounds(rules: SiteRules, place: Place) -> Iterator[Bound]:
    set_by_qos: dict[str, set[str]] = {"group": set(), "user": set(), "account": set()}
    for qos in qos_of(rules, place):
        for (counted, found), level in zip(_levels(qos, place), set_by_qos, strict=True):
            for kind, most in found.items():
                if kind not in set_by_qos[level]:
                    used = qos.used if level == "group" else {}
                    yield Bound(counted, kind, most, used.get(kind, 0))
            set_by_qos[level] |= found.keys()
    links = association_chain(rules, place)
    for link in links:
        for kind, most in link.group.items():
            if kind not in set_by_qos["group"]:
                yield Bound(_association(link), kind, most, link.used.get(kind, 0))
    running_set = Kind.JOBS in set_by_qos["user"] | set_by_qos["account"]
    if links and links[0].user and links[0].jobs is not None and not running_set:
        yield Bound(_association(links[0]), Kind.JOBS, links[0].jobs)


def _levels(qos: Qos, place: Place) -> list[tuple[Counted, Bounds]]:
    """The bounds of a QOS as a whole, by user and by account."""
    name = f"QOS {qos.name}"
    return [
        (Counted(name), qos.group),
        (Counted(f"{name}, user {place.user}"), qos.per_user),
        (Counted(f"{name}, account {place.account}"), qos.per_account),
    ]


@lru_cache(maxsize=65536)
def _named(account: str, user: str, partition: str) -> Counted:
    words = [f"account {account}", f"user {user}" if user else ""]
    words.append(f"partition {partition}" if partition else "")
    return Counted(", ".join(filter(None, words)))


def _association(link: Association) -> Counted:
    return _named(link.account, link.user, link.partition)


@dataclass(frozen=True, slots=True)
class JobBound:
    """The most that one job may have; None: unlimited. ``by``: where the bound is set."""

    most: int | float
    by: str


@_once_a_place
def job_bound(rules: SiteRules, place: Place) -> Mapping[str, JobBound]:
    """The most of each kind that Slurm allows one job."""
    return _first(rules, place, lambda one: one.each)


@_once_a_place
def node_bound(rules: SiteRules, place: Place) -> Mapping[str, JobBound]:
    """The most of each kind that one job may have on a node, as the mean over its nodes."""
    return _first(rules, place, lambda one: one.per_node)


@_once_a_place
def least_bound(rules: SiteRules, place: Place) -> Sequence[tuple[str, JobBound]]:
    """The least of each kind that Slurm starts a job with."""
    if not rules.limited:
        return []
    found: dict[str, JobBound] = {}
    for qos in qos_of(rules, place):
        found = {k: JobBound(n, f"QOS {qos.name}") for k, n in qos.least.items()} | found
    return list(found.items())


@_once_a_place
def most_nodes(rules: SiteRules, place: Place) -> JobBound | None:
    """The most nodes of one job, by its partition and by what its groups may have in total."""
    found = []
    partition = rules.partitions.get(place.partition)
    if partition is not None and partition.nodes is not None:
        found.append(JobBound(partition.nodes, f"partition {partition.name}"))
    if rules.limited:
        own = job_bound(rules, place).get(Kind.NODES)
        found += [own] if own is not None else []
        shared = (bound for bound in bounds(rules, place) if bound.kind == Kind.NODES)
        found += [JobBound(bound.most, bound.counted.name) for bound in shared]
    return min(found, key=lambda one: one.most, default=None)


def _first(
    rules: SiteRules, place: Place, of: Callable[[Qos | Association], Bounds]
) -> dict[str, JobBound]:
    """For each kind the bound that takes precedence."""
    found: dict[str, JobBound] = {}
    for qos in qos_of(rules, place):
        found = {k: JobBound(n, f"QOS {qos.name}") for k, n in of(qos).items()} | found
    for link in association_chain(rules, place)[:1]:
        found = {k: JobBound(n, _association(link).name) for k, n in of(link).items()} | found
    return found


@_once_a_place
def time_limit(rules: SiteRules, place: Place) -> JobBound | None:
    """The longest time limit in seconds; a partition's applies as well as the others."""
    found = []
    partition = rules.partitions.get(place.partition)
    if partition is not None and partition.seconds is not None:
        found.append(JobBound(partition.seconds, f"partition {partition.name}"))
    if rules.limited:
        by_qos = [q for q in qos_of(rules, place) if q.seconds is not None]
        by_account = [x for x in association_chain(rules, place)[:1] if x.seconds is not None]
        if by_qos:
            found.append(JobBound(by_qos[0].seconds or 0.0, f"QOS {by_qos[0].name}"))
        elif by_account:
            found.append(JobBound(by_account[0].seconds or 0.0, _association(by_account[0]).name))
    return min(found, key=lambda one: one.most, default=None)
