"""Lightning, without a line of code for hops. It also saves on a schedule."""

from __future__ import annotations

import logging
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader

from bench.elastic.ways.common import (
    EPOCHS,
    UNEVEN_SAMPLES,
    NumberedSamples,
    Run,
    network,
    optimizer,
)

MODULES = ("torch._dynamo", "lightning.pytorch")


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, run: Run, body: nn.Module) -> None:
        super().__init__()
        self.body, self._run = body, run

    def training_step(self, batch: Any) -> Tensor:
        ids, inputs, targets = batch
        scores = self.body(inputs).flatten(0, -2)
        return self._run.loss(scores, targets.flatten(), ids.tolist())

    def on_before_optimizer_step(self, _: object) -> None:
        self._run.note(self.current_epoch, self.global_step)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return optimizer(self)


def train(run: Run) -> None:
    fit(
        run,
        network(),
        DataLoader(NumberedSamples(UNEVEN_SAMPLES), batch_size=run.batch, shuffle=True),
    )


def fit(run: Run, body: nn.Module, loader: DataLoader[Any]) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    output_folder = run.folder / "out"
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=run.ranks,
        strategy="ddp" if run.ranks > 1 else "auto",
        max_epochs=EPOCHS,
        logger=False,
        callbacks=[
            ModelCheckpoint(output_folder, every_n_train_steps=6, save_last=True),
            ModelCheckpoint(output_folder / "epochs", save_last=True),
        ],
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=output_folder,
        plugins=[TorchElasticEnvironment()],
    )
    module = Module(run, body)
    trainer.fit(module, loader, ckpt_path="last")
    run.save_weights(module)
