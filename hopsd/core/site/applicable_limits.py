"""The site limits that apply to a job, one for each resource that Slurm counts.

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
from hopsd.model.site import NO_RULES, Association, Bounds, Qos, ResourceKind, SiteRules

R = TypeVar("R")

_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class LimitSubject:
    """What a job's use is charged to: its user, account, QOS and partition."""

    user: UserName
    account: str
    qos: str
    partition: str


@dataclass(frozen=True, slots=True)
class LimitScope:
    """The jobs that share a limit, such as a user's jobs in a QOS; ``name`` is shown to users."""

    name: str


@dataclass(frozen=True, slots=True)
class SiteLimit:
    """At most ``maximum`` of ``kind`` for a whole ``scope``; ``usage``: minutes used so far."""

    scope: LimitScope
    kind: str
    maximum: int
    usage: int = 0


def _once_per_subject(
    work: Callable[[SiteRules, LimitSubject], R],
) -> Callable[[SiteRules, LimitSubject], R]:
    """Cache ``work`` per subject of the newest rules: 20,000 jobs have some 1,000 subjects.

    Callers share the result and must not change it.
    """
    newest: tuple[SiteRules, dict[LimitSubject, R]] = NO_RULES, {}

    @wraps(work)
    def read_cached(rules: SiteRules, subject: LimitSubject) -> R:
        nonlocal newest
        cache = newest
        if cache[0] is not rules:
            cache = newest = rules, {}
        try:
            return cache[1][subject]
        except KeyError:
            result = cache[1][subject] = work(rules, subject)
            return result

    return read_cached


@_once_per_subject
def qos_of(rules: SiteRules, subject: LimitSubject) -> Sequence[Qos]:
    """Return the QOS of the job and of its partition, the one with precedence first."""
    partition = rules.partitions.get(subject.partition)
    job_qos = rules.qos.get(subject.qos)
    partition_qos = rules.qos.get(partition.own_qos) if partition and partition.own_qos else None
    by_precedence = [qos for qos in (partition_qos, job_qos) if qos is not None]
    if job_qos is not None and job_qos.over_partition:
        by_precedence.reverse()
    return by_precedence


@_once_per_subject
def association_chain(rules: SiteRules, subject: LimitSubject) -> Sequence[Association]:
    """Return the user's association and its ancestors, as far as Slurm has them."""
    associations = rules.associations
    any_user = UserName("")
    keys = ((subject.user, subject.partition), (subject.user, ""), (any_user, ""))
    candidates = ((subject.account, *key) for key in keys)
    link = next((associations[key] for key in candidates if key in associations), None)
    links: list[Association] = []
    while link is not None and len(links) < _MAX_DEPTH:
        links.append(link)
        link = associations.get((link.parent, any_user, "")) if link.parent else None
    return links


@_once_per_subject
def scopes_of(rules: SiteRules, subject: LimitSubject) -> frozenset[LimitScope]:
    """Return every scope that a running job of this subject counts towards."""
    scopes: frozenset[LimitScope] = frozenset()
    for qos in qos_of(rules, subject):
        scopes |= {scope for scope, _ in _levels(qos, subject)}
    return scopes | {_association(link) for link in association_chain(rules, subject)}


@_once_per_subject
def bounds(rules: SiteRules, subject: LimitSubject) -> Sequence[SiteLimit]:
    """Return the limits that a job of this subject shares with other jobs."""
    if not rules.has_limits:
        return []
    return list(_bounds(rules, subject))


def _bounds(rules: SiteRules, subject: LimitSubject) -> Iterator[SiteLimit]:
    set_by_qos: dict[str, set[str]] = {"group": set(), "user": set(), "account": set()}
    for qos in qos_of(rules, subject):
        for (scope, limits), level in zip(_levels(qos, subject), set_by_qos, strict=True):
            for kind, maximum in limits.items():
                if kind not in set_by_qos[level]:
                    usage = qos.usage if level == "group" else {}
                    yield SiteLimit(scope, kind, maximum, usage.get(kind, 0))
            set_by_qos[level] |= limits.keys()
    links = association_chain(rules, subject)
    for link in links:
        for kind, maximum in link.group.items():
            if kind not in set_by_qos["group"]:
                yield SiteLimit(_association(link), kind, maximum, link.usage.get(kind, 0))
    running_set = ResourceKind.JOBS in set_by_qos["user"] | set_by_qos["account"]
    if links and links[0].user and links[0].jobs is not None and not running_set:
        yield SiteLimit(_association(links[0]), ResourceKind.JOBS, links[0].jobs)


