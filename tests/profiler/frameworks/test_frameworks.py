"""Real frameworks are asked to leave and started again; scripts contain no code of hops."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node, ProgramRun

pytestmark = [pytest.mark.live, pytest.mark.long]

AT = 15


def runs(finished_run: ProgramRun) -> list[tuple[int, list[str]]]:
    """Return the exit code and the losses of each run."""
    runs_of_output: list[tuple[int, list[str]]] = []
    losses: list[str] = []
    for line in finished_run.out.splitlines():
        if line.startswith("ended"):
            runs_of_output.append((int(line.split()[1]), losses))
            losses = []
        elif line.startswith(("0x", "-0x")):
            losses.append(line)
    return runs_of_output


def run_and_restart(node: Node, program: str, **extra: str) -> list[tuple[int, list[str]]]:
    pytest.importorskip("torch")
    # Without scontrol, the exit code requeues the job.
    settings = {"HOPS_REQUEUE_EXIT_CODE": "85", "HOPS_FRAMEWORK_SAVES": "1", "PATH": "/nowhere"}
    settings["TMPDIR"] = str(node.folder)
    return runs(node.program("restarted", program, str(AT), **settings, **extra))


@pytest.mark.skipif(find_spec("transformers") is None, reason="no Transformers")
def test_a_trainer_resumes_from_memory_with_bitwise_equal_losses(node: Node) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        (Path(memory) / "mounts").write_text(str(Path("/proc/self/ns/mnt").readlink()))
        _, (first_code, first), (second_code, second) = results = run_and_restart(
            node, "huggingface", HOPS_STATE_DIR=memory
        )
        assert names(Path(memory)) == ["mounts"]
    uninterrupted = results[0][1]
    assert (first_code, second_code, len(first)) == (85, 0, AT)
    assert first + second == uninterrupted
    for run in ("alone", "job"):
        assert names(node.folder / run) == ["unused"]
        assert names(node.folder / run / "unused") == []


@pytest.mark.skipif(find_spec("lightning") is None, reason="no Lightning")
def test_lightning_resumes_at_the_next_batch(node: Node) -> None:
    (_, uninterrupted), (first_code, first), (second_code, second) = run_and_restart(
        node, "lightning_loop"
    )
    assert (first_code, second_code, len(first)) == (85, 0, AT)
    assert first == uninterrupted[:AT]
    assert len(first + second) == len(uninterrupted)
    assert names(node.folder / "job") == names(node.folder / "alone") == []


@pytest.mark.skipif(find_spec("accelerate") is None, reason="no Accelerate")
def test_accelerate_leaves_at_the_next_save_of_the_script(node: Node) -> None:
    (_, uninterrupted), (first_code, first), (second_code, second) = run_and_restart(
        node, "accelerate_loop"
    )
    assert (first_code, second_code) == (85, 0)
    assert first == uninterrupted[:21]  # the first forward pass after the save
    assert len(second) == len(uninterrupted) - 20


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
