"""Server factors of many jobs at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopsd.core.placement.factors import Factors
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable

A = GpuType("a")
NODES = [Node(NodeName(f"n{i}"), A, 8, 8) for i in range(2)]
JOB = Job(JobId("1"), UserName("u"), 0.0, 0.0, (1,), {A: ThroughputTable({1: 1.0})})


def test_jobs_with_equal_factors_are_of_one_class() -> None:
    """Each workload of a file has a separate mapping, so identity cannot be used."""
    server_factors = [{NodeName("n0"): 0.9}, {NodeName("n0"): 0.9}, {NodeName("n1"): 0.9}, {}, {}]
    factors = Factors([replace(JOB, server_factor=factor) for factor in server_factors], NODES)
    assert factors.kinds_of(np.arange(5)) == 3
    assert factors.kinds_of(np.array([0, 1])) == 1
    slowest = factors.slowest_on_shapes(np.arange(5), np.array([[0], [1]]), 1)
    assert slowest.tolist() == [[0.9, 1.0], [0.9, 1.0], [1.0, 0.9], [1.0, 1.0], [1.0, 1.0]]
