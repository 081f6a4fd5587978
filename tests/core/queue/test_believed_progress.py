"""A report of progress counts as far as the GPU time that Slurm gave the job supports it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.queue.progress import FASTER, SLOWER, progress
from hopsd.core.queue.run_time import by_declared
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.reading import SlurmState

A100, V100 = GpuType("a100"), GpuType("v100")
SPEEDS = {A100: ThroughputTable({1: 10.0, 4: 8.0}, {2: 4.0}), V100: ThroughputTable({1: 2.0})}
NEW = JobRecord(
    JobId("1"), UserName("eve"), "train", "hops:reqs=4", WorkloadName("w"), submit=0.0, seen=0.0,
    state=SlurmState.RUNNING,
)  # fmt: skip


def record_after(
    seconds: float, *, gpus: int = 1, gpu_type: GpuType = A100, says: float = 0.0
) -> JobRecord:
    return replace(
        NEW,
        run_seconds=seconds,
        attained_gpu_seconds=seconds * gpus,
        run_seconds_by_type={gpu_type: seconds},
        samples_done=says,
    )


def test_an_honest_report_counts_in_full() -> None:
    training = progress(record_after(100.0, says=1000.0), SPEEDS)
    assert (training.samples, training.due) == (1000.0, 1000.0)


def test_a_job_that_has_not_run_owes_no_progress() -> None:
    assert progress(NEW, SPEEDS).due == 0.0


def test_a_report_beyond_what_the_gpus_can_have_trained_is_cut_to_that() -> None:
    """Regression: jobs that always reported 99.9 % done were always the next ones to end."""
    claim = progress(record_after(100.0, says=999_000.0), SPEEDS)
    assert claim.samples == FASTER * 1000.0


@pytest.mark.parametrize("says", [0.0, 9.99])
def test_a_silent_or_stalled_job_still_outlives_its_claim(says: float) -> None:
    claim = 10.0
    training = progress(record_after(100.0, says=says), SPEEDS)
    assert training.due == 1000.0
    assert by_declared(claim, training.due) > 5.0 * training.due


def test_a_job_a_third_slower_than_its_measured_speed_is_believed() -> None:
    """Evaluations and checkpoints take GPU time that no speed includes."""
    says = 1000.0 / SLOWER
    assert progress(record_after(100.0, says=1.01 * says), SPEEDS).due == 1.01 * says
    assert progress(record_after(100.0, says=0.99 * says), SPEEDS).due == 1000.0


def test_spread_gpus_get_the_benefit_of_the_doubt() -> None:
    spread = progress(record_after(100.0, gpus=4, says=1e9), SPEEDS)
    assert spread.samples == FASTER * 100.0 * 4 * 10.0  # as fast as a single GPU
    assert progress(record_after(100.0, gpus=4), SPEEDS).due == 100.0 * 4 * 4.0
    assert progress(record_after(100.0, gpu_type=V100), SPEEDS).due == 200.0


def test_a_job_that_makes_several_gpus_look_slow_is_not_held_to_it() -> None:
    """Regression: such a job looked like the last one to end, which `tail_weight` starts sooner."""
    slow = {A100: ThroughputTable({1: 10.0, 4: 1e-9}, {2: 1e-9})}
    assert progress(record_after(100.0, gpus=4, says=3000.0), slow).samples == 3000.0


def test_slow_servers_and_restarts_excuse_delays_up_to_a_point() -> None:
    assert progress(record_after(100.0), SPEEDS, [1.0, 0.8]).due == pytest.approx(800.0)
    assert progress(record_after(100.0), SPEEDS, [1e-9]).due == pytest.approx(500.0)
    restarted_record = replace(record_after(100.0), restart_seconds=12.5, restarts=1)
    assert progress(restarted_record, SPEEDS).due == 750.0
    assert progress(replace(restarted_record, restart_seconds=1e300), SPEEDS).due == 500.0


@pytest.mark.parametrize(
    "speeds", [{}, {A100: ThroughputTable({1: 1.0}, source="assumed")}], ids=["none", "assumed"]
)
def test_reports_are_not_doubted_without_a_measured_speed(
    speeds: dict[GpuType, ThroughputTable],
) -> None:
    assert progress(record_after(100.0, says=1e12), speeds).samples == 1e12


amounts = st.floats(0.0, 1e15)


@given(
    amounts,
    st.floats(0.0, 1e9, allow_subnormal=False),
    st.integers(1, 4096),
    st.floats(1e-9, 1e9),
)
def test_any_claim_counts_within_the_tolerance(
    says: float, seconds: float, gpus: int, speed: float
) -> None:
    training = progress(
        record_after(seconds, gpus=gpus, says=says), {A100: ThroughputTable({1: speed}, {2: speed})}
    )
    possible = seconds * gpus * speed if seconds > 0.0 else inf
    assert 0.0 <= training.samples <= min(says, FASTER * possible * (1 + 1e-9))
    assert training.samples <= training.due <= max(says, possible)
