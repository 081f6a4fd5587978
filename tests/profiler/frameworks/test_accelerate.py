"""Real Accelerate in a plain script, on one rank. On several: `tests/bench`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node, ProgramRun

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_spec("accelerate") is None, reason="no Accelerate"),
]

PROGRAM = Path(__file__).parents[1] / "programs" / "accelerate_plain.py"


def run(node: Node, batch: int, mode: str = "", restarts: int = 0) -> ProgramRun:
    (node.folder / "batch").write_text(str(batch))
    (node.folder / "how").write_text(mode)
    settings = {"HOPS_FRAMEWORK_SAVES": "1", "HOPS_RESTART_COUNT": str(restarts)}
    return node.run(PROGRAM, **settings, TMPDIR=str(node.folder))


@pytest.mark.long
def test_later_runs_keep_the_batch_of_the_first_one_without_accumulate(node: Node) -> None:
    """This also holds if gradients are clipped after each backward pass."""
    uninterrupted = run(node, batch=8)
    assert (uninterrupted.code, run(node, 8, "stop", 1).code) == (0, 3), uninterrupted.err
    assert uninterrupted.reports[0]["planned"] is not None
    assert uninterrupted.reports[0]["keeps_steps"]
    folder = node.folder / "_hops-17"
    assert sorted(path.name for path in folder.iterdir()) == ["beginning.json", "started.json"]
    second_run = run(node, batch=3, restarts=2)
    assert second_run.code == 0, second_run.err
    assert not folder.exists()
    length, *expected_losses = uninterrupted.out.split()
    got_length, *losses = second_run.out.split()
    assert got_length == length == "5"  # schedules are computed from it
    assert [float(loss) for loss in losses] == pytest.approx(
        [float(loss) for loss in expected_losses], abs=1e-5
    )


@pytest.mark.long
def test_a_script_that_counts_steps_itself_is_left_unchanged(node: Node) -> None:
    first_run = run(node, batch=8, mode="count")
    assert first_run.code == 0, first_run.err
    assert "not saved on request" in first_run.err
    assert "does not step" not in first_run.err
    second_run = run(node, batch=4, mode="count", restarts=1)
    assert second_run.code == 0, second_run.err
    assert second_run.out.split()[0] == "10"  # not 5, as with gradient accumulation


@pytest.mark.long
def test_a_resumed_run_plans_only_the_rest_of_the_training(node: Node) -> None:
    first_run, second_run = run(node, batch=8, mode="leave"), run(node, batch=8, restarts=1)
    assert second_run.code == 0, second_run.err
    (first,), (second,) = first_run.reports, second_run.reports
    assert first["iterations"] + second["iterations"] == 10
    assert second["planned"] == pytest.approx(second["iterations"], abs=1)
