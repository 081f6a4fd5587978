"""Lightning: hops makes it save on the signal and resume. No line of this file is for hops.

If the job runs on several nodes, hops leaves the saving to Lightning.
"""

import argparse
import os

import lightning
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
options = parser.parse_args()


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
        )

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, labels = batch
        return cross_entropy(self.body(inputs), labels)

    def on_train_batch_end(self, *_: object) -> None:
        step = self.trainer.global_step
        if step % 20 == 0 and self.trainer.is_global_zero:
            print(f"step {step} on {self.trainer.world_size} GPUs", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


lightning.seed_everything(1)
data = TensorDataset(torch.randn(8192, 64), torch.randint(10, (8192,)))
trainer = lightning.Trainer(
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("SLURM_NNODES", "1")),
    max_steps=options.steps,
    default_root_dir="lightning-run",
    enable_progress_bar=False,
)
trainer.fit(Module(), DataLoader(data, batch_size=128, shuffle=True))
