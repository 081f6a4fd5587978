"""A bad job, report or node is set aside by name, and the round continues with the others."""

from __future__ import annotations

import gc
import json
import math
import os
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from controller_rig import A100, NOW, Rig, Store, job
from speed_values import theory

from hopsd.core.snapshot.build import build_snapshot
from hopsd.core.speed import inferred
from hopsd.core.submission.workload import workload_of
from hopsd.errors import StoreError, StoreUnavailableError
from hopsd.learning import fits, reader
from hopsd.model import isolation as bulkhead
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName, UserName, WorkloadName
from hopsd.model.isolation import find_failing_items
from hopsd.model.knowledge import Bandwidth, ThroughputRecord
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reading import JobReading, NodeReading, SlurmState
from hopsd.policies.hops import policy as hops
from hopsd.round.observation import Observation

HONEST = (job(1, "hops:reqs=1,2,4;samples=1e6"), job(2, "hops:reqs=2"))


@pytest.mark.parametrize("samples", ["1e-320", "3e307"])
def test_claims_beyond_any_plan_stop_nobody(tmp_path: Path, samples: str) -> None:
    """Such claims are refused at submission; a job that arrives in another way is set aside."""
    rig = Rig(tmp_path, *HONEST, job(3, f"hops:reqs=1;samples={samples}"))
    rig.tick(3)
    assert rig.port.running == {"1", "2"}
    assert f"samples='{samples}' is not valid" in rig.row("3")["reason"]


def test_a_report_from_1970_fails_no_round(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST)
    rig.tick()
    for pid in range(5):
        rig.report(pid=pid, first_step=1.0, at=10.0)
    rig.tick(3)
    assert rig.controller.document["reports_refused"] == 5
    assert "at: give a time of the last 366 days" in rig.store.events()[0].text


def test_absurd_stored_rates_do_not_stop_jobs_of_that_workload(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, job(1, "hops:reqs=1,2;workload=w"), HONEST[1])
    for time in (0.0, 1.0, 2.0):
        for gpus, rate in ((1, 100.0), (2, 1e-316), (4, 0.0), (8, math.inf)):
            record = ThroughputRecord(WorkloadName("w"), A100, NodeName("n0"), gpus, 1, rate, time)
            rig.store.add_throughput([record])
    rig.tick(3)
    assert rig.port.running == {"1", "2"}


@pytest.mark.parametrize("samples", [0.0, 1e-300])
def test_rates_of_almost_nothing_are_refused_by_name(tmp_path: Path, samples: float) -> None:
    rig = Rig(tmp_path, *HONEST)
    rig.tick()
    timed_part = {"iterations": 100, "samples": samples, "seconds": 5.0}
    rig.report(timed=timed_part)
    rig.tick(3)
    assert rig.store.knowledge().records == ()
    assert (rig.controller.document["reports_refused"] == 1) is (samples > 0)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_a_folder_named_like_a_report_leaks_no_descriptor(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST)
    rig.tick()
    for pid in range(3):
        folder = tmp_path / f"1.0.n0.0.{pid}.json"
        folder.mkdir()
        (folder / "full").touch()
    rig.tick()
    before = open_descriptors()
    rig.tick(20)
    # The reading thread may have the folder open at either moment; a leak adds one per tick.
    assert open_descriptors() < before + 10
    assert rig.controller.document["reports_refused"] == 3


def test_counts_too_large_for_every_partition_are_dropped_with_a_notice(tmp_path: Path) -> None:
    greedy_jobs = [job(10 + i, "hops:reqs=1-65536;num=256", submit=NOW) for i in range(12)]
    rig = Rig(tmp_path, job(1, "hops:reqs=1,2,4"), HONEST[1], *greedy_jobs)
    rig.tick(2)
    assert {"1", "2"} <= rig.port.running
    assert rig.row("10")["reqs"] == [1]
    assert "255 of its 256 GPU counts, from 258 on, are left out" in rig.row("10")["noticed"]
    assert "hold more than 16" in rig.row("10")["noticed"]
    assert len(json.dumps(rig.controller.document)) < 100_000


