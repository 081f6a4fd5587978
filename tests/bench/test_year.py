"""`hopsctl simulate` reads the files of the year's workload."""

from __future__ import annotations

import json

import pytest

from bench.year import cluster_document, workload_document, year
from hopsd.formats.scenario import read_cluster, read_workload
from hopsd.sim.facts import facts_of


def test_the_files_contain_the_whole_year() -> None:
    cluster, workload = year(jobs=200, load=0.8, seed=3)
    read = read_cluster(json.dumps(cluster_document(cluster)))
    assert read == cluster
    reread = read_workload(json.dumps(workload_document(workload)), read)
    assert (reread.jobs, reread.server_factor) == (workload.jobs, workload.server_factor)
    for name, tables in workload.throughput.items():
        for gpu_type, table in tables.items():
            assert reread.throughput[name][gpu_type].aggregated == table.aggregated
    assert cluster.gpus == 10_240
    mean = sum(facts.gpu_seconds for facts in facts_of(cluster, workload)) / 200
    assert mean * 100_000 == pytest.approx(0.8 * cluster.gpus * 365 * 86_400, rel=1e-3)
