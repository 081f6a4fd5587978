"""Lightly's self-supervised losses: ``moco``, ``byol``, ``dino``, ``barlow`` or ``mae``."""

import sys

import hand_clock
import torch
from lightly import loss, models
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import nn
from torch.utils.data import DataLoader

KIND, BATCH = sys.argv[1], 16


class Views(torch.utils.data.Dataset):
    """Views of made-up images; for DINO, those after the first two are smaller."""

    def __len__(self):
        return BATCH * 30

    def __getitem__(self, index):
        torch.manual_seed(index)
        count = {"dino": 6, "mae": 1}.get(KIND, 2)
        return [torch.randn(3, *(2 * [32 if view < 2 else 16])) for view in range(count)], index


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def moco(views):
    keys = teach(online, teacher, views[1])
    return criterion(online(views[0]), keys)


def byol(views):
    targets = [teach(online, teacher, view) for view in views]
    guesses = [predictor(online(view)) for view in views]
    return criterion(guesses[0], targets[1]) + criterion(guesses[1], targets[0])


def dino(views):
    targets = [teach(online, teacher, view) for view in views[:2]]
    return criterion(targets, [online(view) for view in views], epoch=1)


def barlow(views):
    return criterion(online(views[0]), online(views[1]))


def mae(views):
    patches = views[0].unfold(2, 8, 8).unfold(3, 8, 8).flatten(4).permute(0, 2, 3, 1, 4)
    patches = patches.reshape(len(views[0]), 16, -1)
    visible = patches[:, torch.randperm(16)[:4]]
    tokens = encoder(embed(visible))
    return (head(tokens.mean(1)).reshape_as(patches) - patches).pow(2).mean()


def teach(student, target, view):
    update_momentum(student, target, 0.99)
    with torch.no_grad():
        return target(view)


def with_head():
    heads = {
        "moco": lambda: models.modules.MoCoProjectionHead(32, 32, 16),
        "byol": lambda: models.modules.BYOLProjectionHead(32, 32, 16),
        "dino": lambda: models.modules.DINOProjectionHead(32, 32, 16, 64, batch_norm=False),
        "barlow": lambda: models.modules.BarlowTwinsProjectionHead(32, 32, 32),
    }
    return nn.Sequential(network(), heads[KIND]())


modules = nn.ModuleList()
if KIND == "mae":
    embed, head = nn.Linear(192, 64), nn.Linear(64, 16 * 192)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    modules.extend([embed, encoder, head])
else:
    online, teacher = with_head(), with_head()
    deactivate_requires_grad(teacher)
    predictor = models.modules.BYOLPredictionHead(16, 32, 16)
    modules.extend([online, predictor] if KIND == "byol" else [online])
    criterion = {
        "moco": lambda: loss.NTXentLoss(memory_bank_size=(256, 16)),
        "byol": loss.NegativeCosineSimilarity,
        "dino": lambda: loss.DINOLoss(output_dim=64),
        "barlow": loss.BarlowTwinsLoss,
    }[KIND]()
optimizer = torch.optim.SGD(modules.parameters(), lr=0.01)
for _ in range(3):
    for views, _ in DataLoader(Views(), batch_size=BATCH):
        optimizer.zero_grad()
        globals()[KIND](views).backward()
        optimizer.step()
        hand_clock.step(BATCH)
