"""Pools of GPU types: what an idle cluster could hold."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.placement.pools import could_run, could_run_on, pools_for, pools_of
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.rules import Rules, ShapeRule

OLD, NEW = GpuType("old"), GpuType("new")
NODES = (Node(NodeName("n0"), OLD, 4, 4, cores=8), Node(NodeName("n1"), NEW, 8, 8, cores=64))


def job(*reqs: int, rules: Rules) -> Job:
    table = ThroughputTable({1: 1.0})
    return Job(JobId("1"), UserName("a"), 0.0, 0.0, reqs, {OLD: table, NEW: table}, rules=rules)


def test_pools_do_not_depend_on_idle_gpus() -> None:
    busy = tuple(replace(node, idle=0, idle_cores=0) for node in NODES)
    assert pools_of(busy) is pools_of(NODES)
    assert pools_of(NODES[:1]) is not pools_of(NODES)


def test_pools_of_busy_and_idle_servers_are_equal() -> None:
    pools = pools_of(replace(node, idle=0, idle_cores=0) for node in NODES)
    four_cores_each = Rules(shape=ShapeRule.NODE, cores_per_gpu=4.0)
    pool_types = {
        size: [pool.gpu_type for pool in pools_for(job(size, rules=four_cores_each), pools)]
        for size in (2, 4, 16)
    }
    assert pool_types == {2: [OLD, NEW], 4: [NEW], 16: []}
    assert could_run(job(4, 16, rules=four_cores_each), pools)
    assert not could_run(job(16, rules=four_cores_each), pools)
    assert not could_run_on(job(4, rules=four_cores_each), pools[OLD])
