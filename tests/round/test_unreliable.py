"""Nodes that break jobs get no jobs if others have room."""

from __future__ import annotations

from memory_cluster import cluster, comment, store

from hopsd.model.ids import JobId, NodeName
from hopsd.model.plan import PlanSettings
from hopsd.model.reason import ReasonCode
from hopsd.policies.hops.policy import plan as hops
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings

SETTINGS = RoundSettings(seconds=60.0, plan=PlanSettings(time_limit_seconds=5.0))
LEMON = {NodeName("n0"): "breaks jobs: 6 failed runs of 3 workloads, 0.8 expected"}


def test_no_job_starts_on_an_unreliable_node_and_the_reason_has_evidence() -> None:
    port, memory = cluster(*[comment(4)] * 4), store()
    nodes = len(port.nodes)
    result = run_round(port, memory, hops, SETTINGS, None, unreliable=LEMON)
    placements = port.placements()
    assert len(placements) == min(4, nodes - 1)
    assert all("n0" not in allocation.nodes for allocation in placements.values())
    assert "n0" not in str(result.plan.placements)


def test_jobs_on_an_unreliable_node_stay() -> None:
    port, memory = cluster(comment(4)), store()
    window = run_round(port, memory, hops, SETTINGS, None).window
    (allocation,) = port.placements().values()
    bad = dict.fromkeys(allocation.nodes, "breaks jobs")
    port.now += 60.0
    result = run_round(port, memory, hops, SETTINGS, window, unreliable=bad)
    assert result.outcomes == ()
    assert list(port.placements().values()) == [allocation]


def test_a_job_that_fits_only_there_gets_the_reason() -> None:
    port, memory = cluster(comment(4)), store()
    bad = {node.name: "breaks jobs: 6 failed runs" for node in port.nodes}
    result = run_round(port, memory, hops, SETTINGS, None, unreliable=bad)
    reason = result.plan.waiting[JobId("1")]
    assert reason.code is ReasonCode.NO_CONFIGURATION
    assert "not planned on: n0 breaks jobs: 6 failed runs" in reason.text
