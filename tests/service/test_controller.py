"""State across ticks: failures are reported, requests kept, configurations taken over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from memory_store import MemoryStore
from report_values import report

from hopsd.config import Config
from hopsd.core.queue.backoff import Backoff
from hopsd.errors import NotLeaderError, SlurmUnavailableError
from hopsd.learning.learner import MAX_EVENTS, MAX_EVENTS_PER_HOUR
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.reading import (
    RELEASED_MARK,
    Hold,
    JobReading,
    NodeReading,
    Reading,
    SlurmState,
)
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.service.controller import Controller
from hopsd.service.remedies import ANNOUNCEMENT_EVENT, SHRUNK
from hopsd.slurm.port import InstantPort
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore

JOB = JobReading(
    id=JobId("1"),
    user=UserName("ann"),
    uid=1000,
    name="train",
    comment="hops:reqs=2",
    partition="main",
    state=SlurmState.PENDING,
    submit=900.0,
    hold=Hold.HOPS,
)


class Port(InstantPort):
    """Applies every step; ``fails`` lists errors to raise instead of the next readings."""

    name = "memory"

    def __init__(self) -> None:
        self.job = JOB
        self.now = 1000.0
        self.nodes = (NodeReading(NodeName("n0"), GpuType("a100"), 4, 16),)
        self.steps: list[Step] = []
        self.fails: list[Exception] = []

    def read(self) -> Reading:
        if self.fails:
            raise self.fails.pop()
        return Reading(self.now, self.nodes, (self.job,), "22.05.8")

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        self.steps += steps
        for step in steps:
            if step.target:
                self.job = replace(self.job, state=SlurmState.RUNNING, allocation=step.target)
            elif step.kind is StepKind.PREEMPT:
                self.job = replace(
                    self.job,
                    state=SlurmState.PENDING,
                    allocation=Allocation(),
                    restarts=self.job.restarts + 1,
                )
            elif step.kind is StepKind.RELEASE:
                self.job = replace(self.job, hold=Hold.NONE, marks=RELEASED_MARK)
        return [StepOutcome(s, OutcomeStatus.DONE, s.target, started=1000.0) for s in steps]


class Store(MemoryStore):
    """A store with tables that an operator may change."""

    def use_tables(self, tables: object) -> None:
        assert tables == {}


class Lead:
    """The leader's lock; ``mine`` says whether this process can hold it."""

    def __init__(self) -> None:
        self.mine = True

    def acquire(self) -> None:
        if not self.mine:
            raise NotLeaderError("another hopsd leads")


class Rig:
    """A controller with its port and store in memory."""

    def __init__(self, folder: Path) -> None:
        self.port, self.store, self.lead = Port(), Store(), Lead()
        config = Config()
        self.config = replace(config, knowledge=replace(config.knowledge, report_dir=folder))
        self.controller = Controller(
            self.config,
            self.port,
            "a test",
            cast(PostgresStore, self.store),
            cast(Leader, self.lead),
        )


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_tick_places_jobs_and_reports_it(rig: Rig) -> None:
    assert "1 start done" in rig.controller.tick()
    assert [row["id"] for row in rig.controller.document["running"]] == ["1"]


def test_a_postponed_start_is_reported_and_follows_with_the_next_plan(rig: Rig) -> None:
    carry_out = rig.port.apply

    def too_busy(steps: Sequence[Step]) -> Sequence[StepOutcome]:
        rig.port.apply = carry_out  # type: ignore[method-assign]
        return [StepOutcome(s, OutcomeStatus.PUT_OFF, error="Slurm is busy") for s in steps]

    rig.port.apply = too_busy  # type: ignore[method-assign]
    assert "1 start put_off" in rig.controller.tick()
    [row] = rig.controller.document["waiting"]
    assert (row["code"], row["reason"]) == ("lost_to_others", "Slurm is busy")
    assert not rig.controller.backing_off
    assert "1 start done" in rig.controller.tick()


