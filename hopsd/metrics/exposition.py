"""The metrics for Prometheus, made once after each tick, so that a scrape costs the daemon nothing.

Names and units follow https://prometheus.io/docs/practices/naming/. No label names a job, a user or
a node: the number of series depends on the cluster's GPU types alone.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from hopsd.config import Config
from hopsd.core.placement.pools import could_run, pools_of
from hopsd.model.plan import PlanStatus
from hopsd.model.reason import ReasonCode
from hopsd.model.step import OutcomeStatus, StepKind
from hopsd.round.result import RoundResult

MODES = ("active", "paused", "standby")
PLANNING_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)

WAIT_FOR_GPUS = (ReasonCode.LOST_TO_OTHERS, ReasonCode.OUTSIDE_WINDOW)
"""Reasons of jobs that would run if the plan gave them GPUs."""


class TickOutcome(StrEnum):
    """How a tick ended: a round succeeded (``PLANNED``), its plan was not ready in time (``LATE``),
    hopsd is on standby or paused (``IDLE``), or the tick failed.
    """

    PLANNED = "planned"
    LATE = "late"
    IDLE = "idle"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Tick:
    """The results of a tick. ``document`` is the status document, ``result`` that of the last
    successful round (the same object if no new one succeeded), ``backing_off`` the number of jobs
    left out of plans for a while, ``ended`` when the tick ended (epoch seconds).
    """

    document: Mapping[str, Any]
    result: RoundResult | None
    backing_off: int
    ended: float
    config: Config


class Figures:
    """A prometheus-client registry, updated by :meth:`take` after each tick."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges: tuple[Metric, ...] = ()
        self._last: RoundResult | None = None
        self._last_round = 0.0
        self._ticks = Counter(
            "hops_ticks", "Ticks by outcome.", ["outcome"], registry=self.registry
        )
        self._rounds = Counter(
            "hops_plans",
            "Plans made and applied: first ones, which open a round, and further ones.",
            ["kind"],
            registry=self.registry,
        )
        self._steps = Counter(
            "hops_steps",
            "Changes requested from Slurm, by kind and outcome.",
            ["kind", "status"],
            registry=self.registry,
        )
        self._planning_times = Histogram(
            "hops_planning_duration_seconds",
            "Time that the policy took for a plan.",
            buckets=PLANNING_BUCKETS,
            registry=self.registry,
        )
        # Create all series at the start, so that rate() sees the first event.
        for outcome in TickOutcome:
            self._ticks.labels(outcome.value)
        for kind in ("first", "further"):
            self._rounds.labels(kind)
        for step in StepKind:
            for status in OutcomeStatus:
                self._steps.labels(step.value, status.value)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Describe no metrics at registration, since there are none before the first tick ends."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the gauges of the last tick; prometheus-client calls this at each scrape."""
        return self._gauges

    def take(self, tick: Tick) -> None:
        """Count what the tick did, and replace the gauges by the tick's."""
        fresh = tick.result if tick.result is not self._last else None
        self._last = tick.result
        if fresh is not None:
            self._last_round = tick.ended
            self._count(fresh)
        self._ticks.labels(_outcome(tick, fresh).value).inc()
        self._gauges = tuple(_gauges(tick, self._last_round))

    def _count(self, result: RoundResult) -> None:
        self._rounds.labels("first" if result.first else "further").inc()
        self._planning_times.observe(result.plan.seconds.get("total", 0.0))
        for outcome in result.outcomes:
            self._steps.labels(outcome.step.kind.value, outcome.status.value).inc()


def _outcome(tick: Tick, fresh: RoundResult | None) -> TickOutcome:
    if tick.document["error"] is not None:
        return TickOutcome.FAILED
    if tick.document["mode"] != "active":
        return TickOutcome.IDLE
    return TickOutcome.PLANNED if fresh is not None else TickOutcome.LATE


