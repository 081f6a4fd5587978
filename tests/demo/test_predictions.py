"""The demo's predictions beside their outcomes."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.demo.predictions import COLUMNS, Outcome, PredictionLog, is_right, summary, write


def row(job: str, kind: str, time: float, low: float, expected: float, high: float) -> Any:
    prediction = {"kind": kind, "at": time, "expected": expected, "low": low, "high": high}
    return {"id": job, "predicted": prediction}


def test_each_prediction_is_compared_with_its_outcome(tmp_path: Path) -> None:
    log = PredictionLog()
    first = {"running": [], "waiting": [row("1", "start", 0.0, 5.0, 10.0, 20.0)]}
    for document in (
        first,
        first,
        {"running": [row("1", "end", 30.0, 60.0, 70.0, 80.0), {"id": "2"}], "waiting": []},
        {"running": [], "waiting": [row("1", "start", 50.0, 55.0, 60.0, 65.0)]},
        {"running": [], "waiting": [row("gone", "start", 50.0, 55.0, 60.0, 65.0)]},
    ):
        log.note(document)
    outcomes = [Outcome("1", "train", (12.0, 90.0), 75.0)]
    rows = log.rows(outcomes)
    assert [
        (row_of_job["id"], row_of_job["kind"], row_of_job["actual"]) for row_of_job in rows
    ] == [
        ("1", "start", 12.0),
        ("1", "end", 75.0),
        ("1", "start", 90.0),
        ("gone", "start", None),
    ]
    assert [is_right(row_of_job) for row_of_job in rows[:3]] == [True, True, False]
    path = tmp_path / "predictions.csv"
    write(rows, path)
    with path.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert tuple(read[0]) == COLUMNS
    assert read[-1]["actual"] == ""
    console = Console(width=120, file=StringIO())
    with console.capture() as capture:
        console.print(summary(rows, outcomes))
    assert "2 predictions" in capture.get()
    assert "50%" in capture.get()