def test_unreadable_reports_are_mentioned_at_every_tick(rig: Rig, tmp_path: Path) -> None:
    rig.controller.tick()
    assert "no report" not in rig.controller.tick()
    tmp_path.rmdir()
    assert f"no report of a job can be read: {tmp_path}: No such" in rig.controller.tick()
    tmp_path.mkdir()
    assert "no report" not in rig.controller.tick()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (SlurmUnavailableError("no answer"), "no answer"),
        (KeyError("who"), "a defect of hops, KeyError"),
    ],
)
def test_a_failure_is_reported_and_the_next_tick_continues(
    rig: Rig, failure: Exception, message: str
) -> None:
    rig.port.fails = [failure]
    assert message in rig.controller.tick()
    assert message in rig.controller.document["error"]
    assert "1 start done" in rig.controller.tick()
    assert rig.controller.document["error"] is None


def test_a_clock_set_back_prolongs_no_backoff(rig: Rig) -> None:
    rig.controller.tick()
    rig.port.job = JOB
    rig.controller._backoffs = {JOB.id: Backoff(3, rig.port.now + 60.0, "Resources")}
    rig.port.now -= 600.0
    rig.controller.tick()
    assert "1 start done" in rig.controller.tick()


@pytest.mark.parametrize(("wants", "avoid"), [("", ("n1",)), (";cpu=yes", ())])
def test_a_released_job_that_refuses_cpus_gets_none_from_plain_slurm_either(
    rig: Rig, wants: str, avoid: tuple[str, ...]
) -> None:
    rig.store.set_paused(paused=True, operator="root", time=0.0)
    rig.port.nodes += (NodeReading(NodeName("n1"), GpuType("cpu"), 2, 16),)
    rig.port.job = replace(JOB, comment=JOB.comment + wants)
    rig.store.add_release_request((), uid=0, time=0.0)
    rig.controller.tick()
    assert [s.avoid for s in rig.port.steps] == [avoid]


def test_jobs_that_hops_cannot_plan_now_are_released_too(rig: Rig) -> None:
    """Else a paused hopsd would hold them for ever, when their partition is up again."""
    rig.port.job = replace(JOB, bar="partition main is DOWN: Slurm starts none of its jobs")
    rig.store.set_paused(paused=True, operator="root", time=0.0)
    rig.store.add_release_request((), uid=0, time=0.0)
    assert "gave 1 of 1 jobs back" in rig.controller.tick()
    assert [step.kind for step in rig.port.steps] == [StepKind.RELEASE]


def test_a_release_requested_while_slurm_is_away_is_not_forgotten(rig: Rig) -> None:
    rig.store.set_paused(paused=True, operator="root", time=0.0)
    rig.store.add_release_request((), uid=0, time=0.0)
    rig.port.fails = [SlurmUnavailableError("no answer")]
    rig.controller.tick()
    assert rig.port.steps == []
    assert "gave 1 of 1 jobs back" in rig.controller.tick()
    assert [(s.kind, s.gpus) for s in rig.port.steps] == [(StepKind.RELEASE, 2)]
    rig.controller.tick()
    assert len(rig.port.steps) == 1
    (row,) = rig.controller.document["waiting"]
    assert row["released"]
    assert "given back to plain Slurm" in row["reason"]


def test_a_job_whose_release_slurm_forgot_is_planned_again(rig: Rig) -> None:
    """slurmctld restored an older state, after which nobody started the job."""
    rig.store.add_release_request((), uid=0, time=0.0)
    rig.port.job = replace(JOB, begin=5000.0)
    assert "gave 1 of 1 jobs back" in rig.controller.tick()
    rig.port.job = JOB
    rig.controller.tick()
    assert rig.port.job.state is SlurmState.RUNNING