def test_a_job_larger_than_the_cluster_is_told_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST, job(3, "hops:reqs=64,128"))
    rig.tick()
    assert rig.row("3")["code"] == "no_configuration"
    assert "asks for 64 GPUs or more" in rig.row("3")["reason"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"submit": math.nan},
        {"time_limit_seconds": -1.0},
        {"time_limit_seconds": math.inf},
        {"restarts": -5},
        {"begin": 1e300},
    ],
)
def test_a_job_with_nonsensical_fields_is_set_aside_by_name(
    tmp_path: Path, wrong: dict[str, float]
) -> None:
    rig = Rig(tmp_path, *HONEST, job(3, "hops:reqs=1", **wrong))
    rig.tick(2)
    assert rig.port.running == {"1", "2"}
    (name,) = wrong
    assert f"set aside: Slurm reports its {name} as" in rig.row("3")["reason"]
    assert [event.job for event in rig.store.events() if event.kind == "set_aside"] == ["3"]


def test_a_node_with_nonsensical_fields_is_not_used(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST)
    rig.port.nodes += [NodeReading(NodeName("bad"), A100, -3, 32)]
    rig.tick()
    assert rig.port.running == {"1", "2"}
    (node,) = [node for node in rig.controller.document["nodes"] if node["name"] == "bad"]
    assert not node["usable"]
    assert "set aside: Slurm reports its gpus as -3" in node["state"]


def test_names_that_no_database_accepts_are_replaced(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST, job(3, "hops:reqs=1", name="a\0b\udcff", command="/\ud800"))
    rig.tick()
    assert rig.port.running == {"1", "2", "3"}
    assert rig.row("3")["name"] == "a?b?"


def stumble(culprit: str) -> Any:
    """The real policy, except that it fails on the job ``culprit``."""

    def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:
        if any(job.id == culprit for job in snapshot.jobs):
            raise OverflowError("integer division result too large for a float")
        return hops.plan(snapshot, settings)

    return plan


def test_a_job_that_breaks_the_planner_is_set_aside_and_retried_later(
    tmp_path: Path,
) -> None:
    jobs = [job(i, "hops:reqs=1") for i in range(1, 8)]
    rig = Rig(tmp_path, *jobs)
    rig.controller._policy = stumble("5")
    rig.tick()
    assert rig.port.running == {"1", "2", "3", "4", "6", "7"}
    assert "set aside: OverflowError: integer division" in rig.row("5")["reason"]
    assert [event.job for event in rig.store.events() if event.kind == "set_aside"] == ["5"]
    rig.tick()
    assert "hops cannot plan with it; it is tried again in" in rig.row("5")["reason"]
    rig.controller._policy = hops.plan  # type: ignore[assignment]
    rig.tick(4)
    assert "5" in rig.port.running


def test_a_running_job_that_breaks_the_planner_stays_in_place(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST)
    rig.tick()
    allocation = rig.port.jobs[JobId("1")].allocation
    rig.controller._policy = stumble("1")
    rig.port.now += 3600.0
    rig.tick()
    assert rig.port.jobs[JobId("1")].allocation == allocation
    assert "set aside" in rig.row("1")["noticed"]


def test_a_record_refused_by_the_store_does_not_block_others(tmp_path: Path) -> None:
    class Picky(Store):
        def save_jobs(self, records: Any) -> None:
            records = list(records)
            if any(record.name == "train2" for record in records):
                raise StoreError("PostgreSQL: integer out of range")
            super().save_jobs(records)

    rig = Rig(tmp_path, *HONEST)
    rig.controller._store = rig.store = Picky()  # type: ignore[assignment]
    rig.tick()
    assert rig.port.running == {"1"}
    assert "set aside: PostgreSQL: integer out of range" in rig.row("2")["reason"]


