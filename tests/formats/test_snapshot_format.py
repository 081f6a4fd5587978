"""Reading a snapshot: which defaults are filled in, and what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from documents import SNAPSHOT

from hopsd.errors import FormatError
from hopsd.formats.snapshot import read_snapshot
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import JobState
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.model.rules import Limit, Rules, ShapeRule

Json = dict[str, Any]


def snapshot_with(**job: Any) -> Json:
    document = copy.deepcopy(SNAPSHOT)
    document["jobs"][0].update(job)
    return document


def refusal(document: Json | str) -> str:
    with pytest.raises(FormatError) as error_info:
        read_snapshot(document if isinstance(document, str) else json.dumps(document))
    return str(error_info.value)


def test_optional_keys_may_be_omitted() -> None:
    document = snapshot_with()
    del document["settings"]
    for key in ("samples", "state", "restart_seconds", "time_limit_seconds", "server_factor"):
        del document["jobs"][0][key]
    snapshot, settings = read_snapshot(json.dumps(document))
    [job] = snapshot.jobs
    assert settings == PlanSettings()
    assert (job.samples, job.state, job.restart_seconds) == (None, JobState.WAITING, 0.0)
    assert (job.time_limit_seconds, job.server_factor) == (None, {})


def test_requirements_are_deduplicated() -> None:
    snapshot, _ = read_snapshot(json.dumps(snapshot_with(reqs=[4, 1, 2, 4])))
    assert snapshot.jobs[0].reqs == (1, 2, 4)


@pytest.mark.parametrize("running", [{}, None])
def test_a_job_without_gpus_waits(running: object) -> None:
    snapshot, _ = read_snapshot(json.dumps(snapshot_with(running=running)))
    assert snapshot.jobs[0].running == Allocation()


def test_lambda_defaults_to_2_for_finish_time_fairness() -> None:
    def lam(**settings: Any) -> float:
        return read_snapshot(json.dumps({**SNAPSHOT, "settings": settings}))[1].lam

    assert lam(priority="ftf") == 2.0
    assert lam(priority="ftf", **{"lambda": 1}) == 1.0
    assert lam(priority="fifo") == lam() == 1.0
    assert read_snapshot(json.dumps(SNAPSHOT))[1].priority is PriorityName.LATENCY_RATIO


def test_an_empty_cluster_and_an_empty_queue_are_accepted() -> None:
    snapshot, _ = read_snapshot(json.dumps({**SNAPSHOT, "nodes": [], "jobs": []}))
    assert snapshot.nodes == snapshot.jobs == ()


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"age": 0}, "jobs[0].age: 0, but it must be a finite number, 0.001 or more"),
        ({"wait": -1}, "jobs[0].wait: -1, but it must be a finite number, 0 or more"),
        ({"wait": True}, "jobs[0].wait: True, but"),
        ({"id": 17}, "jobs[0].id: 17, but it must be a text that is not empty"),
        ({"id": "\ud800"}, "jobs[0].id: '\\ud800', but it must be text that UTF-8 can hold"),
        ({"reqs": []}, "jobs[0].reqs: a list, but it must be a list of one GPU count or more"),
        ({"reqs": [1, 2.5]}, "jobs[0].reqs[1]: 2.5, but it must be a whole number, 1 or more"),
        ({"reqs": [10**400]}, "jobs[0].reqs[0]: "),
        ({"samples": 10**400}, "jobs[0].samples: "),
        ({"running": {"n9": 1}}, "jobs[0].running.n9: there is no node 'n9' in nodes"),
        ({"samples": 1e-320}, "jobs[0].samples: 1e-320, but it must be a finite number, 0.001"),
        ({"age": 5e-324}, "jobs[0].age: 5e-324, but it must be a finite number, 0.001 or more"),
        ({"running": {"n3": 3}}, "nodes[1].idle: 6 idle GPUs and 3 that jobs run on are more"),
        ({"state": "running"}, "jobs[0].state: 'running', but it must be one of waiting, held"),
        ({"throughput": {"a": {}}}, "jobs[0].throughput.a.aggregated: missing"),
        ({"throughput": {"a": {"aggregated": {}}}}, "jobs[0].throughput.a.aggregated: an object"),
        (
            {"throughput": {"a": {"aggregated": {"one": 1}}}},
            "jobs[0].throughput.a.aggregated.one: 'one', but it must be a key that is a count",
        ),
        ({"server_factor": {"n0": 10**400}}, "jobs[0].server_factor.n0: "),
        ({"server_factor": {"n0": 0.0}}, "jobs[0].server_factor.n0: 0.0, but it must be a finite"),
        ({"server_factor": {"n\ud800": 1}}, "jobs[0].server_factor.n"),
        ({"colour": 1}, "jobs[0].colour: unknown key; the keys are id, user, submit, wait"),
    ],
)
def test_a_bad_job_is_refused_by_path(job: Json, message: str) -> None:
    assert refusal(snapshot_with(**job)).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lambda": -1}, "settings.lambda: -1, but it must be a finite number, 0 or more"),
        (
            {"gap": 1.5},
            "settings.gap: 1.5, but it must be a finite number, 0 or more and at most 1",
        ),
        ({"time_limit": 0}, "settings.time_limit: 0, but it must be a finite number, above 0"),
        (
            {"tail_weight": 11},
            "settings.tail_weight: 11, but it must be a finite number, 0 or more and at most 10",
        ),
        ({"priority": "lifo"}, "settings.priority: 'lifo', but it must be one of latency_ratio"),
        ({"lamda": 1}, "settings.lamda: unknown key; the keys are lambda, sigma"),
    ],
)
def test_bad_settings_are_refused_by_path(settings: Json, message: str) -> None:
    assert refusal({**SNAPSHOT, "settings": settings}).startswith(message)


def test_duplicate_names_are_refused() -> None:
    document = snapshot_with()
    document["jobs"].append(document["jobs"][0] | {"running": {}})
    assert refusal(document) == "jobs[1]: the job '17' is already at jobs[0]"
    document = snapshot_with()
    document["nodes"][0]["name"] = "n3"
    assert refusal(document) == "nodes[1]: the node 'n3' is already at nodes[0]"


def test_more_idle_gpus_than_gpus_are_refused() -> None:
    document = snapshot_with()
    document["nodes"][0]["idle"] = 9
    assert refusal(document) == "nodes[0].idle: 9, but it must be at most the node's 8 GPUs"


def test_a_job_without_rules_has_none() -> None:
    document = copy.deepcopy(SNAPSHOT)
    for key in ("nodes", "shape", "per_node", "exclusive", "cores_per_gpu", "memory_mb_per_gpu"):
        del document["jobs"][0][key]
    del document["jobs"][0]["memory_mb_per_node"], document["limits"]
    snapshot, _ = read_snapshot(json.dumps(document))
    assert snapshot.jobs[0].rules == Rules()
    assert snapshot.limits == ()
    assert (snapshot.nodes[0].cores, snapshot.nodes[0].idle_memory_mb) == (None, None)


def test_rules_and_limits_are_read() -> None:
    snapshot, _ = read_snapshot(json.dumps(SNAPSHOT))
    assert snapshot.jobs[0].rules == Rules(
        frozenset({NodeName("n0"), NodeName("n3")}), ShapeRule.EVEN, 1, False, 7.5, 16000, 100.5
    )
    assert snapshot.limits == (Limit("QOS small, alice", frozenset({JobId("17")}), 4, None),)
    assert (snapshot.nodes[1].cores, snapshot.nodes[1].idle_cores) == (64, 48)
    assert (snapshot.nodes[1].memory_mb, snapshot.nodes[1].idle_memory_mb) == (512000, 480000.5)


def test_counts_that_are_not_multiples_of_per_node_are_dropped() -> None:
    snapshot, _ = read_snapshot(json.dumps(snapshot_with(reqs=[1, 2, 3, 4], per_node=2)))
    assert snapshot.jobs[0].reqs == (2, 4)
    snapshot, _ = read_snapshot(json.dumps(snapshot_with(reqs=[1, 3], per_node=2)))
    assert snapshot.jobs[0].rules.nodes == frozenset()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"shape": "any"}, 'per_node: 1, but it must be left out or null where shape is "any"'),
        ({"shape": "ring"}, "shape: 'ring', but it must be one of any, even, node"),
        ({"per_node": 0}, "per_node: 0, but it must be a whole number, 1 or more"),
        ({"nodes": ["n0", 1]}, "nodes[1]: 1, but it must be a text that is not empty"),
        ({"cores_per_gpu": -1}, "cores_per_gpu: -1, but it must be a finite number, 0 or more"),
    ],
)
def test_contradicting_rules_are_refused_by_path(rules: Json, message: str) -> None:
    assert refusal(snapshot_with(**rules)).startswith(f"jobs[0].{message}")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"idle_cores": 1}, "idle_cores: 1, but it must be left out where the node's cores is"),
        ({"idle_memory_mb": 1}, "idle_memory_mb: 1, but it must be left out where"),
        ({"cores": 4, "idle_cores": 5}, "idle_cores: 5, but it must be at most the node's cores"),
    ],
)
def test_idle_cores_and_memory_must_not_exceed_the_total(node: Json, message: str) -> None:
    document = copy.deepcopy(SNAPSHOT)
    document["nodes"][0].update(node)
    assert refusal(document).startswith(f"nodes[0].{message}")


def test_rules_may_name_absent_nodes_and_limits_absent_jobs() -> None:
    document = {**snapshot_with(nodes=["gone"]), "limits": [{"name": "QOS", "jobs": ["ended"]}]}
    snapshot, _ = read_snapshot(json.dumps(document))
    assert snapshot.jobs[0].rules.nodes == {"gone"}
    assert snapshot.limits == (Limit("QOS", frozenset({JobId("ended")})),)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "true", '"1"'])
def test_numbers_must_be_finite_numbers(number: str) -> None:
    text = json.dumps(SNAPSHOT).replace('"wait": 4000', f'"wait": {number}')
    assert refusal(text).startswith("jobs[0].wait: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a JSON document: "),
        ("[" * 100_000, "not a JSON document: "),
        ("1" * 5000, "not a JSON document: "),
        ("[]", "the document: a list, but it must be an object"),
        ('{"now": 1, "now": 2}', "the key 'now' is given twice in one object"),
    ],
)
def test_text_that_is_not_a_snapshot_is_refused(text: str, message: str) -> None:
    assert refusal(text).startswith(message)
