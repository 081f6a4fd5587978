"""Lines of text packed into blocks of one length: a stream that resumes from its own state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from bench.elastic.ways import plain
from bench.elastic.ways.common import SAMPLES, Run

MODULES = plain.MODULES

BLOCK, LETTERS = 8, 27


class PackedBlocks(IterableDataset[Any]):
    """Yields (number of the block's first token, tokens, the next token of each). Blocks cross line
    ends; text at the end that does not fill a block is dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._place, self._first, self._rest = 0, 0, list[int]()

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        with self._path.open("rb") as file:
            file.seek(self._place)
            for line in iter(file.readline, b""):
                self._place = file.tell()
                self._rest += [max(0, letter - 96) for letter in line]
                while len(self._rest) > BLOCK:
                    tokens = torch.tensor(self._rest[: BLOCK + 1])
                    first, self._first = self._first, self._first + BLOCK
                    del self._rest[:BLOCK]
                    yield first, tokens[:-1], tokens[1:]
        self._begin()

    def state_dict(self) -> dict[str, Any]:
        return {"place": self._place, "first": self._first, "rest": list(self._rest)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._place, self._first = state["place"], state["first"]
        self._rest = list(state["rest"])


def prepare(folder: Path, samples: int = SAMPLES) -> None:
    letters = torch.randint(0, LETTERS, (samples * BLOCK,), generator=_generator()).tolist()
    text = bytes(96 + letter if letter else 10 for letter in letters)
    (folder / "text").write_bytes(text + b"\n")


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(LETTERS, 8), nn.Tanh(), nn.Linear(8, LETTERS))


def train(run: Run) -> None:
    run.join()
    plain.loop(run, PackedBlocks(run.folder / "text"), network())