@pytest.mark.slow
def test_a_defect_in_learning_fails_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, *HONEST)

    def breaks(*_: object) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("hopsd.learning.reader.ReportReader.collect", breaks)
    rig.tick()
    rig.port.jobs[JobId("3")] = job(3, "hops:reqs=1")
    assert "no report of a job can be read: ZeroDivisionError" in rig.tick()
    assert "3" in rig.port.running


def test_a_job_whose_reports_break_a_step_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(reports: Any, jobs: Any) -> Any:
        if "1" in jobs:
            raise ArithmeticError("no")
        return real(reports, jobs)

    real = reader.samples_done
    monkeypatch.setattr(reader, "samples_done", picky)
    rig = Rig(tmp_path, *HONEST)
    rig.tick()
    bad, good = rig.report(1), rig.report(2)
    rig.tick()
    assert {r.workload.split("/")[1] for r in rig.store.knowledge().records} == {"train2"}
    assert not bad.exists()
    assert good.exists()
    assert "ArithmeticError: no" in rig.store.events()[0].text


def test_a_workload_that_cannot_be_fitted_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(records: Any, half_life: float) -> Any:
        if "train1" in records[0].workload:
            raise FloatingPointError("underflow")
        return real(records, half_life)

    real = fits.fit_users
    monkeypatch.setattr(fits, "fit_users", picky)
    rig = Rig(tmp_path, *HONEST)
    rig.tick()
    rig.report(1)
    rig.report(2)
    rig.tick()
    assert {fit.workload.split("/")[1] for fit in rig.store.knowledge().theory} == {"train2"}
    event_texts = [event.text for event in rig.store.events() if event.kind == "report_left_out"]
    assert event_texts == ["ann/train1/ on a100: FloatingPointError: underflow"]


@pytest.mark.long
@pytest.mark.slow
def test_history_is_pruned_even_if_rounds_fail(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST)
    rig.tick()
    old = JobRecord(
        JobId("9"), UserName("ann"), "old", "", WorkloadName("w"), 1.0, 2.0,
        SlurmState.COMPLETED, end=3.0,
    )  # fmt: skip
    rig.store.save_jobs([old])

    def breaks(*_: object) -> None:
        raise RuntimeError("always")

    rig.controller._policy = breaks  # type: ignore[assignment]
    rig.port.now += 7200.0
    rig.controller.tick()
    assert rig.store.job(JobId("9")) is None


@pytest.mark.long
@pytest.mark.slow
def test_consecutive_ticks_failing_with_one_defect_are_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, *HONEST)

    def breaks(*_: object) -> None:
        raise RuntimeError("always")

    rig.controller._policy = breaks  # type: ignore[assignment]
    sentences = [rig.controller.tick() for _ in range(3)]
    assert rig.controller.failing == 3
    assert sentences[2] == "a defect of hops, RuntimeError: always (3 ticks in a row)"
    rig.controller._policy = hops.plan  # type: ignore[assignment]
    rig.tick()
    assert rig.controller.failing == 0


@pytest.mark.parametrize("bad", [set(), {3}, {0, 31}, set(range(32)), {4, 5, 6, 20}])
def test_isolate_finds_exactly_the_culprits(bad: set[int]) -> None:
    tries = 0

    def attempt(items: Sequence[int]) -> int:
        nonlocal tries
        tries += 1
        if bad & set(items):
            raise ValueError
        return sum(items)

    total, failures = find_failing_items(range(32), attempt)
    assert {item for item, _ in failures} == bad
    assert total == sum(set(range(32)) - bad)
    assert tries <= 2 + 2 * 5 * len(bad)


def test_isolate_separates_two_items_that_fail_only_together() -> None:
    def attempt(items: Sequence[int]) -> Sequence[int]:
        if {2, 6} <= set(items):
            raise ValueError
        return items

    successes, failures = find_failing_items(range(8), attempt)
    assert len(successes) == 7
    assert failures[0][0] in {2, 6}


