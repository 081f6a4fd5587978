"""Between ticks, the controller continues unfinished steps and tells users what hops did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from controller_rig import Lead, Store
from fake_slurm import FakeSlurm

from hopsd.config import Config
from hopsd.errors import ConfigError, SlurmUnavailableError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState
from hopsd.model.script_options import ScriptOptions
from hopsd.model.step import Step, StepKind
from hopsd.service.controller import Controller
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.watch import ApplySettings
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore


class Site:
    """A controller over a Slurm in memory, with a job that was asked to vacate its nodes."""

    def __init__(self, folder: Path) -> None:
        self.slurm, self.store = FakeSlurm(), Store()
        self.job = self.slurm.running(1, n0=8)
        options = ScriptOptions(signal="USR1", signal_seconds=60)
        self.slurm.change(self.job, comment="hops:reqs=8;preempt=no", options=options)
        self.port = SlurmPort(
            self.slurm,
            ApplySettings(poll_seconds=0.5, patience_seconds=3.0),
            clock=lambda: self.slurm.now,
            monotonic=lambda: self.slurm.now,
            sleep=self.slurm.sleep,
        )
        config = Config()
        self.config = replace(config, knowledge=replace(config.knowledge, report_dir=folder))
        self.refusals: list[Exception] = []
        self.controller = Controller(
            self.config,
            self.port,
            "",
            cast(PostgresStore, self.store),
            cast(Leader, Lead()),
            self.claim,
        )

    def claim(self) -> None:
        if self.refusals:
            raise self.refusals.pop()

    def begin_to_stop(self) -> None:
        read = self.slurm.table[self.job]
        self.port.apply([Step(self.job, StepKind.PREEMPT, current=read.allocation)])
        self.store.save_transitions(self.port.under_way)

    def events(self) -> list[str]:
        return [event.text for event in self.store.events(self.job)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_job_is_requeued_between_ticks_and_its_user_is_told(site: Site) -> None:
    site.controller.tick()
    site.begin_to_stop()
    site.controller.carry_on()
    assert site.slurm.table[site.job].state is SlurmState.RUNNING
    for _ in range(70):
        site.slurm.sleep(1.0)
        site.controller.carry_on()
    assert site.slurm.table[site.job].state is SlurmState.PENDING
    assert site.events() == ["hops stopped it on {n0:8}; it waits for its next turn"]
    assert site.store.transitions() == ()


def test_a_script_ended_by_our_signal_is_reported(site: Site) -> None:
    site.controller.tick()
    site.begin_to_stop()
    end_state = {"state": SlurmState.COMPLETED, "allocation": Allocation(), "end": site.slurm.now}
    site.slurm.change(site.job, state_text="COMPLETED", **end_state)
    site.controller.carry_on()
    (text,) = site.events()
    assert "hops sent USR1 at" in text
    assert "the script ended" in text


def test_a_pause_leaves_nothing_half_done(site: Site) -> None:
    site.controller.tick()
    site.begin_to_stop()
    site.store.set_paused(paused=True, operator="root", time=site.slurm.now)
    for _ in range(4):
        site.slurm.sleep(30.0)
        site.controller.tick()
    assert site.slurm.table[site.job].state is SlurmState.PENDING
    assert site.port.under_way == ()


def test_an_unavailable_slurm_is_retried_at_the_next_tick(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.controller.tick()
    site.begin_to_stop()
    site.slurm.sleep(100.0)

    def silent() -> list[object]:
        raise SlurmUnavailableError("slurmctld does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(site.slurm, "jobs", silent)
        site.controller.carry_on()
    assert site.slurm.table[site.job].state is SlurmState.RUNNING
    for _ in range(3):
        site.controller.tick()
        site.slurm.sleep(100.0)
        site.controller.carry_on()
    assert site.slurm.table[site.job].restarts == 1


def test_another_clusters_database_is_left_alone(site: Site) -> None:
    job = site.slurm.add(2, comment="hops:reqs=8", submit=site.slurm.now)
    site.refusals = [ConfigError("this database is cluster east's")]
    assert "cluster east's" in site.controller.tick()
    assert JobId(job) not in site.slurm.released_at
    site.controller.tick()
    assert job in site.slurm.released_at
