"""Gavel's table of measurements as a workload."""

from __future__ import annotations

import json

import pytest

from hopsd.errors import FormatError
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.scenario import Cluster, Server
from hopsd.policies.registry import get
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.measured import measured_workload, tables_of
from hopsd.sim.study import play

# Published steps per second of two models.
DOCUMENT = json.dumps(
    {
        "v100": {
            "('A3C', 1)": {"null": 7.2},
            "('ResNet-50 (batch size 64)', 1)": {"null": 4.39, "('A3C', 1)": [3.0, 6.0]},
            "('ResNet-50 (batch size 64)', 2)": {"null": 7.92},
            "('ResNet-50 (batch size 64)', 8)": {"null": 17.3},
        },
        "v100_unconsolidated": {
            "('ResNet-50 (batch size 64)', 1)": {"null": 4.39},
            "('ResNet-50 (batch size 64)', 2)": {"null": 6.87},
        },
    }
)
V100 = GpuType("v100")
CLUSTER = Cluster(tuple(Server(NodeName(f"v{i}"), V100, 8) for i in range(4)))


def test_steps_of_all_gpus_become_samples_of_one() -> None:
    tables, batches = tables_of(DOCUMENT)
    name = WorkloadName("ResNet-50-64")
    assert (list(tables), batches) == ([name], {name: 64})
    table = tables[name][V100]
    assert table.aggregated == pytest.approx({1: 4.39 * 64, 2: 3.96 * 64, 8: 17.3 / 8 * 64})
    assert table.distributed == pytest.approx({2: 6.87 / 2 * 64})


def test_a_generated_workload_runs() -> None:
    load = measured_workload(DOCUMENT, CLUSTER, seed=1, jobs=20, rate_per_hour=60.0)
    result = play("fifo", get("fifo"), CLUSTER, load, SimulationSettings())
    assert result.unfinished == []


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"v100": {"ResNet": {"null": 1}}}', "is no key such as"),
        ('{"v100": {"(\'LM\', 1)": {}}}', "null: missing"),
        ('{"k80": {}}', "GPU type 'v100' was not measured"),
    ],
)
def test_other_documents_are_refused(document: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        measured_workload(document, CLUSTER, 0, None, None)
