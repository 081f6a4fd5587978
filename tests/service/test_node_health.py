"""What is reported about nodes, and which nodes are drained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory_store import MemoryStore

from hopsd.config import HealthConfig
from hopsd.errors import SlurmError
from hopsd.health.records import Health, Lemon, SlowNode
from hopsd.model.ids import NodeName
from hopsd.service.node_health import DRAIN_EVENT, EVERY_SECONDS, NodeHealth, avoidable

NOW = 1_000_000.0


class Site:
    """A site's nodes, verdicts on them, and the requests to Slurm.

    ``lemons``: by each node that breaks jobs, how many workloads failed there.
    """

    def __init__(self, **lemons: int) -> None:
        self.store = MemoryStore()
        self.lemons, self.drained_nodes = lemons, [""][:0]
        self.refuses = False
        self.watch = self.new_watch()

    def new_watch(self) -> NodeHealth:
        return NodeHealth(self.store, self, self, begin=lambda work: work())  # type: ignore[arg-type]

    def health(self, nodes: object) -> Health:
        del nodes
        return Health(
            (SlowNode(NodeName("n9"), 0.94, 0.93, 0.95, None),),
            tuple(Lemon(NodeName(n), 6, 0.8, 1e-4, count) for n, count in self.lemons.items()),
        )

    def run(self, *arguments: str) -> str:
        if self.refuses:
            raise SlurmError("scontrol update: Invalid user id")
        assert arguments[:2] == ("scontrol", "update")
        assert "State=DRAIN" in arguments
        self.drained_nodes.append(arguments[2].partition("=")[2])
        return ""

    def look(self, now: float, *, watch: NodeHealth | None = None, **config: Any) -> None:
        nodes = [
            {"name": n, "gpu_type": "a100", "usable": n not in self.drained_nodes}
            for n in (*self.lemons, "n9")
        ]
        (watch or self.watch).look(nodes, HealthConfig(**config), now)

    @property
    def events(self) -> list[str]:
        return [event.kind for event in reversed(self.store.events())]


def test_each_node_is_reported_once_and_not_drained_by_default() -> None:
    site = Site(n1=3)
    for look in range(3):
        site.look(NOW + look * EVERY_SECONDS)
    assert site.events == ["node_slow", "node_breaks_jobs"]
    assert site.drained_nodes == []
    assert "6.0% slower than its type" in site.watch.slow["n9"]
    assert "6 failed runs of 3 workloads, 0.8 expected" in site.watch.lemons["n1"]


def test_a_slow_gpu_is_reported_by_its_index_beside_its_node() -> None:
    site = Site()
    slow = SlowNode(NodeName("n9"), 0.9, 0.89, 0.91, None, gpu=2)
    site.health = lambda nodes: Health((slow, replace(slow, gpu=3)), ())  # type: ignore[method-assign]
    for look in range(2):
        site.look(NOW + look * EVERY_SECONDS)
    assert site.events == ["node_slow"] * 2
    assert "GPU 2 is 10.0% slower than its type" in site.watch.slow["n9"]
    assert "; GPU 3 is 10.0% slower" in site.watch.slow["n9"]


def test_a_site_may_have_up_to_a_number_of_nodes_drained() -> None:
    site = Site(n1=3, n2=3, n3=3)
    for look in range(3):
        site.look(NOW + look * EVERY_SECONDS, drain=True, drain_nodes_max=2)
    assert site.drained_nodes == ["n1", "n2"]


def test_a_node_on_which_a_single_workload_failed_is_not_drained() -> None:
    site = Site(n1=1, n2=2)
    site.look(NOW, drain=True, drain_nodes_max=9)
    assert site.drained_nodes == ["n2"]


def test_a_resumed_node_is_not_drained_again() -> None:
    """A new hopsd does not drain it again either."""
    site = Site(n1=3)
    site.look(NOW, drain=True)
    assert site.events.count(DRAIN_EVENT) == 1
    site.drained_nodes.clear()
    site.look(NOW + 2 * EVERY_SECONDS, drain=True)
    site.look(NOW + 3 * EVERY_SECONDS, drain=True, watch=site.new_watch())
    assert site.drained_nodes == []


def test_a_refusal_by_slurm_is_retried() -> None:
    site = Site(n1=3)
    site.refuses = True
    site.look(NOW, drain=True)
    site.refuses = False
    site.look(NOW + 2 * EVERY_SECONDS, drain=True)
    assert site.drained_nodes == ["n1"]


def test_plans_avoid_at_most_a_tenth_of_a_types_nodes() -> None:
    lemons = [Lemon(NodeName(f"a{i}"), 6, 0.8, 1e-4, 3) for i in range(5)]
    lemons += [Lemon(NodeName("b0"), 6, 0.8, 1e-4, 3), Lemon(NodeName("a9"), 6, 0.8, 1e-4, 1)]
    nodes = [{"name": f"a{i}", "gpu_type": "a100"} for i in range(20)]
    nodes.append({"name": "b0", "gpu_type": "v100"})
    assert list(avoidable(lemons, nodes)) == ["a0", "a1"]
    two_nodes = [{"name": f"a{i}", "gpu_type": "a100"} for i in range(2)]
    assert list(avoidable(lemons, two_nodes)) == ["a0"]
    assert avoidable(lemons, []) == {}
