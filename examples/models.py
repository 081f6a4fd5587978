"""Small networks of different character, and synthetic data.

Every class has a prototype; a sample is a faint copy of its class's prototype plus noise. The loss
falls over some 20,000 samples, every node makes the same data, and nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

CLASSES = 10
CHANNELS, SIDE = 3, 16
FEATURES = CHANNELS * SIDE * SIDE
TOKENS, WIDTH = 16, 48


class Conv(nn.Module):
    """Much arithmetic per parameter: gains from every GPU, wherever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(CHANNELS, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.body(x.view(-1, CHANNELS, SIDE, SIDE))
        return scores


class Transformer(nn.Module):
    """A two-layer encoder over the sample, which is cut into tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES // TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=0.0, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.view(-1, TOKENS, FEATURES // TOKENS))
        scores: Tensor = self.head(self.encoder(tokens).mean(dim=1))
        return scores


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )


def wide() -> nn.Module:
    """3.7 million parameters and little arithmetic: gradients take the time, placement matters."""
    return nn.Sequential(
        nn.Linear(FEATURES, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


@dataclass(frozen=True)
class Example:
    """A network, its learning rate for a global batch of 32, and its signal-to-noise ratio."""

    build: Callable[[], nn.Module]
    lr: float
    signal: float

    def dataset(self, samples: int = 4096) -> TensorDataset:
        """Features ``(samples, FEATURES)`` float32 and labels ``(samples,)`` int64."""
        generator = torch.Generator().manual_seed(0)
        prototypes = self.signal * torch.randn(CLASSES, FEATURES, generator=generator)
        labels = torch.randint(CLASSES, (samples,), generator=generator)
        noise = torch.randn(samples, FEATURES, generator=generator)
        return TensorDataset(prototypes[labels] + noise, labels)


EXAMPLES = {
    "conv": Example(Conv, lr=0.02, signal=0.5),
    "mlp": Example(mlp, lr=0.004, signal=0.15),
    "transformer": Example(Transformer, lr=0.01, signal=0.3),
    "wide": Example(wide, lr=0.003, signal=0.12),
}
