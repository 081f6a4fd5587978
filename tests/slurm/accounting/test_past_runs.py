"""Past runs from Slurm's accounting."""

from __future__ import annotations

from datetime import datetime

import pytest

from hopsd.model.reading import SlurmState
from hopsd.slurm.accounting.past_runs import parse_past_runs
from hopsd.store.past_runs import past_run

ROW = "17|ann|lab|2026-01-31T12:00:00|2026-01-31T14:00:00|3600|cpu=8,gres/gpu=2,node=1|COMPLETED|t"


def row(**changes: str) -> str:
    names = ("id", "user", "account", "submit", "end", "elapsed", "tres", "state", "name")
    return "|".join((dict(zip(names, ROW.split("|"), strict=True)) | changes).values())


def test_a_run_becomes_a_past_run() -> None:
    (record,) = parse_past_runs([ROW])
    run = past_run(record)
    assert run is not None
    assert (run.user, run.account, run.name) == ("ann", "lab", "t")
    assert (run.seconds, run.gpu_seconds, run.samples) == (3600.0, 7200.0, 0.0)
    assert run.end == datetime.fromisoformat("2026-01-31T14:00:00").astimezone().timestamp()


@pytest.mark.parametrize(
    ("state", "expected_state"),
    [
        ("CANCELLED by 1000", SlurmState.CANCELLED),
        ("OUT_OF_MEMORY", SlurmState.FAILED),
        ("TIMEOUT", SlurmState.TIMEOUT),
    ],
)
def test_every_way_to_end_is_read(state: str, expected_state: SlurmState) -> None:
    assert [record.state for record in parse_past_runs([row(state=state)])] == [expected_state]


def test_array_tasks_and_names_with_separators_are_read() -> None:
    (record,) = parse_past_runs([row(id="17_4", name="a|b c")])
    assert (record.id, record.name) == ("17_4", "a|b c")


def test_gpus_may_be_counted_by_type_only() -> None:
    (record,) = parse_past_runs([row(tres="cpu=8,gres/gpu:a100=3,gres/gpu:h100=1")])
    assert record.attained_gpu_seconds == 4 * 3600.0


@pytest.mark.parametrize(
    "line",
    [
        "",
        "17|ann",
        row(tres="cpu=8"),
        row(tres="gres/gpu=many"),
        row(elapsed="0"),
        row(elapsed="nan"),
        row(elapsed="1e400"),
        row(end="Unknown"),
        row(state="NODE_FAIL?"),
        row(user=""),
        row(id="17+0"),
        row(id="17.batch"),
    ],
)
def test_other_lines_are_skipped(line: str) -> None:
    assert [record.id for record in parse_past_runs([line, ROW])] == ["17"]
