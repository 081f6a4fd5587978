"""`hopsctl health --records`: what it reads, and what it prints."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from documents import HEALTH

from hopsd.errors import FormatError
from hopsd.formats.health import health_json, read_health
from hopsd.health.records import Health, Lemon, SharedNode, SlowNode
from hopsd.model.ids import NodeName


def changed_record(**record: Any) -> str:
    document = copy.deepcopy(HEALTH)
    first: dict[str, Any] = document["records"][0]  # type: ignore[index]
    del first["ranks"]  # records without ranks take a faster path
    first.update(record)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"nodes": {"n9": 1}}, "records[0].nodes.n9: there is no node 'n9' in nodes"),
        ({"nodes": {"n0": 5}}, "records[0].nodes.n0: 5, but it must be at most the node's 4 GPUs"),
        ({"nodes": {}}, "records[0].nodes: an object, but it must be an object of one node"),
        ({"nodes": {"n0": 1.5}}, "records[0].nodes.n0: 1.5, but it must be a whole number, 1"),
        ({"seconds_per_iteration": 0}, "records[0].seconds_per_iteration: 0, but it must be"),
        ({"seconds_per_iteration": True}, "records[0].seconds_per_iteration: True, but"),
        ({"seconds_per_iteration": 1e300}, "records[0].seconds_per_iteration: 1e+300, but"),
        ({"seconds_per_iteration": float("nan")}, "records[0].seconds_per_iteration: nan, but"),
        ({"at": -1}, "records[0].at: -1, but it must be a finite number, 0 or more and at most"),
        ({"job": 17}, "records[0].job: 17, but it must be a text"),
        ({"workload": ""}, "records[0].workload: '', but it must be a text that is not empty"),
        ({"speed": 3}, "records[0].speed: unknown key; the keys are at, workload, job, nodes"),
        (
            {"ranks": [{"node": "n9", "compute": 1, "wait": 0}]},
            "records[0].ranks[0].node: there is no node 'n9' in the record's nodes",
        ),
    ],
)
def test_a_bad_record_is_refused_by_name(record: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as refusal:
        read_health(changed_record(**record))
    assert str(refusal.value).startswith(message)


def test_both_parsers_give_the_same_record() -> None:
    quick = read_health(changed_record(workload="w1")).records[0]
    slow = read_health(changed_record(workload="w\N{LATIN SMALL LETTER E WITH ACUTE}")).records[0]
    assert quick.workload == "w1"
    assert (quick.at, quick.job, quick.nodes) == (slow.at, slow.job, slow.nodes)
    assert (slow.nodes, slow.ranks) == ({"n0": 4, "n1": 2}, ())


def test_a_gpu_index_is_accepted_only_for_jobs_with_one_gpu() -> None:
    (single,) = read_health(changed_record(nodes={"n1": 1}, gpu=2)).records
    assert single.gpu == 2
    with pytest.raises(FormatError, match="gpu: 1, but it must be left out unless the job has"):
        read_health(changed_record(gpu=1))


def test_a_verdict_keeps_significant_digits() -> None:
    document = health_json(
        Health(
            (
                SlowNode(NodeName("n0"), 0.9512345, 0.94, 0.96, None),
                SlowNode(NodeName("n1"), 0.9, 0.89, 0.91, 5.0, gpu=2),
            ),
            (Lemon(NodeName("n1"), 9, 0.51234, 1.23456e-9),),
            (SharedNode(NodeName("n2"), 0.9412345, 7.0),),
        )
    )
    assert document == {
        "slow": [
            {"node": "n0", "factor": 0.95123, "low": 0.94, "high": 0.96, "since": None},
            {"node": "n1", "factor": 0.9, "low": 0.89, "high": 0.91, "since": 5.0, "gpu": 2},
        ],
        "lemons": [{"node": "n1", "failures": 9, "expected": 0.5123, "p": 1.23e-9}],
        "shared": [{"node": "n2", "factor": 0.94123, "since": 7.0}],
    }
