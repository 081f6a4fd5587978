"""Hugging Face Trainer: hops makes it save on the signal and resume. No line here is for hops."""

import argparse

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
options = parser.parse_args()


class Rows(torch.utils.data.Dataset):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(8192, 64, generator=generator)
        self.labels = torch.randint(10, (8192,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.inputs[index], "labels": self.labels[index]}


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.body(x)
        return {"loss": cross_entropy(scores, labels), "logits": scores}


class Progress(TrainerCallback):
    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        _: TrainerControl,
        logs: dict[str, float],
        **__: object,
    ) -> None:
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} on {args.world_size} GPUs", flush=True)


Trainer(
    model=Network(),
    args=TrainingArguments(
        output_dir="trainer-run",
        max_steps=options.steps,
        per_device_train_batch_size=128,
        logging_steps=20,
        save_steps=500,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    ),
    train_dataset=Rows(),
    callbacks=[Progress()],
).train()
