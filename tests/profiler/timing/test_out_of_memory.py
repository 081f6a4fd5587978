"""The last report says whether the process ended because GPU memory ran out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node

pytestmark = pytest.mark.live

PROGRAM = Path(__file__).parents[1] / "programs" / "memory.py"


@pytest.mark.long
@pytest.mark.parametrize(
    ("iteration", "way", "expected_reports"),
    [
        ("0", "uncaught", [(0, True)]),
        ("2", "uncaught", [(2, True)]),
        ("2", "chained", [(2, True)]),
        ("2", "caught", [(2, False)]),
        ("0", "caught", []),
    ],
)
def test_an_uncaught_error_is_reported(
    node: Node, iteration: str, way: str, expected_reports: list[tuple[int, bool]]
) -> None:
    result = node.run(PROGRAM, iteration, way)
    assert (result.code == 0) == (way == "caught"), result.err
    assert [(r["iterations"], r["out_of_memory"]) for r in result.reports] == expected_reports


@pytest.mark.long
def test_an_error_in_a_process_started_by_pytorch_is_reported(node: Node) -> None:
    """Only the parent process sees the error, as text."""
    program = node.folder / "spawned.py"
    program.write_text(
        "import torch.multiprocessing as mp\n"
        "import torch\n"
        "def train(rank):\n"
        "    raise torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(train, nprocs=1)\n"
    )
    result = node.run(program)
    assert result.code == 1
    assert [report["out_of_memory"] for report in result.reports] == [True]
