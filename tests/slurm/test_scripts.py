"""Hashes of batch scripts: read once, and never made up while Slurm is away."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from canned import CannedCommands

from hopsd.errors import SlurmUnavailableError
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import Hold, JobReading, SlurmState
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.script import READING_SECONDS, Scripts

SCONTROL = """#!{python}
import pathlib, sys
for line in sys.stdin:
    words = line.split()
    if words[:2] == ["write", "batch_script"]:
        with open({log!r}, "a") as log:
            print(words[2], file=log)
        script = pathlib.Path({folder!r}, words[2])
        if pathlib.Path({folder!r}, "away").exists():
            sys.stderr.write("job script retrieval failed: Unable to contact slurm controller\\n")
        elif pathlib.Path({folder!r}, "full").exists():
            pathlib.Path(words[3]).touch()
        elif pathlib.Path({folder!r}, "shut").exists():
            sys.stderr.write("failed to open file `" + words[3] + "`: Too many open files\\n")
        elif script.exists():
            pathlib.Path(words[3]).write_bytes(script.read_bytes())
        else:
            sys.stderr.write("job script retrieval failed: Invalid job id specified\\n")
    elif words:
        sys.stderr.write("invalid keyword: " + words[0] + "\\n")
    sys.stderr.flush()
"""

JOB = JobReading(
    JobId("1"), UserName("ann"), 1000, "train", "hops:reqs=2", "main", SlurmState.PENDING, 0.0,
    Hold.HOPS, command="/home/ann/train.sh --fast",
)  # fmt: skip


class Site:
    """Slurm's scripts by job, and the jobs whose scripts were read."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "log"
        program = folder / "bin" / "scontrol"
        program.parent.mkdir()
        words = {"python": sys.executable, "log": str(self._log), "folder": str(folder)}
        program.write_text(SCONTROL.format(**words))
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        self.now, self.seconds = 0.0, 0.0
        self.scripts = Scripts(SlurmCommands(environment={"PATH": path}), self._ticks)

    def _ticks(self) -> float:
        self.now += self.seconds
        return self.now

    def has(self, job: str, script: bytes) -> None:
        (self._folder / job).write_bytes(script)

    def set_away(self, *, is_away: bool) -> None:
        self.mark("away", is_set=is_away)

    def mark(self, state: str, *, is_set: bool) -> None:
        mark = self._folder / state
        mark.touch() if is_set else mark.unlink()

    @property
    def script_calls(self) -> list[str]:
        return self._log.read_text().split()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_each_script_is_requested_once(site: Site) -> None:
    site.has("1", b"#!/bin/sh\r\nhops-0123456789abcdef\n\xff")
    site.has("2", b"#!/bin/sh\n")
    jobs = [replace(JOB, id=JobId(number)) for number in "123"]
    first = site.scripts.for_jobs(jobs, learn=True)
    assert first["1"] == "6863563154df"
    assert first["3"] == ""
    assert first["1"] != first["2"]
    assert site.scripts.for_jobs(jobs, learn=True) == first
    assert site.script_calls == ["1", "2", "3"]


def test_scripts_that_a_busy_slurm_has_no_time_for_are_read_later(site: Site) -> None:
    """Regression: thousands of scripts after a start, at 0.06 s each, blocked hopsd for minutes."""
    jobs = [replace(JOB, id=JobId(number)) for number in "12345"]
    for job in jobs:
        site.has(job.id, b"#!/bin/sh\n")
    site.seconds = READING_SECONDS / 2.5
    looks = [list(site.scripts.for_jobs(jobs, learn=True).values()) for _ in range(3)]
    assert [look.index(None) for look in looks[:2]] == [2, 4]
    assert None not in looks[2]
    assert site.script_calls == ["1", "2", "3", "4", "5"]


def test_while_slurm_is_away_no_script_counts_as_empty(site: Site) -> None:
    site.has("1", b"#!/bin/sh\n")
    site.set_away(is_away=True)
    with pytest.raises(SlurmUnavailableError):
        site.scripts.for_jobs([JOB], learn=True)
    site.set_away(is_away=False)
    assert len(site.scripts.for_jobs([JOB], learn=True)["1"]) == 12


@pytest.mark.parametrize("trouble", ["full", "shut"])
def test_a_script_that_could_not_be_written_is_requested_again(site: Site, trouble: str) -> None:
    """On a full disk, all jobs would get the same hash, for their whole lives."""
    site.has("1", b"#!/bin/sh\n")
    site.mark(trouble, is_set=True)
    with pytest.raises(SlurmUnavailableError, match="batch scripts cannot be read"):
        site.scripts.for_jobs([JOB], learn=True)
    site.mark(trouble, is_set=False)
    assert len(site.scripts.for_jobs([JOB], learn=True)["1"]) == 12


def test_a_missing_temporary_folder_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(SlurmUnavailableError, match="/nowhere"):
        site.scripts.for_jobs([JOB], learn=True)


def test_scripts_of_ended_jobs_are_read_first_and_of_running_jobs_last(site: Site) -> None:
    """Slurm forgets ended jobs within minutes; running jobs stay where they are."""
    states = {"1": SlurmState.RUNNING, "2": SlurmState.PENDING, "3": SlurmState.COMPLETED}
    site.scripts.for_jobs(
        [replace(JOB, id=JobId(j), state=s) for j, s in states.items()], learn=True
    )
    assert site.script_calls == ["3", "2", "1"]


def test_users_take_turns(site: Site) -> None:
    """Regression: a user's thousands of jobs, even cancelled ones, were read before all others. At
    0.06 s each, nobody else's jobs were planned for minutes.
    """
    ann = [replace(JOB, id=JobId(number), state=SlurmState.CANCELLED) for number in "123"]
    bob = [replace(JOB, id=JobId(number), user=UserName("bob")) for number in "45"]
    site.scripts.for_jobs([*ann, *bob], learn=True)
    assert site.script_calls == ["1", "4", "2", "5", "3"]


def test_no_script_is_read_while_steps_are_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each reading took ten seconds longer, during which moving jobs were stopped."""
    commands = CannedCommands()
    job = {"job_id": 1, "comment": "hops:reqs=1", "job_state": "PENDING", "partition": "main"}
    object.__setattr__(commands, "jobs", json.dumps({"jobs": [job]}))
    read: list[str] = []
    monkeypatch.setattr("hopsd.slurm.script._hash", lambda _, job, __: read.append(job.id) or "x")
    adapter = ScontrolAdapter(commands)
    with adapter.batch():
        adapter.read()
        assert [job.script for job in adapter.jobs()] == [None]
    assert [job.script for job in adapter.read().jobs] == ["x"]
    assert [job.script for job in adapter.jobs()] == ["x"]
    assert read == ["1"]
