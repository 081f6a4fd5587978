import logging

import lightning
import torch
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        features, labels = batch
        loss = cross_entropy(self.body(features), labels)
        show(loss.detach())
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        features, labels = batch
        show(cross_entropy(self.body(features), labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-2)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    Module(),
    DataLoader(dataset(), batch_size=BATCH),
    DataLoader(dataset(10), batch_size=BATCH),
)
