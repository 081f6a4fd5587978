"""Trainings on real ranks that are killed and moved equal their unbroken runs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")

from bench.elastic.moves import Difference, compare
from bench.elastic.ranks import Step, Training

ROOT = Path(__file__).parents[2]
PACKAGES = {"trainer": "transformers", "lightning": "lightning", "accelerate": "accelerate"}
OURS = ("plain", "webdataset", "text", "accelerate")


def rows_of_moves(ways: tuple[str, ...], *options: str) -> dict[str, dict[str, str]]:
    """The rows of the table, by way and column."""
    for way in ways:
        if way in PACKAGES and find_spec(PACKAGES[way]) is None:
            pytest.skip(f"no {PACKAGES[way]}")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOPS_", "SLURM"))}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "bench.elastic.moves", "--ways", *ways, *options],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    head, *rows = [line.split() for line in result.stdout.splitlines()]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


@pytest.mark.long
@pytest.mark.live
def test_trainings_that_are_killed_and_moved_equal_the_unbroken_ones() -> None:
    rows = rows_of_moves(OURS, "--sequences", "1", "--seed", "9")
    assert tuple(rows) == OURS
    assert {row["equal"] for row in rows.values()} == {"1"}
    # Progress at the stop depends on the machine: a training may not have saved yet.
    assert any(int(row["resumed"]) for row in rows.values())


@pytest.mark.live
@pytest.mark.long
@pytest.mark.parametrize("way", [*OURS, "trainer", "lightning"])
def test_several_moved_trainings_equal_the_unbroken_ones(way: str) -> None:
    assert rows_of_moves((way,), "--sequences", "4", "--seed", "40")[way]["equal"] == "4"


LAST_STEP = """
import os, signal, sys, time
from pathlib import Path
from bench.elastic.ranks import Training
from bench.elastic.ways import common
import accelerate

note, load = common.Run.note, accelerate.Accelerator.load_state

def noted(run, epoch, step):
    note(run, epoch, step)
    if step == 35:
        os.kill(os.getpid(), signal.SIGUSR1)

def late(accelerator, *args):
    if accelerator.process_index:
        time.sleep(3)
    load(accelerator, *args)

def ended(run):
    while run.is_running():
        time.sleep(0.01)
    return signal.SIGUSR1

common.Run.note, accelerate.Accelerator.load_state = noted, late
training = Training(Path(sys.argv[1]), "accelerate")
assert not training.run(1, ended)
assert not training.has_ended
assert training.run(2)
assert training.has_ended
"""


@pytest.mark.long
@pytest.mark.live
@pytest.mark.skipif(find_spec("accelerate") is None, reason="no Accelerate")
def test_a_rank_that_leaves_after_its_last_step_waits_for_the_slowest_loader(
    tmp_path: Path,
) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOPS_", "SLURM"))}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LAST_STEP, tmp_path],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    files = "".join(path.read_text() for path in tmp_path.glob("run-*/*.err"))
    assert result.returncode == 0, result.stderr + files


class StepsTraining(Training):
    """A training whose steps are given."""

    def __init__(self, *runs: dict[tuple[int, int], Step]) -> None:
        super().__init__(Path(), "plain", [1] * len(runs))
        self._given_steps = list(runs)

    def steps(self) -> list[dict[tuple[int, int], Step]]:
        return self._given_steps

    def weights(self) -> dict[str, object]:
        import torch  # noqa: PLC0415 - it may be missing

        return {"weight": torch.zeros(2)}


def test_a_training_that_differs_is_detected() -> None:
    first, second = Step(frozenset({1, 2}), 0.5), Step(frozenset({3}), 0.25)
    alone = StepsTraining({(0, 0): first, (0, 1): second})
    no_difference = compare(alone, StepsTraining({(0, 0): first}, {(0, 1): second}))
    assert no_difference == Difference(1, 1, 0, 0.0, 0.0)
    assert no_difference.is_the_same
    small_step = Step(frozenset({3, 4}), 0.25)
    for wrong in ({(0, 1): small_step}, {(1, 1): second}, {}):
        assert not compare(alone, StepsTraining({(0, 0): first}, wrong)).is_the_same
    slow_step = Step(second.ids, 0.25 + 2e-6)
    assert not compare(alone, StepsTraining({(0, 0): first, (0, 1): slow_step})).is_the_same
