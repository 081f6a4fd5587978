"""CPUs instead of GPUs, for jobs whose users allow it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_cases import NET, A, job

from hopsd.model.allocation import Allocation
from hopsd.model.devices import CPU
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload
from hopsd.model.step import Step, StepKind
from hopsd.policies.registry import get
from hopsd.sim.cluster import BrokenPlanError, VirtualCluster
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import play

CLUSTER = Cluster((Server(NodeName("g"), A, 1), Server(NodeName("c"), CPU, 2)))


def load(*cpu_flags: bool) -> Workload:
    """Jobs that take 100 s on the GPU or 400 s on a CPU."""
    tables = {A: ThroughputTable({1: 4.0}), CPU: ThroughputTable({1: 1.0})}
    jobs = [replace(job(i, 400.0), cpu=cpu) for i, cpu in enumerate(cpu_flags)]
    return Workload({NET: tables}, tuple(jobs))


def test_a_job_that_refuses_cpus_waits_for_a_gpu() -> None:
    """The third job overtakes under SJF; under FIFO it gets its turn, and a CPU, at 100 s."""
    result = play("fifo", get("fifo"), CLUSTER, load(False, False, True), SimulationSettings())
    assert [o.end for o in result.outcomes] == [100.0, 200.0, 500.0]
    result = play("sjf", get("sjf"), CLUSTER, load(False, False, True), SimulationSettings())
    assert sorted(o.end or 0.0 for o in result.outcomes) == [100.0, 200.0, 400.0]


def test_a_cpu_for_a_job_that_refuses_it_is_an_invalid_plan() -> None:
    port = VirtualCluster(CLUSTER, load(False, True))
    port.advance(0.0)
    on_cpu = Allocation.of({"c": 1})
    port.apply([Step(JobId("1"), StepKind.START, target=on_cpu)])
    assert port.next_event == 400.0
    with pytest.raises(BrokenPlanError, match="job 0 wants GPUs; c has CPUs"):
        port.apply([Step(JobId("0"), StepKind.START, target=on_cpu)])
