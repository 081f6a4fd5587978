import json
import logging
import os
import time
from pathlib import Path

import lightning
import torch
from common import BATCH, FEATURES, dataset
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
SAMPLES = 160
NOTED = Path(f"{os.environ['RUN']}.{os.environ['RANK']}.jsonl")


class Rows(Dataset):
    def __init__(self) -> None:
        self.features, self.labels = dataset().tensors

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.features[index], self.labels[index], index


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(FEATURES, 4)
        self.ids: list[int] = []
        self.losses, self.noted = 0.0, None

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        features, labels, ids = batch
        loss = cross_entropy(self.body(features), labels)
        self.ids += ids.tolist()
        self.losses += float(loss.detach()) * len(ids)
        return loss

    def on_before_optimizer_step(self, _: object) -> None:
        entry = {"step": self.global_step + 1, "ids": self.ids, "losses": self.losses}
        with NOTED.open("a") as noted:
            noted.write(json.dumps(entry) + "\n")
        self.ids, self.losses = [], 0.0
        time.sleep(0.03)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["WORLD_SIZE"]),
    strategy="ddp" if os.environ["WORLD_SIZE"] != "1" else "auto",
    max_epochs=3,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir="unused",
    plugins=[TorchElasticEnvironment()],
)
module = Module()
trainer.fit(module, DataLoader(Rows(), batch_size=BATCH, shuffle=True))
if os.environ["RANK"] == "0":
    torch.save(module.state_dict(), "weights.pt")
