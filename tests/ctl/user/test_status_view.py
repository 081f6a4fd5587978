"""Output for people: readable on 80 columns, with many jobs and with any job names."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from hopsd.ctl import cli, render
from hopsd.ctl.user import status
from hopsd.ctl.user.status import (
    FIRST,
    MAX_ROWS,
    _expectation,
    _facts,
    _moment,
    _prediction,
    explain_moment,
    page,
    view,
)
from hopsd.errors import InputError
from hopsd.serve.excerpt import JobSelection, excerpt, totals

Show = Callable[..., str]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Show:
    def render_status(document: dict[str, Any], width: int = 160, most: int | None = None) -> str:
        console = Console(file=io.StringIO(), width=width, highlight=False)
        monkeypatch.setattr(render, "console", console)
        console.print(view(document, most))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    return render_status


def job(number: int, **changes: object) -> dict[str, Any]:
    return {
        "id": str(number),
        "user": "ann",
        "name": "resnet50-on-imagenet-long",
        "state": "PENDING",
        "reqs": [1, 2, 4, 8],
        "placement": {},
        "since": None,
        "wait_seconds": 12345.0,
        "latency_ratio": 1.25,
        "restarts": 1,
        "profiling": False,
        "samples": 2e6,
        "samples_done": 123456.0,
        "priority": 0.125,
        "code": "outside_window",
        "reason": "number 17 in the queue",
        **changes,
    }


def document(running: list[Any], waiting: list[Any]) -> dict[str, Any]:
    return {
        "version": "1",
        "mode": "active",
        "port": "scontrol",
        "sentence": "first plan",
        "reports_refused": 0,
        "raqlr": None,
        "error": None,
        "time": 1000.0,
        "slurm_version": "22.05.8",
        "round": {"end": 1010.0, "steps": []},
        "nodes": [
            {
                "name": "gpu-node-001",
                "gpu_type": "rtx3090",
                "gpus": 8,
                "idle": 0,
                "usable": True,
                "state": "MIXED",
                "jobs": {"1": 8},
            }
        ],
        "running": running,
        "waiting": waiting,
    }


RUNNING = {"state": "RUNNING", "since": 900.0, "placement": {"gpu-node-001": 8, "gpu-node-002": 8}}


@pytest.mark.parametrize("width", [80, 160])
def test_job_user_time_and_reason_are_complete_on_any_terminal(show: Show, width: int) -> None:
    text = show(document([job(1001, **RUNNING)], [job(1002)]), width)
    assert max(map(len, text.splitlines())) <= width
    for words in ("1001", "1002", "ann", "gpu-node-001:8", "gpu-node-002:8", "1m40s", "3h25m"):
        assert words in text
    assert "number 17 in the" in text


@pytest.mark.parametrize(
    ("name", "displayed_name"),
    [
        ("[red]x[/red]", "[red]x[/red]"),
        ("[/]", "[/]"),
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202egnp", r"\u202egnp"),
    ],
)
def test_a_job_name_controls_neither_markup_nor_terminal(
    show: Show, name: str, displayed_name: str
) -> None:
    waiting = job(2, name=name, reason=name, user=name)
    text = show(document([job(1, name=name, **RUNNING)], [waiting]))
    assert text.count(displayed_name) == 4
    assert all(c.isprintable() or c == "\n" for c in text)


def large() -> dict[str, Any]:
    """A document with 400 nodes, 250 running and 15,000 waiting jobs."""
    status = document([], [])
    node = status["nodes"][0]
    nodes = [
        {**node, "name": f"n{i}", "gpu_type": kind, "idle": 3, "usable": i % 10 > 0}
        for i, kind in enumerate(["a100"] * 300 + ["v100"] * 100)
    ]
    placement = {"placement": {"n1": 4}}
    running = [job(i, **{**RUNNING, **placement}, user="bob") for i in range(250)]
    waiting = [
        job(i, partition="main", code="held" if i % 4 else "outside_window", user=f"u{i % 30}")
        for i in range(1000, 16000)
    ]
    return {**document(running, waiting), "nodes": nodes}


def test_a_large_cluster_shows_totals_first_then_some_rows(show: Show) -> None:
    whole = large()
    excerpt_of_all = excerpt(whole, JobSelection(most=MAX_ROWS))
    assert [len(excerpt_of_all[kind]) for kind in ("nodes", "running", "waiting")] == [MAX_ROWS] * 3
    text = show(excerpt_of_all)
    assert len(text.splitlines()) < 200
    assert text.index("GPUs held") > text.index("Waiting for")
    for words in (
        "3200 GPUs, 1080 idle",
        r"a100 +300 +2400 +810 +240",
        r"v100 +100 +800 +270 +80",
        r"held +11250",
        r"outside_window +3750",
        r"bob +1000 +250 +0",
        r"u0 +0 +0 +500",
        f"and {400 - FIRST} more",
        f"and {250 - FIRST} more",
        f"and {15000 - FIRST:,} more",
    ):
        assert re.search(words, text), words
    user_view = show(excerpt(whole, JobSelection(users=frozenset({"u7"}), most=MAX_ROWS)))
    assert "and 480 more" in user_view
    assert "bob" not in user_view


@pytest.mark.slow
@pytest.mark.parametrize("height", [24, 50, 100])
@pytest.mark.parametrize("width", [80, 160])
def test_a_page_fits_the_terminal_with_running_and_waiting_jobs(
    monkeypatch: pytest.MonkeyPatch, width: int, height: int
) -> None:
    steps = [
        {"job": f"{i}", "kind": "start", "from": {}, "to": {"n1": 4}, "status": "done", "error": ""}
        for i in range(200)
    ]
    whole = {**large(), "round": {"end": 1010.0, "steps": steps}}
    console = Console(file=io.StringIO(), width=width, height=height, highlight=False)
    monkeypatch.setattr(render, "console", console)
    console.print(page(excerpt(whole, JobSelection(most=MAX_ROWS))))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert len(text.splitlines()) <= height
    for words in ("Running", "bob", "Waiting", "u10"):
        assert words in text
    assert ("Waiting for" in text) == (height == 100)
    assert ("Last changes" in text) == (height > 24)


def test_a_small_cluster_fits_on_a_page(monkeypatch: pytest.MonkeyPatch, show: Show) -> None:
    whole = document([job(1, **RUNNING)], [job(2)])
    text = show(whole)
    console = Console(file=io.StringIO(), width=160, height=50, highlight=False)
    monkeypatch.setattr(render, "console", console)
    console.print(page(whole))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[1:] == text.splitlines()[1:]  # all but the clock


def test_a_pipe_gets_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = document([], [job(number) for number in range(1000, 1500)])

    def answer(_: object, **arguments: Any) -> dict[str, Any]:
        return excerpt(whole, JobSelection.parse(arguments))

    monkeypatch.setattr(status, "ask_status", answer)
    output = CliRunner().invoke(status.status, []).stdout
    assert set(range(1000, 1500)) <= {int(n) for n in re.findall(r"^ *(\d{4}) ", output, re.M)}
    assert "more" not in output


@pytest.mark.slow
def test_a_long_list_has_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = [job(i, user=f"u{i}", reason=f"{i} " + "because " * 40) for i in range(1000, 3000)]
    waiting[7]["name"] = "\N{CJK UNIFIED IDEOGRAPH-6A21}" * 3
    render.show(view(document([job(1, **RUNNING)], waiting)))
    output_lines = capsys.readouterr().out.splitlines()
    for row in waiting:
        (line,) = (line for line in output_lines if line.startswith(row["id"]))
        for words in (row["user"], row["name"], row["reason"].rstrip()):
            assert words in line
    (user_line,) = (line for line in output_lines if "u1007" in line)
    assert cell_len(user_line[: user_line.index("because")]) == len(
        output_lines[-3][: output_lines[-3].index("because")]
    )


def test_status_does_not_import_libraries_of_the_daemon() -> None:
    code = (
        "import sys, hopsd.ctl.user.status;"
        " print(sorted({'structlog', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "[]\n"


def prediction_of(kind: str) -> dict[str, Any]:
    """A prediction made at 1000: in 5 minutes (2 to 9), with 40 % of the samples done."""
    times = {"at": 1000.0, "expected": 1300.0, "low": 1120.0, "high": 1540.0}
    return {"kind": kind, **times, "source": "samples", "progress": 0.4}


def test_status_shows_predicted_starts_and_ends(show: Show) -> None:
    runs, waits = (
        job(1, predicted=prediction_of("end"), **RUNNING),
        job(2, predicted=prediction_of("start")),
    )
    lines = show(document([runs], [waits, job(3)]), width=250).splitlines()
    assert any("ends in" in line for line in lines)
    assert any("starts in" in line for line in lines)
    rows = {
        number: next(line for line in lines if line.split()[:1] == [number]) for number in "123"
    }
    assert all("5m00s (2m00s to 9m00s)" in rows[number] for number in "12")
    assert "m00s" not in rows["3"]


def test_explain_shows_the_age_of_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1060.0)
    assert _prediction(job(2)) == []
    facts = dict(_prediction(job(1, predicted=prediction_of("end"))))
    assert str(facts["ends in"]).startswith("4m00s (1m00s to 8m00s), by ")
    assert str(facts["ends in"]).endswith("; estimated 1m00s ago, 80 % interval")
    assert facts["progress"] == "40%"
    assert "starts in" in dict(_prediction(job(2, predicted=prediction_of("start"))))


def test_explain_names_the_source_of_run_times() -> None:
    """Regression: a never measured workload had "47h00m" beside "ends in 5m00s"."""
    new = job(1, age_seconds=169_200.0, samples=1e5, source="assumed")
    assert _expectation(new) == "47h00m, at an assumed speed: none was measured yet"
    assert _expectation(new | {"source": "model"}) == "47h00m"
    limit = {**prediction_of("end"), "source": "time limit"}
    assert str(dict(_prediction(job(1, predicted=limit)))["ends in"]).endswith(
        " ago, 80 % interval, from its time limit"
    )
    loop: dict[str, Any] = dict.fromkeys(("seconds", "low", "high"), 169_200.0)
    loop["source"] = "from its training loop"
    assert _expectation(new | {"samples": None, "expected": loop}) == (
        "about 47h00m, from its training loop, at an assumed speed: none was measured yet"
    )


def test_explain_gives_a_reason_without_a_code_alone() -> None:
    """Regression: "None: hops is paused"."""
    names = (
        "comment expected sensitivity gain throughput source workload age_seconds between noticed"
    )
    absent: dict[str, Any] = dict.fromkeys(names.split())
    row = job(1) | absent
    assert dict(_facts(row))["waits because"] == "outside_window: number 17 in the queue"
    paused = row | {"code": None, "reason": "hops is paused"}
    assert dict(_facts(paused))["waits because"] == "hops is paused"


def test_a_small_cluster_is_shown_completely(show: Show) -> None:
    whole = document([job(1, **RUNNING)], [job(number) for number in range(1000, 1000 + MAX_ROWS)])
    assert show(excerpt(whole, JobSelection(most=MAX_ROWS))) == show(whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"most": -1}, "most"),
        ({"most": "5"}, "most"),
        ({"most": True}, "most"),
        ({"users": "ann"}, "users"),
        ({"states": [1]}, "states"),
        ({"partitions": {}}, "partitions"),
    ],
)
def test_an_unintelligible_filter_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        JobSelection.parse(arguments)


def test_a_page_names_some_rows_and_counts_the_others(show: Show) -> None:
    text = show(document([], [job(number) for number in range(1000, 2000)]), most=5)
    assert "1004" in text
    assert "1005" not in text
    assert "and 995 more" in text


def test_refused_reports_are_counted_in_the_headline(show: Show) -> None:
    assert "refused" not in show(document([], []))
    assert "1,234 reports refused" in show({**document([], []), "reports_refused": 1234})


def test_the_headline_shows_its_age(show: Show) -> None:
    status = document([], [])
    assert re.search(r":\d\d, 2h00m ago", show({**status, "time": time.time() - 7230.0}))
    assert re.search(r":\d\d, [0-9]s ago", show({**status, "time": time.time()}))
    assert " ago" not in show({**status, "time": None, "round": None})


def test_a_cluster_without_jobs_gives_empty_tables(show: Show) -> None:
    text = show({**document([], []), "nodes": [], "round": None, "time": None})
    assert "0 GPUs, 0 idle" in text


def test_gpus_of_plain_jobs_count_as_held(show: Show) -> None:
    status = document([], [])
    node = {**status["nodes"][0], "jobs": {"1": 5}, "foreign": 3}
    assert "job 1:5 plain jobs:3" in show({**status, "nodes": [node]})
    assert "plain jobs" not in show(status)


def test_cpus_are_not_counted_as_gpus(show: Show) -> None:
    status = document([], [])
    cpus = {**status["nodes"][0], "name": "c0", "gpu_type": "cpu", "gpus": 2, "idle": 1}
    assert "8 GPUs, 0 idle  RAQLR" in show(status)
    text = show({**status, "nodes": [*status["nodes"], cpus]})
    assert "8 GPUs, 0 idle, 2 CPUs, 1 idle" in text


def test_cpus_held_by_a_user_are_not_counted_as_gpus() -> None:
    status = document([job(1, **RUNNING), job(2, **RUNNING | {"placement": {"c0": 2}})], [])
    cpus = {**status["nodes"][0], "name": "c0", "gpu_type": "cpu", "gpus": 2, "idle": 0}
    totals_with_cpus = totals({**status, "nodes": [*status["nodes"], cpus]})
    assert totals_with_cpus["users"] == [{"user": "ann", "gpus": 16, "running": 2, "waiting": 0}]


def test_the_table_of_gpus_omits_cpus(show: Show) -> None:
    whole = large()
    cpus = {**whole["nodes"][0], "name": "c0", "gpu_type": "cpu", "gpus": 2, "idle": 0}
    text = show(excerpt({**whole, "nodes": [*whole["nodes"], cpus]}, JobSelection(most=MAX_ROWS)))
    assert "2 CPUs" in text
    assert not re.search(r"^ *cpu +1 ", text, re.M)


def test_jobs_can_be_filtered_by_user_partition_and_state() -> None:
    running = [job(1, **RUNNING, partition="gpu,long"), job(2, **RUNNING, partition="short")]
    waiting = [job(3, partition="gpu", user="bob"), job(4, partition="gpu", code="held")]
    whole = document(running, waiting)

    def ids_of_choice(users: list[str], partitions: list[str], states: list[str]) -> list[str]:
        arguments = {"users": users, "partitions": partitions, "states": states}
        status = excerpt(whole, JobSelection.parse(arguments))
        assert status["nodes"] == whole["nodes"]
        return [row["id"] for kind in ("running", "waiting") for row in status[kind]]

    assert ids_of_choice([], [], []) == ["1", "2", "3", "4"]
    assert ids_of_choice(["bob", "carl"], [], []) == ["3"]
    assert ids_of_choice([], ["long"], []) == ["1"]
    assert ids_of_choice(["ann"], ["gpu"], []) == ["1", "4"]
    assert ids_of_choice([], [], ["pending"]) == ["3", "4"]
    assert ids_of_choice([], [], ["HELD", "running"]) == ["1", "2", "4"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_truncated_whatever_the_number_of_columns(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    monkeypatch.setattr(render, "console", console)
    words = ["17", "elastic-training", "COMPLETED", "12", "1h02m", "1.25", "800,000", "0.125"]
    console.print(render.table("Jobs", [f"column{i}" for i in range(8)], [words]))
    assert isinstance(console.file, io.StringIO)
    output = console.file.getvalue()
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    characters = [c for c in output if c.isalnum()]
    for character in "".join(words):
        if character.isalnum():
            characters.remove(character)


def test_the_past_is_explained_from_records() -> None:
    history = {
        "record": {"submit": 100.0, "end": 400.0, "state": "COMPLETED"},
        "placements": [{"start": 200.0, "end": 300.0, "nodes": {"n0": 2}, "profiling": False}],
        "reasons": [
            {"since": 110.0, "until": 200.0, "code": "held", "reason": "it is held"},
            {"since": 300.0, "until": None, "code": "limit", "reason": "a limit"},
        ],
    }
    for prediction, explanation in (
        (99.0, "was submitted later"),
        (105.0, "nothing is recorded"),
        (110.0, "waited, since"),
        (199.0, "it is held"),
        (200.0, "ran on n0:2"),
        (300.0, "a limit"),
        (400.0, "had ended"),
    ):
        assert explanation in explain_moment("17", history, prediction), prediction


@pytest.mark.parametrize(
    ("state", "end", "placements"), [("COMPLETED", 400.0, True), ("CANCELLED", 400.0, False)]
)
def test_a_job_that_left_the_queue_is_explained_from_its_record(
    monkeypatch: pytest.MonkeyPatch, state: str, end: float, placements: bool
) -> None:
    record = {
        "user": "ann",
        "name": "lm",
        "workload": "ann/lm",
        "state": state,
        "submit": 100.0,
        "end": end,
        "wait_seconds": 65.0,
        "run_seconds": 3660.0,
        "age_seconds": 3600.0,
        "latency_ratio": 0.018,
        "restarts": 2,
        "samples_done": 4e5,
    }
    ran = [{"start": 200.0, "end": end, "nodes": {"n0": 2}, "profiling": False}]
    history = {"record": record, "placements": ran if placements else [], "events": []}
    monkeypatch.setattr(status, "ask_daemon", lambda *_, **__: {"job": None, "history": history})
    answer = CliRunner().invoke(status.explain, ["17"])
    assert answer.exit_code == 0, answer.output
    for words in (state, "ann/lm", "1m05s", "1h01m", "0.018", "400,000"):
        assert words in answer.output
    assert ("n0:2" in answer.output) == placements


@pytest.mark.parametrize(
    ("state", "profiling", "is_lost"),
    [
        ("FAILED", True, True),
        ("COMPLETED", True, True),
        ("FAILED", False, False),
        ("CANCELLED", True, False),
    ],
)
def test_a_job_that_slurm_forgot_in_its_measuring_run_must_be_submitted_again(
    state: str, profiling: bool, is_lost: bool
) -> None:
    record = dict.fromkeys(("wait_seconds", "run_seconds", "latency_ratio", "restarts", "end"), 0.0)
    record |= {"samples_done": 0.0}
    ran = [
        {"start": 100.0, "end": 150.0, "nodes": {"n0": 1}, "profiling": is_measured}
        for is_measured in (not profiling, profiling)
    ]
    history = {
        "record": {**record, "state": state, "workload": "w"},
        "placements": ran,
        "events": [],
    }
    console = Console(record=True, width=200, file=io.StringIO())
    for part in status.explanation("17", {"job": None, "history": history}):
        console.print(part)
    assert ("submit it again" in console.export_text()) == is_lost


def test_a_time_of_day_means_its_last_occurrence() -> None:
    now = datetime(2026, 3, 1, 9, 0, tzinfo=UTC).astimezone()
    midnight = datetime.combine(datetime(1900, 1, 1), now.time())  # noqa: DTZ001 - as click reads it
    assert now.timestamp() - _moment(midnight, now) == 0.0
    microsecond_later = midnight.replace(microsecond=1)
    assert now.timestamp() - _moment(microsecond_later, now) == pytest.approx(86400.0)
    whole_date = datetime(2026, 2, 3, 4, 5)  # noqa: DTZ001 - as click reads it: local
    assert _moment(whole_date, now) == whole_date.astimezone().timestamp()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["status", "--state", "waiting"], "choose from pending, running, "),
        (["explain", "1", "--at", "25:00"], "give a time as in 14:30"),
    ],
)
def test_a_filter_that_no_job_can_match_is_refused(words: list[str], hint: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, hint in result.output) == (2, True), result.output
