"""The best that a test can do that knows all variances."""

from __future__ import annotations

import numpy as np
import pytest

from bench.health.oracle import power, standard_error
from bench.health.site import SiteSettings
from hopsd.health.records import HealthNode, HealthRecords, SpeedRecord, Stay
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

SITE = SiteSettings(run=0.005, healthy=0.001, noise=0.02)
NODES = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(5))
REPORTS = 10


def site(servers: int) -> HealthRecords:
    """One run on each of the first ``servers``."""
    stays = tuple(Stay(JobId(node.name), (node.name,), 0.0, 3600.0) for node in NODES[:servers])
    records = tuple(
        SpeedRecord(300.0 + 60.0 * i, WorkloadName("w"), stay.job, {stay.nodes[0]: 4}, 1.0)
        for stay in stays
        for i in range(REPORTS)
    )
    return HealthRecords(3600.0, NODES, records, (), stays)


@pytest.mark.parametrize("other_runs", [1, 4])
def test_the_standard_error_of_a_run_includes_that_of_the_other_runs(other_runs: int) -> None:
    records = site(other_runs + 1)
    variance = SITE.run**2 + SITE.healthy**2 + SITE.noise**2 / REPORTS
    assert standard_error(records, SITE, NODES[0].name, 0.0) == pytest.approx(
        np.sqrt(variance * (1.0 + 1.0 / other_runs))
    )


def test_a_workload_that_ran_on_no_other_server_is_no_evidence() -> None:
    assert standard_error(site(1), SITE, NODES[0].name, 0.0) == np.inf


def test_a_healthy_server_is_named_as_often_as_the_false_alarm_rate_allows() -> None:
    assert power(0.0, 0.01, 1e-3) == pytest.approx(1e-3)
    assert power(0.05, np.inf, 1e-3) == pytest.approx(1e-3)
    assert power(0.05, 0.01, 1e-3) > 0.97
