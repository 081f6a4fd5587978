"""What the estimator's tests know about workloads: records, basic times, nodes."""

from __future__ import annotations

from typing import Any

from hopsd.core.speed.estimator import Estimator, EstimatorSettings, SpeedTables
from hopsd.core.speed.throughput import IterationModel
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName
from hopsd.model.job import Node
from hopsd.model.knowledge import (
    Bandwidth,
    Knowledge,
    PhaseRecord,
    Phases,
    Theory,
    ThroughputRecord,
)

NOW = 1_700_000_000.0
RESNET = WorkloadName("resnet")
A, B = GpuType("a100"), GpuType("v100")
NODES = (
    Node(NodeName("n0"), A, 8, 8),
    Node(NodeName("n1"), A, 8, 8),
    Node(NodeName("n2"), B, 4, 4),
)
TYPES = {node.name: node.gpu_type for node in NODES}


def record(per_gpu: float, gpus: int = 1, **changes: Any) -> ThroughputRecord:
    """One report of now, of ``gpus`` GPUs on n0."""
    values: dict[str, Any] = {
        "workload": RESNET,
        "node": NodeName("n0"),
        "gpus": gpus,
        "nodes": 1,
        "per_gpu": per_gpu,
        "at": NOW,
    }
    values |= changes
    return ThroughputRecord(gpu_type=TYPES[values["node"]], **values)


def records(count: int, per_gpu: float, gpus: int = 1, **changes: Any) -> list[ThroughputRecord]:
    return [record(per_gpu, gpus, **changes) for _ in range(count)]


def theory(**changes: Any) -> Theory:
    """0.1 s per iteration of 10 samples on one GPU of type A: 100 samples/s."""
    values: dict[str, Any] = {
        "workload": RESNET,
        "gpu_type": A,
        "inference": False,
        "pattern": 2,
        "batch_size": 10.0,
        "params": 1e6,
        "t_f": 0.02,
        "t_b": 0.05,
        "t_u": 0.01,
        "p_cache": 1.0,
        "mu_cache": 0.02,
        "sigma_cache": 0.001,
        "mu_load": 0.0,
        "sigma_load": 0.0,
        "w_cache": 0.0,
        "w_load": 0.0,
        "records": 4,
        "iterations": 120,
        "at": NOW,
    }
    return Theory(**values | changes)


def knowledge(*reports: ThroughputRecord, fits: tuple[Theory, ...] = ()) -> Knowledge:
    """Knowledge with T_c of a million parameters: 0.1 s by the link, 0.25 s by the network."""
    bandwidth = (Bandwidth(A, 1e7, 4e6, NOW),)
    return Knowledge(records=reports, theory=fits, bandwidth=bandwidth)


def estimate_of(knowledge: Knowledge, **settings: Any) -> SpeedTables:
    return Estimator(NODES, knowledge, EstimatorSettings(**settings), NOW).estimate(RESNET)


PAPER = IterationModel(paper_exact=True)


def process(job: str = "1", world: int = 1, at: float = NOW, **changes: Any) -> PhaseRecord:
    """100 iterations of one process, all with the same data time: the middle of bin 100."""
    values: dict[str, Any] = {
        "inference": False,
        "on_device": False,
        "pattern": 2,
        "batch_size": 10.0,
        "params": 1e6,
        "t_f": 0.02,
        "t_b": 0.05,
        "t_u": 0.01,
        "t_w": 0.0,
        "iterations": 100,
        "data_seconds": 1.6,
        "data_bins": {100: 100},
        "backward_by_data": {100: 5.0},
    }
    phases = Phases(**values | changes)
    return PhaseRecord(RESNET, A, JobId(job), 0, NodeName("n0"), 0, 77, world, at, phases)
