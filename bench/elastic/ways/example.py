"""examples/elastic.py, with more data than the other ways."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from bench.elastic.ways import plain
from bench.elastic.ways.common import Run

MODULES = plain.MODULES

OPTIONS = ("--global-batch", "32", "--micro-batch", "8", "--epochs", "3", "--every", "1000")

_EXAMPLES = Path(__file__).parents[3] / "examples"


def train(run: Run) -> None:
    checkpoint = run.folder / "elastic.pt"
    program = _from_examples("elastic")
    program.main(["--checkpoint", str(checkpoint), *OPTIONS, "--record", str(run.record)])


def models() -> dict[str, Any]:
    """The models of examples/models.py, by name."""
    examples: dict[str, Any] = _from_examples("models").EXAMPLES
    return examples


def _from_examples(module: str) -> Any:
    if str(_EXAMPLES) not in sys.path:
        sys.path.insert(0, str(_EXAMPLES))
    return importlib.import_module(module)
