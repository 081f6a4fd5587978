"""Trainer over a stream of tar files, whose length is unknown to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.elastic.ways import trainer, webdataset
from bench.elastic.ways.common import EPOCHS, UNEVEN_SAMPLES, Run

MODULES = trainer.MODULES


def prepare(folder: Path) -> None:
    webdataset.prepare(folder, UNEVEN_SAMPLES)


def train(run: Run) -> None:
    shards = webdataset.Shards(run.folder)
    trainer.fit(run, shards, _decode, max_steps=EPOCHS * trainer.STEPS)


def _decode(samples: list[tuple[str, bytes]]) -> dict[str, Any]:
    ids, rows, labels = webdataset.decode(samples)
    return {"x": rows, "labels": labels, "ids": ids}