def test_a_released_job_may_need_several_nodes(rig: Rig) -> None:
    rig.store.set_paused(paused=True, operator="root", time=0.0)
    rig.port.nodes += (NodeReading(NodeName("n1"), GpuType("a100"), 4, 16),)
    rig.port.job = replace(JOB, comment="hops:reqs=6")
    rig.store.add_release_request((), uid=0, time=0.0)
    rig.controller.tick()
    assert [(s.gpus, s.least_nodes) for s in rig.port.steps] == [(6, 2)]


def test_a_release_request_survives_a_restart_of_hopsd(rig: Rig, tmp_path: Path) -> None:
    rig.store.set_paused(paused=True, operator="root", time=0.0)
    rig.store.add_release_request((JobId("1"),), uid=0, time=0.0)
    successor = Rig(tmp_path)
    successor.controller._store = cast(PostgresStore, rig.store)
    assert "gave 1 of 1 jobs back" in successor.controller.tick()
    assert rig.store.release_requests() == ()


def test_a_pause_keeps_a_half_applied_plan_until_the_resume(rig: Rig) -> None:
    def breaks(steps: Sequence[Step]) -> Sequence[StepOutcome]:
        raise SlurmUnavailableError("no answer")

    applies, rig.port.apply = rig.port.apply, breaks  # type: ignore[method-assign]
    rig.controller.tick()
    rig.port.apply = applies  # type: ignore[method-assign]
    rig.store.set_paused(paused=True, operator="root", time=0.0)
    assert "paused" in rig.controller.tick()
    assert rig.port.steps == []
    (row,) = rig.controller.document["waiting"]
    assert row["reason"] == "hops is paused"
    rig.store.set_paused(paused=False, operator="root", time=0.0)
    assert "took up an unfinished plan" in rig.controller.tick()
    assert rig.port.job.state is SlurmState.RUNNING
    assert rig.store.unfinished_plan() is None


LEARNT = {"past_run_errors": [0.5] * 9}


@pytest.mark.parametrize("paused", [True, False])
def test_what_predictions_have_learnt_survives_a_restart(rig: Rig, paused: bool) -> None:
    """A hopsd that was started while paused saved an empty state over it."""
    rig.store.save_predictions(LEARNT)
    rig.store.set_paused(paused=paused, operator="root", time=0.0)
    rig.controller.tick()
    rig.controller.outlook.close()
    saved = rig.store.predictions()
    assert saved is not None
    assert saved["past_run_errors"] == LEARNT["past_run_errors"]


def test_a_leader_continues_with_what_another_has_learnt(rig: Rig) -> None:
    """It used to save its own state, from before it lost the lead, over that of the other one."""
    rig.controller.tick()
    rig.lead.mine = False
    rig.controller.tick()
    rig.store.save_predictions(LEARNT)
    rig.lead.mine = True
    rig.port.now += 10_000.0
    rig.controller.tick()
    rig.controller.outlook.close()
    saved = rig.store.predictions()
    assert saved is not None
    assert saved["past_run_errors"] == LEARNT["past_run_errors"]


@pytest.mark.parametrize("mode", ["paused", "standby"])
def test_a_paused_hopsd_or_one_on_standby_predicts_nothing(rig: Rig, mode: str) -> None:
    """It went on showing predictions of its last round, as if jobs still started by its plans."""
    rig.controller.tick()
    deadline = time.monotonic() + 30.0
    while rig.controller.outlook.document is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert rig.controller.outlook.document is not None
    rig.store.set_paused(paused=mode == "paused", operator="root", time=0.0)
    rig.lead.mine = mode != "standby"
    rig.controller.tick()
    assert rig.controller.outlook.document is None
    assert rig.controller.outlook.row(JOB.id) is None


def test_without_the_lead_nothing_is_done_or_shown(rig: Rig) -> None:
    rig.controller.tick()
    rig.lead.mine = False
    rig.store.add_release_request((), uid=0, time=0.0)
    assert "standing by" in rig.controller.tick()
    assert rig.controller.document["mode"] == "standby"
    assert rig.controller.document["running"] == []


