"""Lightning over packed text, which resumes from its own state."""

from __future__ import annotations

from pathlib import Path

from torch.utils.data import DataLoader

from bench.elastic.ways import lightning, text
from bench.elastic.ways.common import UNEVEN_SAMPLES, Run

MODULES = lightning.MODULES


def prepare(folder: Path) -> None:
    text.prepare(folder, UNEVEN_SAMPLES)


def train(run: Run) -> None:
    data = text.PackedBlocks(run.folder / "text")
    lightning.fit(run, text.network(), DataLoader(data, batch_size=run.batch))
