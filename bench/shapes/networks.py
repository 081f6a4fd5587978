"""Four networks of different character, with random data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

VOCABULARY, TOKENS = 2000, 32


class Convolutions(nn.Module):
    """Much arithmetic for each parameter."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 24), (24, 48), (48, 96), (96, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4, 10))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.body(x)
        return scores


class Recommender(nn.Module):
    """Dense embeddings of 16 categories and a small network: many parameters, little work."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16 * 2500, 32)
        self.body = nn.Sequential(nn.Linear(16 * 32, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: Tensor) -> Tensor:
        offsets = 2500 * torch.arange(16)
        scores: Tensor = self.body(self.embed(x + offsets).flatten(1))
        return scores


class Transformer(nn.Module):
    """Three encoder layers over token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 128)
        layer = nn.TransformerEncoderLayer(
            128, nhead=4, dim_feedforward=384, dropout=0.0, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=3, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.encoder(self.embed(x)).mean(dim=1))
        return scores


class Recurrent(nn.Module):
    """Two LSTM layers over token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 96)
        self.lstm = nn.LSTM(96, 160, num_layers=2, batch_first=True)
        self.head = nn.Linear(160, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(self.embed(x))[0][:, -1])
        return scores


@dataclass(frozen=True)
class Network:
    """``sample(n)`` makes n samples; each device trains on ``batch`` of them at a time."""

    build: Callable[[], nn.Module]
    sample: Callable[[int], Tensor]
    batch: int


def _tokens(count: int) -> Tensor:
    return torch.randint(VOCABULARY, (count, TOKENS))


NETWORKS = {
    "convolutions": Network(Convolutions, lambda n: torch.randn(n, 3, 32, 32), 32),
    "recommender": Network(Recommender, lambda n: torch.randint(2500, (n, 16)), 1024),
    "transformer": Network(Transformer, _tokens, 24),
    "lstm": Network(Recurrent, _tokens, 48),
}
