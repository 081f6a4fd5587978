"""`hopsctl shadow report` from a diary, and what a shadow writes into it."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from hopsd.config import Config
from hopsd.ctl import cli
from hopsd.ctl.history.shadow import at_the_time, logged_job
from hopsd.errors import HopsError, InputError
from hopsd.model.privacy import Private, Viewer
from hopsd.serve.answers import QueryService
from hopsd.serve.socket import LocalServer, Request
from hopsd.store.postgres import PostgresStore

NOW = float(int(time.time()))
START_TIME = NOW - 36000.0
NODES = [{"name": f"n{i}", "gpu_type": "a100", "gpus": 2, "usable": True} for i in range(2)]
NODES.append({"name": "c0", "gpu_type": "cpu", "gpus": 2, "usable": True})


def row(job: str, wait: float, *runs: tuple[float, float | None, int], **fields: Any) -> Any:
    return {
        "id": job, "user": "ann", "account": "lab", "submit": START_TIME, "wait": wait, "gpus": 2,
        "gpu_type": "", "limit": 7200.0, "planned": None, "nodes": {}, "runs": [*map(list, runs)],
    } | fields  # fmt: skip


def run_of(hours: float) -> tuple[float, float, int]:
    return START_TIME + 3600.0 * hours, START_TIME + 3600.0 * (hours + 1), 2


JOBS = [
    row("1", 0.0, run_of(0)),
    row("2", 3600.0, run_of(1), planned=START_TIME + 60.0),  # although two GPUs were idle
    row("3", 0.0, user="bob"),  # has not started
]


class Store:
    def diary(self, _since: float, _until: float, most: int, before: Any = None) -> list[Any]:
        """All jobs were submitted at the same time, so their ids order them."""
        rows = [job for job in JOBS if before is None or (job["submit"], job["id"]) < before]
        return rows[-most:]


def answers() -> QueryService:
    controller = SimpleNamespace(document={"port": "shadow", "nodes": NODES})
    return QueryService(cast(Any, controller), cast(Any, None), cast(Any, None), Config())


def diary_for(viewer: Viewer, **arguments: Any) -> Any:
    period = {"since": START_TIME, "until": NOW, "most": 100}
    return answers().diary(viewer, period | arguments, cast(PostgresStore, Store()))


@pytest.fixture
def hopsd(tmp_path: Path) -> Iterator[Path]:
    def answer(request: Request) -> Any:
        return diary_for(Viewer(0, "root"), **request.arguments)

    server = LocalServer(tmp_path / "sock", answer)
    yield tmp_path
    server.close()


def run_report(hopsd: Path, *options: str) -> str:
    result = CliRunner().invoke(
        cli,
        ["shadow", "report", "--socket", f"{hopsd}/sock", "--since", "1d",
         "--out", f"{hopsd}/out", *options],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_report_names_jobs_that_would_have_started_earlier(hopsd: Path) -> None:
    output = run_report(hopsd)
    assert "on 4 GPUs of 2 servers" in output  # CPUs are not included
    assert output.index("What this assumes") < output.index("as it was") < output.index("slurm")
    assert "1 job would have started earlier, 0 later, 1 within a minute" in output
    assert re.search(r"2 +ann +2 .* 1h00m", output)
    assert "a place for 1 of 2 started jobs earlier than Slurm started them, by 59m00s" in output
    assert "1 of them: jobs never started" in output


def test_the_report_as_json(hopsd: Path) -> None:
    report = json.loads(run_report(hopsd, "--json", "--policy", "fifo"))
    assert list(report["policies"]) == ["as it was", "hops+", "fifo"]
    assert report["at_the_time"] == {"started": 2, "earlier": 1, "median_seconds": 3540.0}
    lines = {line["job"]: line for line in csv.DictReader(io.StringIO(run_report(hopsd, "--csv")))}
    assert float(lines["2"]["slurm"]) - float(lines["2"]["hops"]) == pytest.approx(3600.0, abs=60)


def test_an_unknown_policy_is_refused_before_anything_is_simulated(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["shadow", "report", "--socket", f"{tmp_path}/none",
                                    "--policy", "hosp", "--out", f"{tmp_path}/out"])  # fmt: skip
    assert isinstance(result.exception, InputError)
    assert "hosp" in str(result.exception)


def test_the_diary_is_for_users_who_may_see_all_jobs() -> None:
    with pytest.raises(HopsError, match="jobs are private here"):
        diary_for(Viewer(7, "ann", frozenset({Private.JOBS})))
    assert len(diary_for(Viewer(7, "ann"))["jobs"]) == 3


def test_a_long_diary_is_requested_page_by_page(
    hopsd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_report(hopsd, "--csv")
    monkeypatch.setattr("hopsd.ctl.history.shadow.MAX_DIARY_ROWS", 1)
    assert run_report(hopsd, "--csv") == whole
    newest = [
        line["job"] for line in csv.DictReader(run_report(hopsd, "--csv", "--jobs", "2").split())
    ]
    assert newest == ["2"]  # the third has not started


def test_a_daemon_without_paging_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newest(request: Request) -> Any:
        return diary_for(Viewer(0, "root"), **request.arguments | {"before": None})

    monkeypatch.setattr("hopsd.ctl.history.shadow.MAX_DIARY_ROWS", 1)
    server = LocalServer(tmp_path / "sock", newest)
    result = CliRunner().invoke(cli, ["shadow", "report", "--socket", f"{tmp_path}/sock",
                                    "--out", f"{tmp_path}/out"])  # fmt: skip
    server.close()
    assert isinstance(result.exception, InputError)
    assert "hopsd is older than this hopsctl" in str(result.exception)


@pytest.mark.parametrize("before", [[], [1.0], ["1", "1"], [True, "1"], [1.0, 1], "1", [-9e99, ""]])
def test_an_unknown_job_is_refused(before: Any) -> None:
    with pytest.raises(InputError, match="before: give"):
        diary_for(Viewer(0, "root"), before=before)


@pytest.mark.parametrize("limit", [0, -1, True, "5", None, 1e9, 5001])
def test_an_invalid_number_is_refused(limit: Any) -> None:
    with pytest.raises(InputError, match="most: give"):
        diary_for(Viewer(0, "root"), most=limit)


def test_a_restarted_job_could_have_started_before_its_first_run() -> None:
    """It waited 100 s, of which 50 s between its runs; it became eligible after 20 s."""
    job = logged_job(
        row("1", 100.0, (START_TIME + 70.0, START_TIME + 80.0, 2), (START_TIME + 130.0, None, 2))
    )
    assert job.since == START_TIME + 20.0
    assert logged_job(row("2", 50.0)).since == START_TIME


def test_a_diary_without_planned_jobs_counts_none() -> None:
    assert at_the_time([]) == {"started": 0, "earlier": 0, "median_seconds": 0.0}
