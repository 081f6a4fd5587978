"""The news about jobs between one status document and the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.reading import SlurmState
from hopsd.notify.news import Comparison


def record(job: str, state: SlurmState, end: float | None = 100.0) -> JobRecord:
    return JobRecord(
        JobId(job), UserName("ann"), "net", "hops:", WorkloadName("w"), 0.0, 100.0, state,
        wait_seconds=60.0, run_seconds=3600.0, end=end,
    )  # fmt: skip


def row(job: str, placement: Mapping[str, int] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "id": job, "user": "ann", "name": "net", "placement": dict(placement or {}),
        "profiling": False, "code": None, "reason": None, "wait_seconds": 0.0, **fields,
    }  # fmt: skip


class Site:
    """A sequence of status documents."""

    def __init__(self, **states: SlurmState) -> None:
        self.records = {job[1:]: record(job[1:], state) for job, state in states.items()}
        self.comparison = Comparison(self.ended_records, stuck_seconds=3600.0)

    def ended_records(self, jobs: Collection[JobId]) -> Mapping[JobId, JobRecord]:
        return {job: self.records[job] for job in jobs if job in self.records}

    def news_of(self, *rows: dict[str, Any], **fields: Any) -> list[tuple[str, str, str]]:
        running = [item for item in rows if item["placement"]]
        waiting = [item for item in rows if not item["placement"]]
        doc = {"mode": "active", "error": None, "running": running, "waiting": waiting, **fields}
        return [(item.kind, item.job, item.text) for item in self.comparison.look(doc)]


def test_ends_are_reported_once_and_cancellations_never() -> None:
    site = Site(j1=SlurmState.COMPLETED, j2=SlurmState.TIMEOUT, j3=SlurmState.CANCELLED)
    assert site.news_of(row("1", {"n0": 1}), row("2", {"n0": 1}), row("3", {"n0": 1})) == []
    assert site.news_of() == [
        ("done", "1", "net is done: it ran 1h00m and waited 1m00s"),
        ("failed", "2", "net failed (TIMEOUT): it ran 1h00m and waited 1m00s"),
    ]
    assert site.news_of() == []


def test_fewer_gpus_are_reported_even_after_a_wait() -> None:
    site = Site()
    site.news_of(row("1", {"n0": 4, "n1": 4}))
    assert site.news_of(row("1")) == []
    assert site.news_of(row("1", {"n2": 2})) == [
        ("fewer", "1", "net runs on 2 GPUs, 8 before (n2:2)")
    ]
    assert site.news_of(row("1", {"n2": 2})) == []
    assert site.news_of(row("1", {"n2": 4})) == []
    assert [kind for kind, *_ in site.news_of(row("1", {"n2": 1}))] == ["fewer"]


def test_a_measuring_run_is_not_reported_as_fewer_gpus() -> None:
    site = Site()
    site.news_of(row("1", {"n0": 4}))
    assert site.news_of(row("1", {"n0": 1}, profiling=True)) == []


def test_a_stuck_job_is_reported_once_until_it_starts() -> None:
    site = Site()
    stuck_row = row("1", code="limit", reason="the QOS is full", wait_seconds=7200.0)
    site.news_of()
    assert site.news_of(stuck_row) == [("stuck", "1", "net has waited 2h00m: the QOS is full")]
    assert site.news_of(stuck_row) == []
    assert site.news_of(row("1", {"n0": 1})) == []
    assert len(site.news_of(stuck_row)) == 1
    fresh_job = row("2", code="limit", reason="the QOS is full", wait_seconds=60.0)
    stuck_job = row("3", code="outside_window", reason="others first", wait_seconds=7200.0)
    assert site.news_of(fresh_job, stuck_job) == []


def test_starts_failed_ticks_and_standbys_are_not_reported() -> None:
    site = Site(j1=SlurmState.COMPLETED)
    stuck_row = row("2", code="error", reason="wrong", wait_seconds=7200.0)
    assert site.news_of(row("1", {"n0": 1}), stuck_row) == []
    assert site.news_of(error="Slurm is away") == []
    assert site.news_of(mode="standby") == []
    assert [kind for kind, *_ in site.news_of(stuck_row)] == ["done"]
