"""Which jobs of a workload are simulated: misfits are left out, nonsensical jobs are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_cases import NET, cluster, job, workload

from hopsd.core.submission.comment import parse
from hopsd.errors import InputError
from hopsd.model.ids import NodeName, WorkloadName
from hopsd.model.scenario import Workload, WorkloadJob
from hopsd.policies.registry import get
from hopsd.sim.admission import admit_jobs, horizon
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.speed import AllocationSpeeds
from hopsd.sim.study import play

CLUSTER = cluster(n0=4, n1=4)


def test_a_job_that_fits_nowhere_is_left_out_of_every_figure() -> None:
    """Job 1 needs 9 of 8 GPUs; job 3 needs 5, on servers of 4, and cannot be spread."""
    load = workload([job(1, 900.0, 9), job(2, 4000.0, 4), job(3, 100.0, 5)], spread=None)
    admitted_load, rejected_jobs = admit_jobs(CLUSTER, load, 360.0)
    assert rejected_jobs == ["1", "3"]
    assert [j.id for j in admitted_load.jobs] == ["2"]
    summary = play("fifo", get("fifo"), CLUSTER, admitted_load, SimulationSettings(100.0)).summary
    assert (summary.rounds, summary.avg_fragments, summary.max_latency_ratio) == (10, 0.0, 0.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (job(1, 10.0, *range(1, 400)), "job '1' could not be submitted: the comment has"),
        (job(1, 10.0, 70_000), "job '1' could not be submitted: reqs='70000'"),
        (job(1, 1e300, 1), "job '1': give"),
        (job(1, 10.0, 1, submit=1e15), "job '1': give"),
        (job(1, 10.0, 1, submit=-1e15), "job '0': give"),
    ],
)
def test_an_absurd_job_is_refused(wrong: WorkloadJob, message: str) -> None:
    with pytest.raises(InputError, match=message):
        admit_jobs(CLUSTER, workload([job(0, 10.0, 1), wrong]), 360.0)


def test_a_run_of_too_many_rounds_is_refused() -> None:
    later = workload([job(0, 10.0, 1), job(1, 10.0, 1, submit=1e6 + 1.0)])
    assert admit_jobs(CLUSTER, later, 2.0) == (later, [])
    with pytest.raises(InputError, match=r"job '1': .* within 12 days .* 1000000 rounds"):
        admit_jobs(CLUSTER, later, 1.0)


def test_a_workload_without_jobs_or_with_factors_of_unknown_servers_is_refused() -> None:
    with pytest.raises(InputError, match=r"no job$"):
        admit_jobs(CLUSTER, workload([]), 360.0)
    with pytest.raises(InputError, match="no job that fits"):
        admit_jobs(CLUSTER, workload([job(1, 10.0, 99)]), 360.0)
    load = replace(workload([job(1, 10.0)]), server_factor={NET: {NodeName("n9"): 1.0}})
    with pytest.raises(InputError, match="the cluster has no node 'n9'"):
        admit_jobs(CLUSTER, load, 360.0)


@given(st.lists(st.sampled_from(["workload-0", "workload-1", "workload-2", "a b", "ü", "net"]),
                min_size=1, unique=True))  # fmt: skip
def test_every_workload_gets_a_unique_name_valid_in_comments(names: list[str]) -> None:
    tables = dict.fromkeys(map(WorkloadName, names), workload([]).throughput[NET])
    speeds = AllocationSpeeds(CLUSTER, Workload(tables, ()))
    safe = [speeds.safe_name(name) for name in tables]
    assert len(set(safe)) == len(names)
    for name, comment_name in zip(names, safe, strict=True):
        assert parse(f"hops:reqs=1;workload={comment_name}").workload == comment_name
        assert name in {"a b", "ü", comment_name}


def test_a_run_ends_however_slow_a_server_is() -> None:
    """A run may last as long after the last submission as the longest run that is accepted."""
    late_load = workload([job(0, 10.0, 1), job(1, 10.0, 1, submit=9e5)])
    assert horizon(late_load, 1.0) == 2e6
    slow = workload([job(0, 10.0, 1)], factor={"n0": 1e-9, "n1": 1e-9})
    settings = SimulationSettings(1000.0, horizon=50_000.0)
    result = play("fifo", get("fifo"), CLUSTER, slow, settings)
    assert (result.unfinished, result.summary.rounds) == (["0"], 50)
