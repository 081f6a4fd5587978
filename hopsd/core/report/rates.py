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
"""Minimum seconds of new iterations for a speed; a whole run may be shorter."""

Process = tuple[NodeName, int, int]
"""Node, rank and process id: one process within a run."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A process's counters, for example those already used for earlier records."""

    iterations: int = 0
    samples: float = 0.0
    seconds: float = 0.0


def process_of(report: Report) -> Process:
    """Return the process that wrote a report."""
    return report.node, report.rank, report.pid


def counters_of(report: Report) -> Counters:
    """Return a report's counters."""
    return Counters(report.timed_iterations, report.timed_samples, report.timed_seconds)


@dataclass(frozen=True, slots=True)
class NodeRates:
    """Samples per second per GPU by node, samples of an iteration per GPU, and the reports used."""

    by_node: Mapping[NodeName, float] = field(default_factory=dict)
    batch: float = 0.0
    reports: Sequence[Report] = ()


def speeds(
    reports: Sequence[Report], counters_before: Mapping[Process, Counters], allocation: Allocation
) -> NodeRates:
    """Return the speeds of a run since ``counters_before``.

    ``reports`` are from one run on ``allocation``. The result is empty until every rank of the run
    has enough new iterations: half of the ranks would show half of the speed. The total is divided
    by the GPUs that Slurm allocated, not by processes: an idle GPU lowers the figure. If some of
    the run's nodes have no process at all, the total is divided by all GPUs. If any process trains,
    inference by others (a final test, a validation) is not counted.
    """
    if any(_trains(report) for report in reports):
        reports = [report for report in reports if _trains(report)]
    rates = [
        (r, progress) for r in reports if (progress := _progress(r, counters_before)) is not None
    ]
    ranks: dict[int, set[int]] = defaultdict(set)
    by_node: dict[NodeName, float] = defaultdict(float)
    for report, progress in rates:
        ranks[report.world].add(report.rank)
        by_node[report.node] += progress.samples / progress.seconds
    if not rates or any(len(present) < world for world, present in ranks.items()):
        return NodeRates()
    counted_reports = [report for report, _ in rates]
    batch = sum(progress.samples / progress.iterations for _, progress in rates) / allocation.gpus
    if set(by_node) == set(allocation.nodes):
        per_gpu = {node: rate / allocation.on(node) for node, rate in by_node.items()}
    else:
        per_gpu = dict.fromkeys(by_node, sum(by_node.values()) / allocation.gpus)
    return NodeRates(per_gpu, batch, counted_reports)


def _trains(report: Report) -> bool:
    return report.phases is not None and not report.phases.inference


def _progress(report: Report, counters_before: Mapping[Process, Counters]) -> Counters | None:
    """Return a process's progress since ``counters_before``; None while there is too little."""
    previous = counters_before.get(process_of(report), Counters())
    iterations = report.timed_iterations - previous.iterations
    samples = report.timed_samples - previous.samples
    seconds = report.timed_seconds - previous.seconds
    short = seconds < MIN_SECONDS and (previous.iterations or not report.final)
    if iterations < MIN_ITERATIONS or short or samples <= 0:
        return None
    return Counters(iterations, samples, seconds)
