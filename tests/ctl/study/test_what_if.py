"""`hopsctl what-if` with canned output of Slurm's commands."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from hopsd.ctl import cli

NODE = (
    "NodeName=n{} CPUTot=8 CPUAlloc=0 Gres=gpu:a100:2 RealMemory=1 State={} Partitions=main"
    " SlurmdStartTime=2026-01-01T00:00:00"
)

CPUS = NODE.format(2, "IDLE").replace("gpu:a100:2", "gpu:cpu:2")


def program(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.txt").write_text(text)
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\nexec cat {folder}/{name}.txt\n')
    path.chmod(0o755)


def line(job: int, submit: float, start: float, end: float, user: str = "ann") -> str:
    def moment(seconds: float) -> str:
        return f"{datetime.fromtimestamp(seconds):%Y-%m-%dT%H:%M:%S}"  # noqa: DTZ006 - as sacct

    times = "|".join(map(moment, (submit, submit, start, end)))
    return f"{job}|{user}|lab|{times}|gres/gpu=2|gres/gpu=2|60|COMPLETED|"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two servers of two GPUs; three jobs submitted together that ran one after the other."""
    start = float(int(time.time()) - 36000)
    ran = [line(i, start, start + 3600 * i, start + 3600 * (i + 1)) for i in range(3)]
    program(tmp_path, "sacct", "\n".join(ran) + "\n")
    program(tmp_path, "scontrol", f"{NODE.format(0, 'IDLE')}\n{NODE.format(1, 'DOWN')}\n{CPUS}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def run_what_if(site: Path, *options: str) -> str:
    result = CliRunner().invoke(
        cli, ["what-if", "--since", "1d", "--policy", "fifo", "--out", f"{site}/out", *options]
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_assumptions_come_first_and_reality_before_policies(site: Path) -> None:
    output = run_what_if(site)
    assert output.index("What this assumes") < output.index("as it was") < output.index("fifo")
    assert "3 jobs with GPUs of 1 user" in output
    assert "including n1, which take no jobs now" in output
    assert (site / "out" / "report.html").is_file()


def test_the_comparison_as_json(site: Path) -> None:
    report = json.loads(run_what_if(site, "--json"))
    assert (report["jobs_played"], report["gpus"]) == (3, 4)
    assert any("No job is moved" in line for line in report["assumes"])
    waits = {name: figures["avg_wait_h"] for name, figures in report["policies"].items()}
    # In reality they ran one after the other on two GPUs; fifo uses both servers.
    assert waits == {"as it was": pytest.approx(1.0), "fifo": pytest.approx(1 / 3)}
    rows = list(csv.DictReader(io.StringIO(run_what_if(site, "--csv"))))
    assert [row["policy"] for row in rows] == ["as it was", "fifo"]
    assert float(rows[0]["avg_wait_h"]) == pytest.approx(1.0)


def test_a_single_partition_can_be_simulated(site: Path) -> None:
    run_what_if(site, "--partition", "main")
    assert "--partition=main" in (site / "asked").read_text()


@pytest.mark.parametrize("since", ["soon", "0", "2h ago", "99999999d", "2999-01-01", "nan"])
def test_an_invalid_time_is_refused(site: Path, since: str) -> None:
    result = CliRunner().invoke(cli, ["what-if", "--since", since])
    assert result.exit_code == 2
    assert "expected an age such as" in result.output


def test_a_long_run_is_announced(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "of a processor" not in run_what_if(site)
    monkeypatch.setattr("hopsd.ctl.study.what_if.JOB_SECONDS", 30.0)
    output = run_what_if(site)
    assert "about 1m30s of a processor" in output
    assert output.index("of a processor") < output.index("as it was")
