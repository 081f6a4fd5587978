"""TRL's trainers: ``SFT``, ``DPO`` or ``Reward``."""

import sys

import hand_clock
import tiny
import trl
from datasets import Dataset
from transformers import LlamaForSequenceClassification, TrainerCallback

KIND, BATCH = sys.argv[1], 4


class Clocks(TrainerCallback):
    def on_step_end(self, *_, **__):
        hand_clock.step(BATCH)

    def on_evaluate(self, *_, **__):
        hand_clock.pause()


def row(number):
    if KIND == "SFT":
        return {"text": tiny.text(number)}
    return {
        "prompt": tiny.text(number, 4),
        "chosen": " " + tiny.text(number + 1, 6),
        "rejected": " " + tiny.text(number + 2, 6),
    }


rows = Dataset.from_list([row(number) for number in range(400)])
model = tiny.language_model()
if KIND == "Reward":
    model = LlamaForSequenceClassification(
        model.config.__class__(**(model.config.to_dict() | {"num_labels": 1}))
    )
arguments = getattr(trl, f"{KIND}Config")(
    output_dir="out",
    per_device_train_batch_size=BATCH,
    max_steps=80,
    eval_strategy="steps",
    eval_steps=13,
    per_device_eval_batch_size=4,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    logging_strategy="no",
)
extra_arguments = {"ref_model": tiny.language_model()} if KIND == "DPO" else {}
getattr(trl, f"{KIND}Trainer")(
    model=model,
    **extra_arguments,
    args=arguments,
    train_dataset=rows,
    eval_dataset=rows.select(range(4)),
    processing_class=tiny.tokenizer(),
    callbacks=[Clocks()],
).train()
