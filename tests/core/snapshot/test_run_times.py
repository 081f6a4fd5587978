"""A job without samples is expected to run as long as its user's earlier jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from controller_rig import NOW, Rig, job

from hopsd.config import Config
from hopsd.ctl.user.status import _expectation
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import SlurmState

HOUR = 3600.0
COMMENT = "hops:reqs=1;workload=bert"


def after_runs_of(seconds: float, folder: Path, user: str = "ann", runs: int = 3) -> Rig:
    """A controller that has seen ``runs`` jobs of that user run for ``seconds``."""
    names = range(1, runs + 1)
    rig = Rig(folder, *(job(n, COMMENT, user=UserName(user)) for n in names))
    rig.tick()
    assert rig.port.running == {str(n) for n in names}
    rig.port.now = NOW + 30.0 + seconds
    for job_run in list(rig.port.jobs.values()):
        rig.port.jobs[job_run.id] = replace(
            job_run, state=SlurmState.COMPLETED, end=NOW + 30.0 + seconds
        )
    rig.tick()
    rig.port.jobs.clear()
    return rig


def submit(rig: Rig, comment: str = COMMENT, **changes: object) -> None:
    new = job(9, comment, time_limit_seconds=48 * HOUR, submit=rig.port.now, **changes)
    rig.port.jobs[JobId("9")] = new
    rig.tick(2)


def test_past_runs_take_precedence_over_the_time_limit(tmp_path: Path) -> None:
    rig = after_runs_of(3 * HOUR, tmp_path)
    submit(rig)
    row = rig.row("9")
    assert row["age_seconds"] == pytest.approx(3 * HOUR, rel=0.05)
    assert row["expected"]["low"] < 3 * HOUR < row["expected"]["high"]
    expectation = _expectation(row)
    assert expectation.startswith("about 3h0")
    assert expectation.endswith("from 3 runs of this workload by ann")


def test_a_job_that_outruns_past_runs_is_expected_to_continue(tmp_path: Path) -> None:
    rig = after_runs_of(3 * HOUR, tmp_path)
    submit(rig)
    rig.port.now += 20 * HOUR
    rig.tick()
    assert rig.row("9")["expected"]["seconds"] == pytest.approx(40 * HOUR, rel=0.01)
    rig.port.now += 20 * HOUR
    rig.tick()
    assert rig.row("9")["expected"]["seconds"] == pytest.approx(48 * HOUR, rel=0.01)
    rig.tick()
    assert rig.row("9")["age_seconds"] == pytest.approx(48 * HOUR, rel=0.01)


def test_the_users_declaration_takes_precedence(tmp_path: Path) -> None:
    rig = after_runs_of(3 * HOUR, tmp_path)
    submit(rig, COMMENT + ";samples=1000")
    assert rig.row("9")["expected"] is None
    assert rig.row("9")["samples"] == 1000.0


def test_a_jobs_own_loops_take_precedence_over_past_runs(tmp_path: Path) -> None:
    rig = after_runs_of(3 * HOUR, tmp_path)
    submit(rig)
    store = rig.controller._store
    store.save_jobs([replace(store.jobs()[JobId("9")], samples_planned=5000.0)])
    rig.tick()
    assert ", from its training loop" in _expectation(rig.row("9"))


@pytest.mark.parametrize("runs_of_another", [True, False])
def test_the_time_limit_counts_without_own_runs_or_under_paper_exact(
    runs_of_another: bool, tmp_path: Path
) -> None:
    rig = after_runs_of(3 * HOUR, tmp_path, user="bob" if runs_of_another else "ann")
    if not runs_of_another:
        config = rig.controller._config
        assert isinstance(config, Config)
        rig.controller.configure(replace(config, plan=replace(config.plan, paper_exact=True)))
    submit(rig)
    row = rig.row("9")
    assert row["expected"] is None
    assert row["age_seconds"] == 48 * HOUR
    assert _expectation(row) == "48h00m"
