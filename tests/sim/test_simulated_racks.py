"""Racks in simulations: read from files, with true speeds across leaves; segments stay whole."""

from __future__ import annotations

import json

import pytest

from bench.racks.simulated import cluster, workload
from hopsd.errors import FormatError
from hopsd.formats.scenario import read_cluster, read_workload
from hopsd.model.allocation import Allocation
from hopsd.model.ids import WorkloadName
from hopsd.model.plan import PlanSettings
from hopsd.model.rules import ShapeRule
from hopsd.model.script_options import ScriptOptions
from hopsd.policies.registry import get
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.speed import AllocationSpeeds
from hopsd.sim.study import play

CLUSTER = json.dumps(
    {
        "nodes": [
            {"name": f"n{i}", "gpu_type": "a", "gpus": 4, "switches": ["core", f"l{i // 2}"]}
            for i in range(4)
        ]
    }
)
JOB = {"id": "1", "user": "u", "submit": 0, "workload": "w", "samples": 100, "reqs": [8]}
TABLE = {"a": {"aggregated": {"1": 10, "4": 10}, "distributed": {"2": 10}}}


def document(factors: object, **job: object) -> str:
    return json.dumps({"throughput": {"w": TABLE}, "jobs": [{**JOB, **job}], "across": factors})


def test_switches_segments_and_factors_are_read() -> None:
    servers = read_cluster(CLUSTER)
    assert [server.leaf for server in servers.servers] == ["l0", "l0", "l1", "l1"]
    racked_workload = read_workload(
        document({"w": {"1": 1, "2": 0.5}}, segment=2, per_node=4), servers
    )
    options = ScriptOptions(shape=ShapeRule.EVEN, per_node=4, segment=2)
    assert racked_workload.jobs[0].options == options
    speeds = AllocationSpeeds(servers, racked_workload)
    on_one_leaf, on_two_leaves = (
        Allocation.of({"n0": 4, "n1": 4}),
        Allocation.of({"n1": 4, "n2": 4}),
    )
    assert (
        speeds.rate(WorkloadName("w"), on_two_leaves)
        == speeds.rate(WorkloadName("w"), on_one_leaf) / 2
    )


def test_factors_of_an_unknown_workload_are_refused() -> None:
    with pytest.raises(FormatError, match=r"across\.x: there is no workload 'x'"):
        read_workload(document({"x": {"2": 0.5}}), read_cluster(CLUSTER))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["hops+", "slurm", "sia"])
def test_every_rack_bound_job_of_a_stream_ends(policy: str) -> None:
    settings = SimulationSettings(plan=PlanSettings(policy=policy, effort=0))
    jobs = workload(8, 2, rack_bound=1.0, seed=0)
    assert not play(policy, get(policy), cluster(2), jobs, settings).unfinished
