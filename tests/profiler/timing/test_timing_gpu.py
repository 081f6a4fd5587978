"""The timing plugin in a training on a real GPU."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Node

pytestmark = [pytest.mark.live, pytest.mark.gpu, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).parents[1] / "programs"


def run_on_gpu(node: Node, program: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """Return the only report and the program's output."""
    result = node.run(PROGRAMS / f"gpu_{program}.py", *arguments)
    assert result.code == 0, result.err
    (report,) = result.reports
    assert report["failure"] == ""
    return report, result.out


def test_phases_agree_with_those_measured_by_the_training_itself(node: Node) -> None:
    """The plugin does not wait for the GPU; the program raises if anything does."""
    report, output = run_on_gpu(node, "timed")
    forward, backward, update, _ = (1e-3 * value for value in json.loads(output))
    session = report["basics"]
    assert session["clock"] == "cuda"
    assert report["iterations"] == 90
    for name, truth in (("t_f", forward), ("t_b", backward), ("t_u", update)):
        assert session[name] == pytest.approx(truth, rel=0.1, abs=1e-4), (name, session, output)


def test_a_profiling_run_measures_the_gpu_rather_than_how_fast_the_loop_queues_work(
    node: Node,
) -> None:
    """The loop is as far ahead as CUDA allows; a script that replaces scontrol ends the run."""
    alone = node.run(PROGRAMS / "gpu_timed.py", profiler=False)
    assert alone.code == 0, alone.err
    scontrol = node.folder / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text("#!/bin/sh\nkill -KILL $PPID\n")
    scontrol.chmod(0o755)
    path = f"{scontrol.parent}:{os.environ['PATH']}"
    result = node.run(PROGRAMS / "gpu_timed.py", HOPS_PROFILE="50", PATH=path)
    assert result.code == -signal.SIGKILL, result.err
    (report,) = result.reports
    timed_part = report["timed"]
    assert timed_part["iterations"] >= 10
    *_, whole = (1e-3 * value for value in json.loads(alone.out))
    assert timed_part["seconds"] / timed_part["iterations"] == pytest.approx(whole, rel=0.1), report


@pytest.mark.parametrize(
    "kind", ["sgd", "fused", "capturable", "half", "accumulate", "graph", "compiled"]
)
def test_losses_are_bitwise_equal(node: Node, kind: str) -> None:
    alone = node.run(PROGRAMS / "gpu_train.py", "12", kind, profiler=False)
    assert alone.code == 0, alone.err
    report, output = run_on_gpu(node, "train", "12", kind)
    assert output == alone.out
    assert report["iterations"] == 12
    assert report["kind"] == "training"


def test_a_rank_forked_by_the_launcher_can_use_its_gpu(node: Node) -> None:
    """The launcher imports PyTorch before it forks; CUDA must not have been initialized then."""
    alone = node.run(PROGRAMS / "gpu_train.py", "12", "adam", profiler=False)
    result = node.run(
        "-m", "hops_profiler.launch", "--nproc-per-node=1", PROGRAMS / "gpu_train.py", "12", "adam"
    )
    assert result.code == 0, result.err
    assert result.out == alone.out
    (report,) = result.reports
    assert report["iterations"] == 12