def test_a_configuration_applies_from_the_next_tick(rig: Rig) -> None:
    rig.controller.tick()
    longer = replace(rig.config.daemon, round_seconds=77.0)
    rig.controller.configure(replace(rig.config, daemon=longer))
    rig.controller._window = None
    rig.controller.tick()
    round_times = rig.controller.document["round"]
    assert round_times["end"] - round_times["start"] == 77.0


@pytest.mark.slow
def test_a_flood_of_reports_is_counted_and_summarised(rig: Rig, tmp_path: Path) -> None:
    rig.controller.tick()
    for number in range(MAX_EVENTS + 5):
        (tmp_path / f"1.0.n0.0.{number}.json").write_text("{}")
    rig.controller.tick()
    assert rig.controller.document["reports_refused"] == MAX_EVENTS + 5
    event_texts = [event.text for event in rig.store.events() if event.kind == "report_refused"]
    assert len(event_texts) == MAX_EVENTS + 1
    assert event_texts[0] == "and 5 more in the same scan"
    rig.controller.tick()
    assert rig.controller.document["reports_refused"] == MAX_EVENTS + 5
    for scan in range(1, 50):  # one scan every few seconds, for months
        for number in range(MAX_EVENTS):
            (tmp_path / f"1.0.n0.{scan}.{number}.json").write_text("{}")
        rig.controller.tick()
    assert rig.controller.document["reports_refused"] == 50 * MAX_EVENTS + 5
    events = [event for event in rig.store.events(limit=5000) if event.kind == "report_refused"]
    assert len(events) == MAX_EVENTS_PER_HOUR


def train_on_one_gpu(rig: Rig, folder: Path, *, taken_gpus: int) -> None:
    """After a minute, the job's training reports one GPU, and the driver ``taken_gpus``."""
    rig.port.now += 60.0
    content = report(
        job="1",
        run=rig.port.job.restarts,
        at=rig.port.now,
        first_step=rig.port.now - 300.0,
        gpus=1,
        visible_gpus=rig.port.job.allocation.gpus,
        taken_gpus=taken_gpus,
    )
    path = folder / f"1.{rig.port.job.restarts}.n0.0.4242.json"
    path.write_text(json.dumps(content))
    os.utime(path, (rig.port.now, rig.port.now))
    rig.controller.tick()


@pytest.mark.slow
def test_an_elastic_job_that_uses_one_of_four_gpus_continues_on_one(
    rig: Rig, tmp_path: Path
) -> None:
    """This requires that the site enabled it, training and driver agree, and the user was told."""
    rig.port.job = replace(JOB, comment="hops:reqs=1,4", uid=os.getuid())
    health = replace(rig.config.health, shrink_unused_minutes=15.0)
    rig.controller.configure(replace(rig.config, health=health))
    rig.controller.tick()
    assert rig.port.job.allocation.gpus == 4
    for _ in range(30):
        train_on_one_gpu(rig, tmp_path, taken_gpus=4)
    assert rig.port.job.restarts == 0, "another program may compute on the others"
    for _ in range(14):
        train_on_one_gpu(rig, tmp_path, taken_gpus=1)
    assert rig.port.job.restarts == 0
    for _ in range(3):
        train_on_one_gpu(rig, tmp_path, taken_gpus=1)
    assert rig.port.job.restarts == 1
    for _ in range(40):  # over several rounds
        train_on_one_gpu(rig, tmp_path, taken_gpus=1)
    assert (rig.port.job.restarts, rig.port.job.allocation.gpus) == (1, 1)
    events = [event.kind for event in reversed(rig.store.events(job=JOB.id))]
    assert events == ["gpus_unused", ANNOUNCEMENT_EVENT, SHRUNK, "stopped"]
