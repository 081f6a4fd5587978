"""Trials in a lane on a real GPU: results of separate runs, memory within limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.live, pytest.mark.gpu, pytest.mark.timeout(600)]

TRAIN = Path(__file__).parents[1] / "programs" / "gpu_train.py"
RANKS, LARGE = (Path(__file__).with_name("programs") / f"gpu_{n}.py" for n in ("ranks", "large"))
KINDS = ("sgd", "adam", "fused", "capturable", "convolution", "attention", "half", "accumulate",
         "keeps gradients", "compiled")  # fmt: skip
MEMORY = 400 << 20
"""Enough for a trial that runs and another's state, not for all: a state of Adam has 70 MB, and
what cuBLAS and PyTorch's cache take comes on top."""


def environment() -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "HOPS"))}
    return {**clean, "OMP_NUM_THREADS": "1"}


def run_separately(*arguments: object) -> list[str]:
    result = subprocess.run(
        [sys.executable, *map(str, arguments)], env=environment(), check=True, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    return result.stdout.splitlines()


def lane(folder: Path, lines: list[str], *options: object) -> list[dict[str, Any]]:
    """Run the trials to their end and return the turns."""
    folder.mkdir(exist_ok=True)
    (folder / "trials").write_text("\n".join(lines))
    result = subprocess.run(
        [sys.executable, "-m", "hops_profiler.lane", "trials", "--order=round-robin",
         *map(str, options)],
        cwd=folder, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    logs = {path.name: path.read_text()[-2000:] for path in folder.glob("trials.lane/*.log")}
    assert result.returncode == 0, (result.stderr, logs)
    (turns,) = folder.glob("trials.lane/turns.*")
    return [json.loads(line) for line in turns.read_text().splitlines()]


def log(folder: Path, number: int) -> list[str]:
    return (folder / f"trials.lane/{number}.log").read_text().splitlines()


@pytest.mark.parametrize("load", ["plain", "pipelined", "ahead"])
def test_losses_and_weights_equal_those_of_separate_runs(tmp_path: Path, load: str) -> None:
    expected = run_separately(TRAIN, 12, *KINDS)
    lines = [f"{TRAIN} 12 '{kind}'" for kind in KINDS]
    turns = lane(tmp_path, lines, "--iterations=1", f"--memory={MEMORY}", f"--load={load}")
    for number, kind in enumerate(KINDS, 1):
        assert log(tmp_path, number) == [line for line in expected if line.startswith(f"{kind} ")]
    assert sum(not turn["kept"] for turn in turns) > 20
    assert {turn["capacity"] for turn in turns} == {MEMORY}
    end = [turn for turn in turns if turn["bytes"] > MEMORY]
    # A running trial may exceed it if no other trial is on the device.
    assert all(turn["on_device"] == [turn["trial"]] for turn in end)


def test_states_stay_on_the_gpu_if_they_fit(tmp_path: Path) -> None:
    turns = lane(tmp_path, [f"{TRAIN} 12 adam", f"{TRAIN} 12 sgd"], "--iterations=1")
    assert log(tmp_path, 1) == run_separately(TRAIN, 12, "adam")
    assert all(turn["kept"] for turn in turns[4:])


def test_a_training_with_a_cuda_graph_finishes_before_others_run(tmp_path: Path) -> None:
    expected = run_separately(TRAIN, 12, "graph", "sgd")
    turns = lane(
        tmp_path, [f"{TRAIN} 12 {kind}" for kind in ("sgd", "graph", "sgd")], "--iterations=1",
        f"--memory={MEMORY}",
    )  # fmt: skip
    for number, kind in enumerate(("sgd", "graph", "sgd"), 1):
        lines = [line for line in log(tmp_path, number) if line.startswith(kind)]  # and warnings
        assert lines == [line for line in expected if line.startswith(kind)]
    graphs = [position for position, turn in enumerate(turns) if turn["trial"] == 2]
    assert len(graphs) == 2
    assert graphs[1] == graphs[0] + 1 or turns[graphs[0] + 1]["trial"] == 2


def test_ranks_share_a_gpu(tmp_path: Path) -> None:
    """Two ranks cannot use NCCL on one GPU, so their losses among other trials are compared with
    those in a separate lane.
    """
    separate_folder, shared_folder = tmp_path / "own", tmp_path / "shared"
    lane(separate_folder, [f"ranks=2 {RANKS} 12"], "--iterations=1")
    assert len(log(separate_folder, 1)) == 24
    lines = [f"ranks=2 {RANKS} 12", f"{TRAIN} 12 adam", f"{TRAIN} 12 sgd"]
    turns = lane(shared_folder, lines, "--iterations=1", f"--memory={MEMORY // 2}")
    for rank in "01":
        rank_lines = [
            [line for line in log(item, 1) if line.startswith(rank)]
            for item in (separate_folder, shared_folder)
        ]
        assert rank_lines[0] == rank_lines[1]
        assert len(rank_lines[0]) == 12
    assert log(shared_folder, 2) == run_separately(TRAIN, 12, "adam")
    assert sum(turn["trial"] == 1 and not turn["kept"] for turn in turns) > 2


def test_two_trials_that_each_need_over_half_of_the_gpu_take_turns(tmp_path: Path) -> None:
    turns = lane(tmp_path, [f"{LARGE} 8", f"{LARGE} 8"], "--iterations=1")
    assert log(tmp_path, 1) == log(tmp_path, 2) == ["done"]
    trials = [turn["trial"] for turn in turns]
    assert sum(a != b for a, b in pairwise(trials)) > 6, "in turns"
