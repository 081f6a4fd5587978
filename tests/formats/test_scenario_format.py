"""Reading the simulator's input files."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from documents import CLUSTER, THEORY, WORKLOAD

from hopsd.core.speed.throughput import theory_per_gpu
from hopsd.errors import FormatError
from hopsd.formats.scenario import read_cluster, read_workload
from hopsd.formats.theory import read_theory
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Workload

Json = dict[str, Any]


def workload(document: Json) -> Workload:
    return read_workload(json.dumps(document), read_cluster(json.dumps(CLUSTER)))


def test_a_cluster_keeps_the_order_of_its_nodes() -> None:
    cluster = read_cluster(json.dumps(CLUSTER))
    assert [(s.name, s.gpus) for s in cluster.servers] == [("n0", 8), ("n1", 4)]
    assert cluster.links["rtx3090"].b_net == 1.1e9


def test_a_table_is_used_unchanged() -> None:
    assert workload(WORKLOAD).throughput["resnet50"] == {
        "rtx3090": ThroughputTable({1: 100.0, 2: 98.0, 8: 90.0}, {2: 70.0, 3: 65.0})
    }


def test_basic_times_become_a_table_of_all_gpu_counts_of_a_server() -> None:
    table = workload(WORKLOAD).throughput["vgg"]["rtx3090"]
    times = read_theory(json.dumps(THEORY))
    assert table.aggregated == {n: theory_per_gpu(times, n, 1) for n in range(1, 9)}
    assert table.distributed == {2: theory_per_gpu(times, 8, 4)}
    assert table.source == "theory"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"workload": "bert"}, "jobs[0].workload: 'bert', but it must be a workload of throughput"),
        ({"samples": 0}, "jobs[0].samples: 0, but it must be a finite number, above 0"),
        (
            {"restart_seconds": -1},
            "jobs[0].restart_seconds: -1, but it must be a finite number, 0 or more",
        ),
        ({"batch_size": 0}, "jobs[0].batch_size: 0, but it must be a whole number, 1 or more"),
    ],
)
def test_a_bad_job_is_refused_by_path(job: Json, message: str) -> None:
    document = copy.deepcopy(WORKLOAD)
    document["jobs"][0].update(job)
    with pytest.raises(FormatError) as error_info:
        workload(document)
    assert str(error_info.value) == message


@pytest.mark.parametrize(("fields", "read"), [({}, None), ({"restart_seconds": None}, None),
                                             ({"restart_seconds": 0}, 0.0)])  # fmt: skip
def test_a_job_may_give_its_restart_time(fields: Json, read: float | None) -> None:
    document = copy.deepcopy(WORKLOAD)
    assert workload(document).jobs[0].restart_seconds == 12.5
    del document["jobs"][0]["restart_seconds"]
    document["jobs"][0].update(fields)
    assert workload(document).jobs[0].restart_seconds == read


def test_factors_of_an_unknown_workload_are_refused() -> None:
    with pytest.raises(FormatError, match=r"^server_factor.bert: there is no workload 'bert'"):
        workload({**WORKLOAD, "server_factor": {"bert": {}}})


def test_a_cluster_without_nodes_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^nodes: a list, but it must be a list of one node"):
        read_cluster('{"nodes": []}')
