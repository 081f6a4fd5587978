"""Throughput per GPU and node, from processes' counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hopsd.core.report.reports import Report
from hopsd.model.allocation import Allocation
from hopsd.model.ids import NodeName

MIN_ITERATIONS = 10
MIN_SECONDS = 1.0

Process = tuple[NodeName, int, int]
"""Node, rank and process id: one process within a run."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How much of a process's counters earlier records have already used."""

    iterations: int = 0
    samples: float = 0.0
    seconds: float = 0.0


def process_of(report: Report) -> Process:
    """The process that wrote a report."""
    return report.node, report.rank, report.pid


def counted(report: Report) -> Counted:
    """A report's counters."""
    return Counted(report.timed_iterations, report.timed_samples, report.timed_seconds)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Samples per second per GPU by node, samples of an iteration per GPU, and their reports."""

    by_node: Mapping[NodeName, float] = field(default_factory=dict)
    batch: float = 0.0
    reports: Sequence[Report] = ()


def speeds(
    reports: Sequence[Report], used: Mapping[Process, Counted], allocation: Allocation
) -> Speeds:
    """What a run did since ``used``.

    ``reports`` are of one run on ``allocation``. Empty until every rank of the run has enough new
    iterations: half of the ranks would show half of the speed. Divided by the GPUs that Slurm
    allocated, not by processes: an idle GPU lowers the figure. If some of the run's nodes have no
    process at all, the total is divided over all GPUs. If any process trains, inference by others
    (a final test, a validation) is not counted.
    """
    if any(_trains(report) for report in reports):
        reports = [report for report in reports if _trains(report)]
    rates = [(r, done) for r in reports if (done := _since(r, used)) is not None]
    ranks: dict[int, set[int]] = defaultdict(set)
    by_node: dict[NodeName, float] = defaultdict(float)
    for report, done in rates:
        ranks[report.world].add(report.rank)
        by_node[report.node] += done.samples / done.seconds
    if not rates or any(len(present) < world for world, present in ranks.items()):
        return Speeds()
    of_reports = [report for report, _ in rates]
    batch = sum(done.samples / done.iterations for _, done in rates) / allocation.gpus
    if set(by_node) == set(allocation.nodes):
        each = {node: rate / allocation.on(node) for node, rate in by_node.items()}
    else:
        each = dict.fromkeys(by_node, sum(by_node.values()) / allocation.gpus)
    return Speeds(each, batch, of_reports)


def _trains(report: Report) -> bool:
    return report.phases is not None and not report.phases.inference


def _since(report: Report, used: Mapping[Process, Counted]) -> Counted | None:
    """What a process counted since ``used``; None while there are too few iterations."""
    before = used.get(process_of(report), Counted())
    iterations = report.timed_iterations - before.iterations
    samples = report.timed_samples - before.samples
    seconds = report.timed_seconds - before.seconds
    if iterations < MIN_ITERATIONS or seconds < MIN_SECONDS or samples <= 0:
        return None
    return Counted(iterations, samples, seconds)
