"""Reports slow nodes and nodes that break jobs, and drains the latter if the site allows it.

Nodes are judged in a thread, outside the tick.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from hopsd.config import HealthConfig
from hopsd.errors import HopsError
from hopsd.health.lemons import WINDOW_SECONDS
from hopsd.health.records import Health, Lemon, SlowNode
from hopsd.model.ids import NodeName
from hopsd.serve.health import HealthService
from hopsd.service.background import in_thread
from hopsd.slurm.command import Runner
from hopsd.store.history import History

log = structlog.get_logger()

EVERY_SECONDS = 120.0

SHARE = 0.01
"""Judging takes at most this share of the time: on a large site one pass takes a minute."""

MIN_WORKLOADS = 2
"""A node is drained only if this many workloads failed there: one alone may be broken itself."""

AVOIDED_SHARE = 0.1
"""Plans avoid at most this share of a GPU type's nodes, or one, so that the others have room."""

DRAIN_EVENT = "node_drained"
_MAX_EVENTS = 10_000


def slow_text(slow: SlowNode) -> str:
    low, high = 1.0 - slow.high, 1.0 - slow.low
    text = f"{1.0 - slow.factor:.1%} slower than its type (95 % interval {low:.1%} to {high:.1%})"
    return text if slow.gpu is None else f"GPU {slow.gpu} is {text}"


def evidence(lemon: Lemon) -> str:
    return (
        f"breaks jobs: {lemon.failures} failed runs of {lemon.workloads} workloads,"
        f" {lemon.expected:.1f} expected"
    )


def lemon_text(lemon: Lemon) -> str:
    return f"{evidence(lemon)} (by chance with probability {lemon.p:.1g}); drain it"


def avoidable(lemons: Iterable[Lemon], nodes: Iterable[Mapping[str, Any]]) -> dict[NodeName, str]:
    """Choose the ``lemons`` (surest first) on which several workloads failed: at most a share of
    each GPU type's ``nodes`` (rows of the status document), and never the only one.
    """
    types = {node["name"]: node["gpu_type"] for node in nodes}
    counts = Counter(types.values())
    spare = {
        gpu_type: max(min(1, count - 1), int(AVOIDED_SHARE * count))
        for gpu_type, count in counts.items()
    }
    avoidable_nodes = {}
    for lemon in lemons:
        gpu_type = types.get(lemon.node)
        if lemon.workloads >= MIN_WORKLOADS and gpu_type is not None and spare[gpu_type] > 0:
            spare[gpu_type] -= 1
            avoidable_nodes[lemon.node] = evidence(lemon)
    return avoidable_nodes


class NodeHealth:
    """The verdicts of the last look: for each kind, a sentence by node."""

    def __init__(
        self,
        store: History,
        service: HealthService,
        commands: Runner,
        begin: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        self._store, self._service, self._commands = store, service, commands
        self._begin = begin
        self._next = float("-inf")
        self._is_judging = False
        self._logged_verdicts: set[tuple[str, str, int | None]] = set()
        self.slow: Mapping[str, str] = {}
        self.lemons: Mapping[str, str] = {}
        self.unreliable: Mapping[NodeName, str] = {}
        """Nodes that plans may avoid, each with the evidence."""

    def look(self, nodes: Iterable[Mapping[str, Any]], config: HealthConfig, now: float) -> None:
        """Judge ``nodes``, rows of the status document, if a pass is due."""
        if self._is_judging or now < self._next:
            return
        self._is_judging = True
        rows = list(nodes)
        self._begin(lambda: self._judge(rows, config, now))

    def _judge(self, nodes: list[Mapping[str, Any]], config: HealthConfig, now: float) -> None:
        began = time.monotonic()
        try:
            health = self._service.health(nodes)
            self._tell(health)
            self.unreliable = avoidable(health.lemons, nodes)
            if config.drain:
                self._drain(health, nodes, config.drain_nodes_max, now)
        except HopsError as error:
            log.warning("health", problem=str(error))
        except Exception:
            log.exception("defect of health")
        finally:
            took = time.monotonic() - began
            self._next = now + max(EVERY_SECONDS, took / SHARE)
            self._is_judging = False

    def _tell(self, health: Health) -> None:
        self.lemons = {lemon.node: lemon_text(lemon) for lemon in health.lemons}
        by_node: dict[str, list[str]] = defaultdict(list)
        for slow in health.slow:
            by_node[slow.node].append(slow_text(slow))
        self.slow = {node: "; ".join(texts) for node, texts in by_node.items()}
        verdicts: dict[tuple[str, str, int | None], str]
        verdicts = {("node_slow", slow.node, slow.gpu): slow_text(slow) for slow in health.slow}
        verdicts |= {("node_breaks_jobs", node, None): text for node, text in self.lemons.items()}
        for (kind, node, gpu), text in verdicts.items():
            if (kind, node, gpu) not in self._logged_verdicts:
                log.warning(kind, node=node, reason=text)
                self._store.add_event(kind, f"{node}: {text}")
        self._logged_verdicts = set(verdicts)

    def _drain(
        self, health: Health, nodes: Iterable[Mapping[str, Any]], limit: int, now: float
    ) -> None:
        """Drain the surest lemons while fewer than ``limit`` are out of service, each node only
        once: an operator who resumes it knows better.
        """
        usable = {node["name"] for node in nodes if node["usable"]}
        since = now - WINDOW_SECONDS
        before = {
            event.text.partition(":")[0]
            for event in self._store.events(limit=_MAX_EVENTS)
            if event.kind == DRAIN_EVENT and event.at >= since
        }
        out_of_service = sum(lemon.node not in usable for lemon in health.lemons)
        for lemon in health.lemons:
            if out_of_service >= limit:
                return
            if lemon.node in before or lemon.node not in usable:
                continue
            if lemon.workloads < MIN_WORKLOADS:
                continue
            reason = f"hops: {lemon.failures} failed runs, {lemon.expected:.1f} expected"
            self._commands.run(
                *("scontrol", "update", f"NodeName={lemon.node}", "State=DRAIN"),
                f"Reason={reason}",
            )
            out_of_service += 1
            log.warning(DRAIN_EVENT, node=lemon.node, reason=reason)
            self._store.add_event(DRAIN_EVENT, f"{lemon.node}: {lemon_text(lemon)}")