def _gauges(tick: Tick, last_round: float) -> Iterator[Metric]:
    document, config = tick.document, tick.config
    info = {"version": document["version"], "port": document["port"]}
    yield InfoMetricFamily(
        "hops_build",
        "hopsd's version, its port, its policy and Slurm's version.",
        {
            **info,
            "policy": config.plan.policy,
            "slurm_version": document["slurm_version"] or "",
        },
    )
    yield _labelled_gauges(
        "hops_mode",
        "1 for the mode that hopsd is in.",
        ["mode"],
        {(mode,): float(mode == document["mode"]) for mode in MODES},
    )
    yield _gauge("hops_last_tick_timestamp_seconds", "When the last tick ended.", tick.ended)
    yield _gauge(
        "hops_last_round_timestamp_seconds",
        "When the last successful plan was applied; 0: none since the start.",
        last_round,
    )
    yield _gauge("hops_round_length_seconds", "daemon.round_seconds.", config.daemon.round_seconds)
    yield _gauge("hops_plan_gap_limit_ratio", "plan.gap.", config.plan.gap)
    yield CounterMetricFamily(
        "hops_reports_refused",
        "Reports of jobs that were refused.",
        document["reports_refused"],
    )
    yield CounterMetricFamily(
        "hops_needless_restarts",
        "Moves that no job gained by.",
        document["needless_restarts"],
    )
    yield _gauge(
        "hops_resting_jobs", "Jobs left out of plans for a while after a failure.", tick.backing_off
    )
    if document["raqlr"] is not None:
        yield _gauge(
            "hops_latency_ratio_mean",
            "Mean latency ratio of the jobs that ended in the last metrics.raqlr_hours (RAQLR).",
            document["raqlr"],
        )
    if document.get("predictions") is not None:
        yield from _predictions(document["predictions"])
    # A standby hopsd does not read the cluster: no value is better than a zero.
    if document["time"] is not None:
        yield from _cluster(document)
    if tick.result is not None:
        yield from _plan(document, tick.result)