def _levels(qos: Qos, subject: LimitSubject) -> list[tuple[LimitScope, Bounds]]:
    """Return the bounds of a QOS as a whole, by user and by account."""
    name = f"QOS {qos.name}"
    return [
        (LimitScope(name), qos.group),
        (LimitScope(f"{name}, user {subject.user}"), qos.per_user),
        (LimitScope(f"{name}, account {subject.account}"), qos.per_account),
    ]


@lru_cache(maxsize=65536)
def _association_scope(account: str, user: str, partition: str) -> LimitScope:
    words = [f"account {account}", f"user {user}" if user else ""]
    words.append(f"partition {partition}" if partition else "")
    return LimitScope(", ".join(filter(None, words)))


def _association(link: Association) -> LimitScope:
    return _association_scope(link.account, link.user, link.partition)


@dataclass(frozen=True, slots=True)
class JobLimit:
    """The limit of a single job. ``source``: the QOS, association or partition that sets it."""

    value: int | float
    source: str


@_once_per_subject
def job_limits(rules: SiteRules, subject: LimitSubject) -> Mapping[str, JobLimit]:
    """Return the maximum of each kind that Slurm allows one job."""
    return _first(rules, subject, lambda level: level.per_job)


@_once_per_subject
def node_limits(rules: SiteRules, subject: LimitSubject) -> Mapping[str, JobLimit]:
    """Return the maximum of each kind for one job on a node, as a mean over the job's nodes."""
    return _first(rules, subject, lambda level: level.per_node)


@_once_per_subject
def minimum_limits(rules: SiteRules, subject: LimitSubject) -> Sequence[tuple[str, JobLimit]]:
    """Return the minimum of each kind without which Slurm does not start a job."""
    if not rules.has_limits:
        return []
    minima: dict[str, JobLimit] = {}
    for qos in qos_of(rules, subject):
        minima = {k: JobLimit(n, f"QOS {qos.name}") for k, n in qos.least.items()} | minima
    return list(minima.items())


@_once_per_subject
def max_nodes_limit(rules: SiteRules, subject: LimitSubject) -> JobLimit | None:
    """Return the maximum nodes of one job, by its partition and by the totals of its scopes."""
    candidates = []
    partition = rules.partitions.get(subject.partition)
    if partition is not None and partition.nodes is not None:
        candidates.append(JobLimit(partition.nodes, f"partition {partition.name}"))
    if rules.has_limits:
        nodes_per_job = job_limits(rules, subject).get(ResourceKind.NODES)
        candidates += [nodes_per_job] if nodes_per_job is not None else []
        shared_bounds = (
            bound for bound in bounds(rules, subject) if bound.kind == ResourceKind.NODES
        )
        candidates += [JobLimit(bound.maximum, bound.scope.name) for bound in shared_bounds]
    return min(candidates, key=lambda bound: bound.value, default=None)


def _first(
    rules: SiteRules, subject: LimitSubject, limits: Callable[[Qos | Association], Bounds]
) -> dict[str, JobLimit]:
    """Return for each kind the bound that takes precedence."""
    first: dict[str, JobLimit] = {}
    for qos in qos_of(rules, subject):
        first = {k: JobLimit(n, f"QOS {qos.name}") for k, n in limits(qos).items()} | first
    for link in association_chain(rules, subject)[:1]:
        first = {k: JobLimit(n, _association(link).name) for k, n in limits(link).items()} | first
    return first


@_once_per_subject
def time_limit(rules: SiteRules, subject: LimitSubject) -> JobLimit | None:
    """Return the longest time limit in seconds; a partition's limit applies in addition."""
    candidates = []
    partition = rules.partitions.get(subject.partition)
    if partition is not None and partition.seconds is not None:
        candidates.append(JobLimit(partition.seconds, f"partition {partition.name}"))
    if rules.has_limits:
        by_qos = [q for q in qos_of(rules, subject) if q.seconds is not None]
        by_account = [x for x in association_chain(rules, subject)[:1] if x.seconds is not None]
        if by_qos:
            candidates.append(JobLimit(by_qos[0].seconds or 0.0, f"QOS {by_qos[0].name}"))
        elif by_account:
            candidates.append(
                JobLimit(by_account[0].seconds or 0.0, _association(by_account[0]).name)
            )
    return min(candidates, key=lambda bound: bound.value, default=None)
