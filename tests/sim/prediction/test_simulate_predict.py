"""`hopsctl simulate --predict` writes predictions and changes nothing else."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hopsd.ctl.study.simulate import simulate


def run(folder: Path, *options: str, policy: str = "slurm", jobs: int = 14) -> dict[str, object]:
    result = CliRunner().invoke(
        simulate,
        ["--cluster", "paper-64", "--workload", "paper-64", "--jobs", str(jobs), "--rate", "60",
         "--seed", "5", "--policy", policy, "--out", str(folder), "--json", *options],
        catch_exceptions=False,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["slurm", "hops-srtf"])
def test_predictions_change_nothing_else(tmp_path: Path, policy: str) -> None:
    run(tmp_path / "a", policy=policy)
    answer = run(tmp_path / "b", "--predict", policy=policy)
    assert answer["predictions"] == str(tmp_path / "b" / "predictions.csv")
    for name in ("jobs.csv", "timeline.jsonl"):
        assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()
    assert not (tmp_path / "a" / "predictions.csv").exists()


@pytest.mark.slow
def test_every_job_has_a_start_predicted_at_its_submission(tmp_path: Path) -> None:
    run(tmp_path, "--predict")
    forecasts = rows(tmp_path / "predictions.csv")
    assert list(forecasts[0]) == ["policy", "at", "id", "kind", "expected", "low", "high", "actual"]
    jobs = {row["id"]: row for row in rows(tmp_path / "jobs.csv")}
    first: dict[str, dict[str, str]] = {}
    for row in forecasts:
        assert float(row["at"]) <= float(row["low"])
        assert float(row["low"]) <= float(row["expected"]) <= float(row["high"])
        job = jobs[row["id"]]
        assert row["actual"] == job["first_start" if row["kind"] == "start" else "end"]
        assert float(row["actual"]) >= float(row["at"])
        if row["kind"] == "start":
            first.setdefault(row["id"], row)
    assert first.keys() == jobs.keys()
    assert all(float(row["at"]) == float(jobs[job]["submit"]) for job, row in first.items())


@pytest.mark.long
@pytest.mark.slow
def test_the_same_seed_writes_the_same_predictions(tmp_path: Path) -> None:
    run(tmp_path / "a", "--predict", "--knowledge", "measured")
    run(tmp_path / "b", "--predict", "--knowledge", "measured")
    a, b = (tmp_path / name / "predictions.csv" for name in "ab")
    assert a.read_text() == b.read_text()


@pytest.mark.slow
def test_known_run_times_under_backfill_are_predicted_almost_exactly(tmp_path: Path) -> None:
    """Jobs are rigid and never preempted, speeds true: only server speed factors are unknown."""
    run(tmp_path, "--predict", jobs=25)
    forecasts = rows(tmp_path / "predictions.csv")
    long_forecasts = [r for r in forecasts if float(r["actual"]) - float(r["at"]) > 600.0]
    errors = [
        abs(float(r["expected"]) - float(r["actual"])) / (float(r["actual"]) - float(r["at"]))
        for r in long_forecasts
    ]
    assert sorted(errors)[len(errors) // 2] < 0.05


@pytest.mark.slow
def test_lanes_have_no_predictions(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        simulate,
        ["--cluster", "paper-64", "--workload", "paper-64", "--policy", "hare",
         "--switch-cost", "1", "--predict", "--out", str(tmp_path)],
    )  # fmt: skip
    assert result.exit_code != 0
    assert "--predict cannot be used with --switch-cost" in str(result.exception or result.output)
