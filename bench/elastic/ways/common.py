"""What all ways share: data, a network, and notes of what a rank has computed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

SAMPLES, GLOBAL_BATCH, EPOCHS = 144, 12, 3
"""12 is a multiple of 1 to 4 ranks: a training may begin on any of them."""

UNEVEN_SAMPLES = 139
"""With this many samples, the last step of an epoch has 7: a different number on each rank."""

FEATURES, CLASSES = 8, 4


def features(ids: Tensor) -> Tensor:
    """Features of samples by a fixed rule: float32, one row each."""
    return torch.sin(ids.to(torch.float64)[:, None] * torch.arange(1, FEATURES + 1) * 0.7).float()


def labels(ids: Tensor) -> Tensor:
    return (features(ids)[:, :2].sum(1) * 2).round().long() % CLASSES


class NumberedSamples(Dataset[Any]):
    """Samples with their numbers: (number, features, label)."""

    def __init__(self, length: int = SAMPLES) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[int, Tensor, Tensor]:
        ids = torch.tensor([index])
        return index, features(ids)[0], labels(ids)[0]


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


@dataclass
class Run:
    """One rank of one run of the training in ``folder``; it notes its steps in ``record``.
    ``first_ranks`` is the number of ranks of the run that began the training.
    """

    folder: Path
    record: Path
    rank: int
    ranks: int
    first_ranks: int
    _ids: list[int] = field(default_factory=list)
    _loss: float = 0.0
    _users: list[Any] = field(default_factory=list)

    def loss(self, scores: Tensor, labels: Tensor, ids: Any) -> Tensor:
        """Return the mean loss over a micro-batch, and note it."""
        loss = cross_entropy(scores, labels)
        self._ids += [int(sample) for sample in ids]
        self._loss += float(loss.detach()) * len(ids)
        return loss

    def note(self, epoch: int, step: int) -> None:
        """Write a note: all micro-batches of this step are computed."""
        entry = {"epoch": epoch, "step": step, "ids": self._ids, "loss_sum": self._loss}
        with (self.record / f"{self.ranks}.{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
        self._ids, self._loss = [], 0.0

    def save_weights(self, model: nn.Module) -> None:
        """Save the weights of a training that has ended."""
        if self.rank == 0:
            partial = self.folder / "weights.partial"
            torch.save(model.state_dict(), partial)
            partial.replace(self.folder / "weights.pt")

    def keep_to_the_end(self, *users: Any) -> None:
        """Keep the users of the group of ranks alive until the process exits. The destructor of
        Gloo's group joins a worker while it holds the GIL, which that worker may need to release a
        tensor. Even without hops, some ranks of a plain DistributedDataParallel hang as their
        function returns (PyTorch's issue 190489).
        """
        self._users += users

    @property
    def batch(self) -> int:
        """Batch per rank: that of the first run, as a script with a fixed batch has it."""
        return GLOBAL_BATCH // self.first_ranks

    def join(self) -> None:
        """Initialize Gloo among the ranks."""
        if self.ranks > 1:
            torch.distributed.init_process_group("gloo", rank=self.rank, world_size=self.ranks)