def test_isolate_blames_no_item_if_none_also_fails() -> None:
    def attempt(_: Sequence[int]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        find_failing_items(range(8), attempt)


@pytest.mark.parametrize("error", bulkhead.PASS_THROUGH_ERRORS)
def test_isolate_tries_no_items_while_a_server_is_unreachable(error: type[Exception]) -> None:
    attempt_sizes: list[int] = []

    def attempt(items: Sequence[int]) -> None:
        attempt_sizes.append(len(items))
        raise error("away")

    with pytest.raises(error):
        find_failing_items(range(8), attempt)
    assert attempt_sizes == [8]
    assert StoreUnavailableError in bulkhead.PASS_THROUGH_ERRORS


def test_bandwidths_implied_by_other_workloads_count_and_harm_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither workload is in the queue; the records of one of them cannot be used."""
    rig = Rig(tmp_path, job(1, "hops:reqs=1,2;workload=mine"))
    for name in ("other", "broken"):
        rig.store.save_theory([theory(workload=WorkloadName(name), gpu_type=A100)])
        rig.store.add_throughput(
            ThroughputRecord(WorkloadName(name), A100, NodeName("n0"), 2, 2, 30.0, NOW - age)
            for age in range(3)
        )
    real = inferred.by_workload
    bandwidth_calls: list[tuple[Bandwidth, ...]] = []

    def breaks(records: Sequence[ThroughputRecord], *arguments: Any) -> Any:
        if any(record.workload == "broken" for record in records):
            raise ZeroDivisionError
        return real(records, *arguments)

    def sees(*arguments: Any) -> Any:
        bandwidth_calls.append(arguments[3].implied)
        return build_snapshot(*arguments)

    monkeypatch.setattr(inferred, "by_workload", breaks)
    monkeypatch.setattr("hopsd.round.decide.build_snapshot", sees)
    rig.tick(2)
    assert rig.port.running == {"1"}
    assert {
        [bandwidth.gpu_type for bandwidth in bandwidths] == [A100] for bandwidths in bandwidth_calls
    } == {True}


def test_an_older_version_of_a_program_counts_even_if_no_job_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_job = job(1, "hops:reqs=1,2")
    rig = Rig(tmp_path, first_job)
    rig.store.save_program(workload_of(first_job), "a" * 12, NOW)
    older = WorkloadName(f"{workload_of(first_job)}+{'b' * 12}")
    for name in (older, WorkloadName(f"another+{'b' * 12}")):
        rig.store.save_theory([theory(workload=name, gpu_type=A100)])
    workload_calls: list[set[WorkloadName]] = []

    def sees(*arguments: Any) -> Any:
        workload_calls.append({fit.workload for fit in arguments[3].theory})
        return build_snapshot(*arguments)

    monkeypatch.setattr("hopsd.round.decide.build_snapshot", sees)
    rig.tick()
    assert workload_calls[0] == {older}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "jobs"),
    [
        (
            "hopsd.round.observe.advance_all",
            lambda arguments: [job.id for job in arguments[1].jobs],
        ),
        ("hopsd.round.decide.build_snapshot", lambda arguments: arguments[2]),
    ],
)
def test_records_of_a_failing_tick_are_freed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, jobs: Callable[..., Any]
) -> None:
    """Freed without a search for cycles: the records of a tick over 20,000 jobs take 25 MiB."""

    def breaks(*arguments: Any, **keywords: Any) -> Any:
        if "3" in jobs(arguments):
            raise ValueError("the third")
        return works(*arguments, **keywords)

    works = pkgutil.resolve_name(step)
    monkeypatch.setattr(step, breaks)
    rig = Rig(tmp_path, *HONEST, job(3, "hops:reqs=1"))
    gc.collect()
    gc.disable()
    try:
        rig.tick()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        garbage_types = [type(thing) for thing in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()
    assert "set aside" in rig.row("3")["reason"]
    assert not {JobRecord, JobReading, Snapshot, Observation} & set(garbage_types)
