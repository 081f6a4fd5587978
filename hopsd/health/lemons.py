"""Find nodes that break jobs, where more runs fail than runs of the same workloads do elsewhere.

How often a workload fails is itself uncertain. So its failures on a node are compared with the
beta-binomial prediction from its runs elsewhere, and the distributions of all workloads are summed
exactly. A LAUNCH_FAILED or NODE_FAIL is blamed on the node until other nodes show that the workload
causes it; a FAILED says nothing about the node if the workload ran nowhere else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from hopsd.health.records import EndState, HealthRecords, JobEnd, Lemon
from hopsd.model.ids import NodeName, WorkloadName

WINDOW_SECONDS = 30 * 86_400.0
"""Older ends do not count."""

ALPHA = 0.01
"""Probability that one judgement of a healthy cluster names any node."""

MIN_FAILURES = 3

LAUNCH_PRIOR_RUNS = 20.0
"""How many runs of a workload say as much about its launches as all other workloads do."""

FAILED_PRIOR_RUNS = 1.0
"""The same for programs' failures; few, since some programs never fail and some always do."""

_LAUNCH = (EndState.LAUNCH_FAILED, EndState.NODE_FAIL)
_FAILURES = (*_LAUNCH, EndState.FAILED)


def find_lemons(records: HealthRecords) -> tuple[Lemon, ...]:
    """Return the nodes that break jobs, the surest first.

    A failure of a job on several nodes counts for each of them until one is named; the named node
    then explains the failures of its jobs, and the others are judged by those that remain.
    """
    since = records.now - WINDOW_SECONDS
    recent = (end for end in records.ends if since <= end.at <= records.now)
    ends = _mark_repeats(sorted(recent, key=lambda end: (end.at, end.job)))
    lemons: list[Lemon] = []
    while lemon := _surest(ends):
        lemons.append(lemon)
        ends = [e for e in ends if not _is_explained(e, lemon.node)]
    return tuple(lemons)


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a run. ``repeat`` says that the workload's run before failed on the same nodes,
    too: if a user starts a broken program again and again, and an idle node gets it each time, that
    is one observation.
    """

    workload: WorkloadName
    nodes: frozenset[NodeName]
    state: EndState
    repeat: bool


def _mark_repeats(ends: Iterable[JobEnd]) -> list[_End]:
    last: dict[WorkloadName, tuple[EndState, frozenset[NodeName]]] = {}
    marked_ends = []
    for end in ends:
        outcome = end.state, frozenset(end.nodes)
        repeat = end.state is EndState.FAILED and last.get(end.workload) == outcome
        last[end.workload] = outcome
        marked_ends.append(_End(end.workload, outcome[1], end.state, repeat))
    return marked_ends


def _is_explained(end: _End, lemon: NodeName) -> bool:
    return lemon in end.nodes and (len(end.nodes) == 1 or end.state in _FAILURES)


def _surest(ends: Sequence[_End]) -> Lemon | None:
    """Return the lemon with the smallest probability, if it is below ALPHA."""
    by_node: dict[NodeName, list[_End]] = defaultdict(list)
    for end in ends:
        for node in end.nodes:
            by_node[node].append(end)
    suspects = {
        node: node_ends
        for node, node_ends in by_node.items()
        if sum(end.state in _FAILURES for end in node_ends) >= MIN_FAILURES
    }
    launches, programs = _Tally(_launches, ends), _Tally(_programs, ends)
    judgements = [
        _judge(node, node_ends, launches, programs) for node, node_ends in suspects.items()
    ]
    corrected_judgements = [replace(j, p=min(1.0, j.p * len(by_node))) for j in judgements]
    lemons = [j for j in corrected_judgements if j.p < ALPHA and j.failures >= MIN_FAILURES]
    return min(lemons, key=lambda lemon: (lemon.p, lemon.node), default=None)


def _launches(end: _End) -> bool:
    """Whether the end counts as a launch: every run is launched, and some launches fail."""
    del end
    return True


def _programs(end: _End) -> bool:
    """Whether the program could fail by itself: it was launched, and not lost with its node."""
    return end.state not in _LAUNCH


class _Tally:
    """Runs and failures of one kind, by workload and number of nodes, with repeats apart."""

    def __init__(self, kind: Callable[[_End], bool], ends: Iterable[_End]) -> None:
        self.kind = kind
        self.runs: Counter[tuple[WorkloadName, int]] = Counter()
        self.failures: Counter[tuple[WorkloadName, int]] = Counter()
        self.repeats: Counter[tuple[WorkloadName, int]] = Counter()
        failures = _LAUNCH if kind is _launches else (EndState.FAILED,)
        for end in filter(kind, ends):
            key = end.workload, len(end.nodes)
            if end.repeat and kind is _programs:
                self.repeats[key] += 1
                continue
            self.runs[key] += 1
            self.failures[key] += end.state in failures


def _judge(node: NodeName, ends: Sequence[_End], launches: _Tally, programs: _Tally) -> Lemon:
    """Judge a node; its probability is not yet corrected for the number of nodes."""
    chances = np.ones(1)
    failures, failure_count, expected = 0, 0, 0.0
    workloads: set[WorkloadName] = set()
    for tally in (launches, programs):
        local = _Tally(tally.kind, ends)
        runs, failure_counts = tally.runs - local.runs, tally.failures - local.failures
        if not runs:
            continue  # nothing to compare with
        launch = tally is launches
        prior_runs = LAUNCH_PRIOR_RUNS if launch else FAILED_PRIOR_RUNS
        node_runs = sum(n * size for (_, size), n in runs.items()) if launch else runs.total()
        rate = (failure_counts.total() + 0.5) / (node_runs + 1.0)
        for key, count in local.runs.items():
            if not launch and not runs[key]:
                continue
            prior = min(0.9, rate * key[1]) if launch else rate
            a = prior_runs * prior + failure_counts[key]
            b = prior_runs * (1.0 - prior) + runs[key] - failure_counts[key]
            chances = np.convolve(chances, _beta_binomial(count, a, b))
            failure_count += local.failures[key]
            workloads |= {key[0]} if local.failures[key] else set()
            failures += local.failures[key] + local.repeats[key]
            expected += (count + local.repeats[key]) * a / (a + b)
    return Lemon(
        node, failures, expected, float(min(1.0, chances[failure_count:].sum())), len(workloads)
    )


def _beta_binomial(runs: int, a: float, b: float) -> NDArray[np.float64]:
    """Probability of 0 to ``runs`` failures (runs + 1,), their rate drawn from Beta(a, b)."""
    k = np.arange(runs + 1)
    choose = gammaln(runs + 1) - gammaln(k + 1) - gammaln(runs - k + 1)
    chances: NDArray[np.float64] = np.exp(choose + betaln(k + a, runs - k + b) - betaln(a, b))
    return chances
