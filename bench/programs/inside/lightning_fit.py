"""Lightning's Trainer, with its sanity check and a validation after some batches."""

import hand_clock
import lightning
import tiny
import torch
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = tiny.network()

    def training_step(self, batch):
        return torch.nn.functional.cross_entropy(self.body(batch[0]), batch[1])

    def validation_step(self, batch):
        self.log("loss", torch.nn.functional.cross_entropy(self.body(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Clocks(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        hand_clock.step(len(batch[0]))

    def on_validation_start(self, *_):
        hand_clock.pause()


lightning.Trainer(
    accelerator="cpu",
    max_epochs=3,
    val_check_interval=15,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=[Clocks()],
).fit(
    Module(),
    DataLoader(tiny.rows(4000), batch_size=64),
    DataLoader(tiny.rows(100), batch_size=64),
)
