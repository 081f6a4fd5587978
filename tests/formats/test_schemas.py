"""The published schemas and the readers accept the same documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import CLUSTER, HEALTH, SNAPSHOT, THEORY, WORKLOAD, damage
from jsonschema import Draft202012Validator

from hopsd.errors import FormatError
from hopsd.formats.health import read_health
from hopsd.formats.scenario import read_cluster, read_workload
from hopsd.formats.snapshot import read_snapshot
from hopsd.formats.theory import read_theory

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"
BEYOND_A_SCHEMA = (
    "at most the node's",
    "that jobs run on are more than",
    "is already at",
    "there is no node",
    "must be left out",
    "there is no workload",
    "must be a workload of throughput",
    "an iteration takes some time",
    "but it must be a finite number, 0 or more",  # a case that occurs needs a mean
)
"""Messages about what only the reader can refuse: values that do not fit each other."""

FORMATS: dict[str, tuple[Any, Callable[[str], object]]] = {
    "snapshot": (SNAPSHOT, read_snapshot),
    "theory": (THEORY, read_theory),
    "health-records": (HEALTH, read_health),
    "cluster": (CLUSTER, read_cluster),
    "workload": (WORKLOAD, lambda t: read_workload(t, read_cluster(json.dumps(CLUSTER)))),
}


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_every_schema_is_valid(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.mark.parametrize("name", FORMATS)
def test_schema_and_reader_accept_the_complete_document(name: str) -> None:
    document, read = FORMATS[name]
    validator(name).validate(document)
    read(json.dumps(document))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_schema_and_reader_refuse_the_same_documents(name: str) -> None:
    document, read = FORMATS[name]
    schema = validator(name)
    wrong, refusals = [], 0
    for path, spoilt in damage(document):
        error = ""
        try:
            read(json.dumps(spoilt))
        except FormatError as refusal:
            error = str(refusal)
            refusals += 1
        if schema.is_valid(spoilt) and error and not any(m in error for m in BEYOND_A_SCHEMA):
            wrong.append(f"{path}: the reader alone refuses: {error}")
        if not schema.is_valid(spoilt) and not error:
            wrong.append(f"{path}: the schema alone refuses {spoilt}")
    assert wrong == []
    assert refusals > 100


@pytest.mark.parametrize("name", FORMATS)
def test_a_refusal_names_the_path_of_the_wrong_value(name: str) -> None:
    document, read = FORMATS[name]
    wrong = []
    for path, spoilt in damage(document):
        try:
            read(json.dumps(spoilt))
        except FormatError as refusal:
            refused_path = str(refusal).split(":")[0]
            if not (
                refused_path.startswith(path)
                or path.startswith(refused_path)
                or refused_path in BLAMED_PATHS
            ):
                wrong.append(f"{path} is spoilt: {refusal}")
    assert wrong == []


BLAMED_PATHS = (
    "nodes[0].idle",
    "nodes[1].idle",
    "nodes[1].idle_cores",
    "nodes[1].idle_memory_mb",
    "jobs[0].running.n3",
    "jobs[0].per_node",
    "records[0].nodes.n0",
    "records[0].nodes.n1",
    "records[0].ranks[0].node",
    "ends[0].nodes.n0",
    "jobs[0].workload",
    "t_f",
    "server_factor.resnet50",
)
"""Paths of values that do not fit another one: the message may name the other one instead."""
