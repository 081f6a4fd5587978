"""`hopsctl throughput`, over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from speed_values import NODES, NOW, RESNET, A, knowledge, record, records, theory

from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.ctl.user.throughput import throughput
from hopsd.errors import InputError
from hopsd.learning.learnt import known_workloads, workload_document
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Knowledge
from hopsd.serve.socket import LocalServer, Request

KNOWLEDGE = knowledge(
    *records(3, 80.0),
    record(60.0, 2),
    *records(3, 40.0, 8, nodes=2),
    *records(3, 72.0, node=NodeName("n1")),
    fits=(theory(p_cache=0.75, mu_load=0.2, sigma_load=0.02),),
)


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    def answer(request: Request) -> Any:
        requested_name = request.arguments.get("workload")
        if requested_name is None:
            return {"workloads": known_workloads(KNOWLEDGE)}
        return workload_document(
            WorkloadName(requested_name), KNOWLEDGE, NODES, EstimatorSettings(), NOW
        )

    server = LocalServer(tmp_path / "hopsd.sock", answer)
    yield tmp_path / "hopsd.sock"
    server.close()


def run(socket: Path, *arguments: str) -> Result:
    return CliRunner().invoke(throughput, ["--socket", str(socket), *arguments])


def rows(output: str) -> dict[str, str]:
    """Return the lines of the first table by their first cell."""
    lines = output.partition("resnet on v100")[0].splitlines()
    return {line.strip().split("  ")[0]: line for line in lines if line.strip()}


def test_a_workload_is_shown_layer_by_layer(socket: Path) -> None:
    result = run(socket, "resnet")
    assert result.exit_code == 0, result.output
    by_shape = rows(result.output)
    assert "type, 6 records" in by_shape["1 GPU"]
    assert "n0:80 (3)" in by_shape["1 GPU"]
    assert "[60 (1)]" in by_shape["2 GPUs"]
    assert "theory, 4 records, scaled by" in by_shape["2 GPUs"]
    assert "type, 3 records" in by_shape["8 on 2 servers"]
    assert "theory, 4 records, scaled by" in by_shape["2 on 2 servers"]
    assert "75% 20, 25% 200" in result.output


def test_the_workload_as_json(socket: Path) -> None:
    document = json.loads(run(socket, "resnet", "--json").output)
    shapes = {(s["kind"], s.get("gpus", s["count"])): s for s in document["types"][0]["shapes"]}
    assert document["types"][0]["gpu_type"] == "a100"
    assert shapes["gpus", 1]["per_gpu"] == pytest.approx(76.0)
    assert shapes["gpus", 1]["type"]["records"] == 6
    assert shapes["gpus", 1]["entity"]["n1"]["per_gpu"] == 72.0
    assert shapes["gpus", 1]["theory"] == pytest.approx(10 / (0.75 * 0.1 + 0.25 * 0.28))
    assert shapes["servers", 8]["type"]["per_gpu"] == 40.0
    assert shapes["servers", 2]["type"] is None
    low, high = shapes["servers", 2]["between"]
    assert low < shapes["servers", 2]["per_gpu"] < high
    assert [server["node"] for server in document["servers"]] == ["n0", "n1"]


def test_the_known_workloads_are_listed(socket: Path) -> None:
    assert "resnet" in run(socket).output
    (row,) = json.loads(run(socket, "--json").output)["workloads"]
    assert (row["workload"], row["measured"], row["records"]) == ("resnet", ["a100"], 10)
    assert row["theory"] == ["a100"]


def test_an_unknown_workload_is_an_error_with_suggestions(socket: Path) -> None:
    error = run(socket, "resnets").exception
    assert isinstance(error, InputError)
    assert str(error) == "workload 'resnets' is not known; did you mean resnet?"


def test_an_unambiguous_prefix_of_a_name_is_enough() -> None:
    tables = {GpuType("a100"): ThroughputTable({1: 9.0})}
    names = ("ann/train/a.sh@0123+4567", "ann/train/b.sh@0123+4567", "ann/train")
    knowledge = Knowledge(tables={WorkloadName(name): tables for name in names})

    def look_up(name: str) -> Any:
        return workload_document(WorkloadName(name), knowledge, NODES, EstimatorSettings(), NOW)

    assert look_up("ann/train/b")["workload"] == names[1]
    assert look_up("ann/train")["workload"] == names[2]
    with pytest.raises(InputError, match=r"matches 2: ann/train/a\.sh@0123\+4567, ann/train/b"):
        look_up("ann/train/")


def test_an_operators_table_is_marked_as_final() -> None:
    knowledge = Knowledge(tables={RESNET: {GpuType("a100"): ThroughputTable({1: 9.0, 4: 8.0})}})
    document = workload_document(RESNET, knowledge, NODES, EstimatorSettings(), NOW)
    assert document["final"]
    (kind,) = document["types"]
    assert [(s["count"], s["per_gpu"], s["source"]) for s in kind["shapes"]] == [
        (1, 9.0, "table"),
        (4, 8.0, "table"),
    ]
    assert kind["gpu_type"] == A
