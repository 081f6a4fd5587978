"""Transformers' Trainer: ``plain``, ``accumulate`` or ``iterable``."""

import sys

import hand_clock
import tiny
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

KIND, BATCH = sys.argv[1], 8
ACCUMULATION_STEPS = 4 if KIND == "accumulate" else 1


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, index):
        words = torch.randint(203, (24,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return (Rows()[n] for n in range(2000))


class Clocks(TrainerCallback):
    def on_step_end(self, *_, **__):
        hand_clock.step(BATCH * ACCUMULATION_STEPS)

    def on_evaluate(self, *_, **__):
        hand_clock.pause()


trainer = Trainer(
    model=tiny.language_model(),
    args=TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATION_STEPS,
        max_steps=200,
        eval_strategy="steps",
        eval_steps=9,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
    ),
    train_dataset=Stream() if KIND == "iterable" else Rows(),
    eval_dataset=torch.utils.data.Subset(Rows(), range(16)),
    callbacks=[Clocks()],
)
trainer.evaluate()
trainer.train()