def _predictions(predictions: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield how far the first predictions of each job's next start and of its end were off."""
    errors = HistogramMetricFamily(
        "hops_prediction_error_seconds",
        "Error of the first prediction of each start and end.",
        labels=["kind"],
    )
    right = CounterMetricFamily(
        "hops_predictions_within_interval",
        "First predictions whose start or end came within the 80 % interval.",
        labels=["kind"],
    )
    for kind, error in predictions["errors"].items():
        bounds = [*map(str, error["bounds"]), "+Inf"]
        counts = list(accumulate(map(float, error["counts"])))
        errors.add_metric([kind], list(zip(bounds, counts, strict=True)), error["seconds"])
        right.add_metric([kind], error["within"])
    yield errors
    yield right
    yield _gauge(
        "hops_predictions_timestamp_seconds",
        "When the newest predictions were made.",
        predictions["at"],
    )
    yield _gauge(
        "hops_predictions_duration_seconds",
        "How long the newest predictions took.",
        predictions["seconds"],
    )


def _cluster(document: Mapping[str, Any]) -> Iterator[Metric]:
    gpus: Counts[tuple[str, ...]] = Counts()
    nodes: Counts[tuple[str, ...]] = Counts({("usable",): 0, ("unusable",): 0})
    for node in document["nodes"]:
        kind, usable = node["gpu_type"], node["usable"]
        nodes["usable" if usable else "unusable",] += 1
        gpus[kind, "used"] += max(0, node["gpus"] - node["idle"] - node["foreign"])
        gpus[kind, "foreign"] += node["foreign"]
        gpus[kind, "idle"] += node["idle"] if usable else 0
        gpus[kind, "unusable"] += 0 if usable else node["idle"]
    yield _labelled_gauges(
        "hops_gpus",
        "GPUs: used by hops jobs, by foreign ones, idle, or idle on a node that takes no work.",
        ["gpu_type", "state"],
        gpus,
    )
    yield _labelled_gauges("hops_nodes", "Nodes that take work, and others.", ["state"], nodes)
    yield _gauge("hops_running_jobs", "hops jobs that run.", len(document["running"]))
    slow = [node for node in document["nodes"] if node.get("slow")]
    lemons = [node for node in document["nodes"] if node.get("breaks_jobs")]
    yield _gauge("hops_slow_nodes", "Nodes that are slower than their type.", len(slow))
    yield _gauge("hops_nodes_breaking_jobs", "Nodes on which too many runs fail.", len(lemons))
    hung = [row for row in document["running"] if row.get("hung")]
    idle = [row for row in document["running"] if row.get("idle")]
    yield _gauge("hops_hung_jobs", "hops jobs whose training hangs.", len(hung))
    yield _gauge("hops_idle_jobs", "hops jobs that hold GPUs and do nothing.", len(idle))
    waiting: Counts[tuple[str, ...]] = Counts({(code.value,): 0 for code in ReasonCode})
    waiting.update((row["code"] or "slurm",) for row in document["waiting"])
    yield _labelled_gauges(
        "hops_waiting_jobs",
        "hops jobs that wait, by reason; slurm: paused, or given back to Slurm.",
        ["reason"],
        waiting,
    )
    yield _gauge(
        "hops_longest_wait_seconds",
        "Time that the job which waits longest has waited, over all its restarts.",
        max((row["wait_seconds"] for row in document["waiting"]), default=0.0),
    )


def _plan(document: Mapping[str, Any], result: RoundResult) -> Iterator[Metric]:
    plan = result.plan
    yield _gauge("hops_plan_objective", "Objective of the last plan.", plan.objective)
    yield _gauge("hops_plan_upper_bound", "Proven bound of the objective.", plan.upper_bound)
    yield _gauge("hops_plan_gap_ratio", "How far the objective may be from the best.", plan.gap)
    yield _labelled_gauges(
        "hops_plan_status",
        "1 for the status of the last plan.",
        ["status"],
        {(status.value,): float(status is plan.status) for status in PlanStatus},
    )
    yield _gauge("hops_plan_configurations", "Placements considered.", plan.configurations)
    yield _gauge("hops_fragmented_gpus", "GPUs left idle while jobs wait.", plan.fragments)
    yield _gauge(
        "hops_rack_fragmented_gpus",
        "Whole racks' worth of idle GPUs on racks where no waiting rack-bound job could use them.",
        plan.rack_fragments,
    )
    yield _gauge(
        "hops_fitting_jobs",
        "Jobs that wait for GPUs although they would fit on idle ones.",
        jobs_that_fit(document, result),
    )


def jobs_that_fit(document: Mapping[str, Any], result: RoundResult) -> int:
    """Count the jobs that wait for GPUs by the last plan, but fit on the GPUs, cores, memory, nodes
    and shapes that it left idle. Starts that Slurm was too busy for do not count.
    """
    waiting = {
        row["id"]
        for row in document["waiting"]
        if row["code"] in WAIT_FOR_GPUS and not row["released"] and row["id"] not in result.put_off
    }
    idle = {node["name"]: node["idle"] for node in document["nodes"] if node["usable"]}
    nodes = [
        replace(
            node,
            gpus=idle[node.name],
            cores=node.cores if node.idle_cores is None else node.idle_cores,
            memory_mb=node.memory_mb if node.idle_memory_mb is None else node.idle_memory_mb,
        )
        for node in result.build.snapshot.nodes
        if idle.get(node.name, 0) > 0
    ]
    if not nodes or not waiting:
        return 0
    idle_nodes = {node.name for node in result.build.snapshot.nodes if node.gpus == node.idle}
    pools = pools_of(nodes)
    alone = pools_of(node for node in nodes if node.name in idle_nodes)
    return sum(
        could_run(job, alone if job.rules.exclusive else pools)
        for job in result.build.snapshot.jobs
        if job.id in waiting
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _labelled_gauges(
    name: str, text: str, labels: list[str], values: Mapping[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
