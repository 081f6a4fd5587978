"""`hopsctl report` from hopsd's answers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from hopsd.config import Config
from hopsd.ctl import cli
from hopsd.ctl.history.report import before_figures
from hopsd.errors import InputError
from hopsd.model.devices import CPU
from hopsd.model.history import LoggedJob, Stretch
from hopsd.model.ids import GpuType, JobId, UserName
from hopsd.model.journal import GpuUse
from hopsd.model.privacy import Private, Viewer
from hopsd.serve.answers import QueryService
from hopsd.serve.socket import LocalServer, Request
from hopsd.store.figures import RATIOS
from hopsd.store.postgres import PostgresStore

SINCE, UNTIL = 1_700_000_000.0, 1_700_086_400.0
EVIL = "bob\x1b[31m<b>"


def wait(kind: str, name: str, jobs: int = 2) -> dict[str, Any]:
    return {"by": kind, "name": name, "jobs": jobs, "gpu_seconds": 7200.0, "mean_wait": 60.0,
            "median_wait": 50.0, "p90_wait": 100.0, "mean_ratio": 0.5, "p90_ratio": 0.9,
            "max_ratio": 1.5, "mean_slowdown": 1.2}  # fmt: skip


class Store:
    """Returns fixed figures and records which users they were requested for."""

    def __init__(self) -> None:
        self.users_of_calls: list[UserName | None] = []

    def gpu_use(self, since: float, _until: float, seconds: float) -> tuple[GpuUse, ...]:
        assert seconds == 3600.0
        a, b = GpuType("a100"), GpuType("v100")
        return (
            GpuUse(since, a, hops=3600.0, fragmented=1800.0, idle=1800.0, rack_fragmented=900.0),
            GpuUse(since, b, plain=7200.0, down=3600.0),
            GpuUse(since, CPU, hops=36000.0),
        )

    def figures(
        self,
        _since: float,
        _until: float,
        _restart: float,
        user: UserName | None,
        *,
        shadow: bool,
    ) -> dict[str, Any]:
        assert not shadow
        self.users_of_calls.append(user)
        sums = {"training": 36000.0, "profiling": 3600.0, "profile_runs": 4, "restarts": 3,
                 "restarting": 1800.0}  # fmt: skip
        waits = [
            wait("all", ""),
            wait("hops", "", jobs=1),
            wait("size", "4"),
            wait("user", EVIL),
            wait("account", ""),
        ]
        ratios = [2] + [0] * len(RATIOS)
        return {
            "first": None,
            "spent": sums,
            "waits": waits,
            "slurm_jobs": 3,
            "ratios": ratios,
        }


class Document:
    def __init__(self) -> None:
        self.document = {"port": "scontrol"}


ANSWERS = QueryService(cast(Any, Document()), cast(Any, None), cast(Any, None), Config())
ROOT_VIEWER = Viewer(0, "root")
PERIOD = {"since": SINCE, "until": UNTIL}


def report_for(viewer: Viewer, store: Store, arguments: dict[str, Any] = PERIOD) -> dict[str, Any]:
    return ANSWERS.report(viewer, arguments, cast(PostgresStore, store))


@pytest.fixture
def hopsd(tmp_path: Path) -> Iterator[Path]:
    """The socket of a hopsd with these figures."""

    def answer(request: Request) -> Any:
        return report_for(ROOT_VIEWER, Store(), dict(request.arguments))

    server = LocalServer(tmp_path / "sock", answer)
    yield tmp_path / "sock"
    server.close()


def run(hopsd: Path, *options: str) -> str:
    result = CliRunner().invoke(
        cli,
        ["report", "--socket", str(hopsd), "--since", "2023-11-14", "--until", "2023-11-15",
         "--no-accounting", *options],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_report_for_people(hopsd: Path) -> None:
    output = run(hopsd)
    assert re.search(r"a100 +1 +0 +0\.5 +0\.5 +0 +50", output)
    assert re.search(r"cpu +10 +0 +0 +0 +0 +0", output)
    assert re.search(r"all +1 +2 +0\.5 +0\.5 +1 +25", output)  # CPUs are not included
    assert "Of the fragmented GPU hours 0.2 were whole racks' worth" in output
    assert "10.0 went into training (0.5 of them into 3 restarts)" in output
    assert "1.0 into 4 profile runs" in output
    assert re.search(r"none +2 +2 +1m00s +50s +1m40s", output)  # jobs without an account
    assert "\x1b[31m" not in output
    assert "3 jobs that Slurm ran while hops was a shadow are not in the figures of jobs." in output


def test_the_report_as_json(hopsd: Path) -> None:
    report = json.loads(run(hopsd, "--json"))
    assert report["gpu_hours"]["all"] == {
        "hops": 1.0, "plain": 2.0, "fragmented": 0.5, "idle": 0.5, "down": 1.0,
        "rack_fragmented": 0.25,
    }  # fmt: skip
    assert report["waits"]["user"][0]["gpu_hours"] == 2.0
    rows = {
        (row["table"], row["row"], row["figure"]): row["value"]
        for row in csv.DictReader(io.StringIO(run(hopsd, "--csv")))
    }
    assert report["over_time"][1]["plain"] == 2.0  # also in hours
    assert rows["gpu_hours", "v100", "plain"] == "2.0"
    assert rows["gpu_hours", "a100", "rack_fragmented"] == "0.25"
    begin = f"{datetime.fromtimestamp(report['since'], UTC):%Y-%m-%dT%H:%MZ}"
    assert rows["over_time", f"v100 {begin}", "plain"] == "2.0"
    assert rows["jobs", "", "restarts"] == "3"
    assert rows["waits_size", "4", "mean_wait"] == "60.0"
    assert rows["latency_ratios", "0.1", "jobs"] == "2"


def test_the_html_page_is_self_contained(hopsd: Path, tmp_path: Path) -> None:
    run(hopsd, "--html", str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text()
    assert "\x1b" not in text
    assert "bob\\x1b[31m&lt;b&gt;" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    assert text.count("<rect") == 5
    assert "Of the fragmented GPU hours 0.2 were whole racks' worth" in text
    assert "<b>75%</b>of the GPUs' time used".replace("'", "&#x27;") in text


def test_json_and_the_html_page_are_written_together(hopsd: Path, tmp_path: Path) -> None:
    """Standard output contains only the JSON object."""
    assert json.loads(run(hopsd, "--json", "--html", f"{tmp_path}/report.html"))["waits"]
    assert run(hopsd, "--csv", "--html", f"{tmp_path}/report.html").startswith("table,row,figure")


@pytest.mark.parametrize(
    ("private", "user", "use"),
    [
        ((), None, True),
        ((Private.JOBS,), "ann", True),
        ((Private.USAGE,), "ann", False),
        ((Private.NODES,), None, False),
    ],
)
def test_users_see_only_their_own_figures(
    private: tuple[Private, ...], user: str | None, use: bool
) -> None:
    store = Store()
    report = report_for(Viewer(7, "ann", frozenset(private)), store)
    assert (store.users_of_calls, report["user"], report["use"] is not None) == ([user], user, use)


@pytest.mark.parametrize("since", [None, "0", True, float("nan"), -1.0, UNTIL, 1e300, [1]])
def test_an_invalid_period_is_refused(since: Any) -> None:
    with pytest.raises(InputError, match="since: give"):
        report_for(ROOT_VIEWER, Store(), {**PERIOD, "since": since})


def test_figures_from_before_hops_match_values_by_hand() -> None:
    def job(name: str, since: float, *runs: tuple[float, float]) -> LoggedJob:
        stretches = tuple(Stretch(start, end, 2) for start, end in runs)
        return LoggedJob(JobId(name), UserName("u"), "", since, 2, stretches)

    restarted_job = job("2", 0.0, (0.0, 50.0), (80.0, 130.0))
    figures = before_figures([job("1", 0.0, (100.0, 200.0)), restarted_job])
    assert figures["gpu_hours"] == pytest.approx(400.0 / 3600.0)
    assert (figures["mean_wait"], figures["median_wait"]) == (65.0, 65.0)
    assert figures["mean_slowdown"] == pytest.approx((2.0 + 1.3) / 2)


@pytest.mark.parametrize("ours", [False, True])
def test_pruned_history_is_not_mistaken_for_the_time_before_hops(
    ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hopsd's oldest job is not its first one, since it keeps jobs only for some time."""
    ran = Stretch(SINCE - 200.0, SINCE - 100.0, 2)
    old = LoggedJob(JobId("1"), UserName("u"), "", SINCE - 300.0, 2, (ran,), ours=ours)
    monkeypatch.setattr("hopsd.ctl.history.report.read_logged", lambda *_: [old])

    def answer(request: Request) -> Any:
        return {**report_for(ROOT_VIEWER, Store(), dict(request.arguments)), "first": SINCE}

    server = LocalServer(tmp_path / "sock", answer)
    try:
        result = CliRunner().invoke(
            cli,
            ["report", "--socket", f"{tmp_path}/sock", "--json", "--since", "2023-11-14",
             "--until", "2023-11-15"],
        )  # fmt: skip
    finally:
        server.close()
    figures_before = json.loads(result.stdout)["before"]
    if ours:
        assert "hops ran jobs then that it has since deleted" in figures_before
    else:
        assert (figures_before["jobs"], figures_before["mean_wait"]) == (1, 100.0)
