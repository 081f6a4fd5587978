"""Hugging Face Trainer, without a line of code for hops. It also saves on a schedule."""

from __future__ import annotations

from typing import Any

import transformers
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers.trainer_utils import get_last_checkpoint

from bench.elastic.ways.common import (
    EPOCHS,
    GLOBAL_BATCH,
    UNEVEN_SAMPLES,
    NumberedSamples,
    Run,
    network,
    optimizer,
)

MODULES = ("torch._dynamo", "transformers.trainer")


STEPS = -(-UNEVEN_SAMPLES // GLOBAL_BATCH)
"""Steps of an epoch."""


class Rows(Dataset[Any]):
    def __init__(self) -> None:
        self._samples = NumberedSamples(UNEVEN_SAMPLES)

    def __len__(self) -> int:
        return UNEVEN_SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        number, inputs, label = self._samples[index]
        return {"x": inputs, "labels": label, "ids": number}


class Model(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.body, self._run = network(), run

    def forward(self, x: Tensor, labels: Tensor, ids: Tensor) -> dict[str, Tensor]:
        scores = self.body(x)
        return {"loss": self._run.loss(scores, labels, ids.tolist()), "logits": scores}


class Notes(transformers.TrainerCallback):  # type: ignore[misc]
    def __init__(self, run: Run) -> None:
        self._run = run

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        step = state.global_step - 1
        self._run.note(step // STEPS, step)


def train(run: Run) -> None:
    fit(run, Rows(), num_train_epochs=EPOCHS)


def fit(run: Run, dataset: Any, collate: Any = None, **options: Any) -> None:
    """Train with the Trainer; ``options`` go to TrainingArguments."""
    transformers.set_seed(1)
    model = Model(run)
    arguments = transformers.TrainingArguments(
        output_dir=str(run.folder / "out"),
        per_device_train_batch_size=run.batch,
        save_strategy="steps",
        save_steps=7,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        learning_rate=1e-2,
        **options,
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=collate,
        callbacks=[Notes(run)],
        optimizers=(optimizer(model), None),
    )
    (run.folder / "out").mkdir(exist_ok=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(run.folder / "out"))
    run.save_weights(model)
