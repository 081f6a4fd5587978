"""A stream of tar files, like WebDataset: each epoch reads the files in another order; no state.

Samples are decoded when they are collated, so a rank decodes only its own.
"""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset

from bench.elastic.ways import plain
from bench.elastic.ways.common import SAMPLES, Run, labels, network
from bench.elastic.ways.common import features as features_of

MODULES = plain.MODULES

SHARDS = 6


class Shards(IterableDataset[Any]):
    """The members of the tar files in ``folder``: (name, content)."""

    def __init__(self, folder: Path) -> None:
        self._paths, self._epoch = sorted(folder.glob("*.tar")), 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        for path in random.Random(self._epoch).sample(self._paths, len(self._paths)):
            with tarfile.open(path) as tar:
                for member in tar:
                    file = tar.extractfile(member)
                    yield member.name, file.read() if file else b""


def decode(samples: list[tuple[str, bytes]]) -> tuple[Any, Any, Any]:
    ids = torch.tensor([int(name.partition(".")[0]) for name, _ in samples])
    rows = torch.stack([torch.frombuffer(bytearray(text), dtype=torch.float32)
                        for _, text in samples])  # fmt: skip
    return ids, rows, labels(ids)


def prepare(folder: Path, samples: int = SAMPLES) -> None:
    """Write the tar files, before the first run."""
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for sample in range(shard, samples, SHARDS):
                content = features_of(torch.tensor([sample])).numpy().tobytes()
                member = tarfile.TarInfo(f"{sample}.bin")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def train(run: Run) -> None:
    run.join()
    plain.loop(run, Shards(run.folder), network(), collate_fn=decode)
