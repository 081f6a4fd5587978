"""The real frameworks, moved between numbers of ranks: the same samples in each step."""

from __future__ import annotations

import json
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from hops_profiler.frameworks.batch import Note, Split, kept  # noqa: E402

if TYPE_CHECKING:
    from conftest import Node

MOVES = ["1:7", "2:5", "4:4", "1"]


def steps(folder: Path) -> dict[int, tuple[list[int], float]]:
    """By its number, each step's samples on all ranks, and their mean loss."""
    parts: dict[int, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            ids, losses = parts[entry["step"]]
            ids += entry["ids"]
            losses.append(entry["losses"])
    return {step: (sorted(ids), sum(losses) / len(ids)) for step, (ids, losses) in parts.items()}


def moved(node: Node, program: str, name: str, *runs: str) -> tuple[dict[int, Any], str]:
    """The steps, and what was printed, of a job in a folder ``name``."""
    folder = node.folder / name
    folder.mkdir()
    settings = {"HOPS_REQUEUE_EXIT_CODE": "85", "HOPS_FRAMEWORK_SAVES": "1", "PATH": "/nowhere"}
    arguments = [str(Path(__file__).parents[1] / "programs" / "moved.py"), program, *runs]
    code = f"import os, runpy, sys; os.chdir({str(folder)!r}); sys.argv = {arguments!r}; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = node.run("-c", code, **settings, TMPDIR=str(folder))
    assert done.code == 0, done.err
    return steps(folder), done.out + done.err


PROGRAMS = [("moved_huggingface", "transformers"), ("moved_lightning", "lightning")]


@pytest.mark.live
@pytest.mark.long
@pytest.mark.parametrize(("program", "package"), PROGRAMS)
def test_a_training_that_moves_is_the_unbroken_one(node: Node, program: str, package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"no {package}")
    alone, _ = moved(node, program, "alone", "1")
    broken, printed = moved(node, program, "broken", *MOVES)
    codes = [line.split()[1:] for line in printed.splitlines() if line.startswith("ended")]
    assert codes == [["85"], ["85"] * 2, ["85"] * 4, ["0"]], printed
    assert len(alone) == 30
    assert {step: ids for step, (ids, _) in broken.items()} == {
        step: ids for step, (ids, _) in alone.items()
    }
    for step, (_, loss) in alone.items():
        assert broken[step][1] == pytest.approx(loss, abs=1e-6)
    weights = [torch.load(node.folder / name / "weights.pt") for name in ("alone", "broken")]
    for name, tensor in weights[0].items():
        assert torch.allclose(tensor, weights[1][name], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("split", "global_batch", "wanted"),
    [
        (Split(16, 1, 2), 16, Split(8, 1, 2)),
        (Split(16, 1, 1), 64, Split(16, 4, 1)),
        (Split(16, 1, 2), 40, Split(10, 2, 2)),  # no more at a time than now
        (Split(16, 4, 4), 16, Split(4, 1, 4)),
        (Split(16, 1, 3), 16, None),
        (Split(16, 1, 4), 2, None),
    ],
)
def test_ranks_keep_the_samples_of_a_step(
    split: Split, global_batch: int, wanted: Split | None
) -> None:
    assert split.keeping(global_batch) == wanted


def test_a_step_that_cannot_be_kept_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOPS_LR", raising=False)
    split = Split(16, 1, 3)
    assert kept(split, Note(16, None)) == split
    assert "a step now has 48 samples, not 16, since 3 ranks" in capsys.readouterr().err
    monkeypatch.setenv("HOPS_LR", "0.2")
    assert kept(Split(16, 1, 2), Note(16, 0.1)) == Split(16, 1, 2)
    assert "HOPS_LR is another" in capsys.readouterr().err
    assert kept(Split(16, 1, 2), Note(16, 0.2)) == Split(8, 1, 2)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"global_batch": true, "learning_rate": 1, "accumulation": 1}']
)
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    assert Note.read(tmp_path) is Note.read(None) is None
    (tmp_path / "hops.json").write_text(text)
    assert Note.read(tmp_path) is None
    Note(16, 0.1).write(tmp_path)
    assert Note.read(tmp_path) == Note(16, 0.1)
    Note(16, 0.1).write(tmp_path / "missing")
