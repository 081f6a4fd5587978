"""TRL's less common trainers, selected by the argument; SFT uses packing."""

import importlib
import sys

import tiny
import trl
from clocked_calls import trainer_clock
from datasets import Dataset

KIND, BATCH, ACCUMULATE = sys.argv[1], 4, 2
ONLINE = ("RLOO", "GRPO", "OnlineDPO", "XPO", "NashMD")
MODULES = {"OnlineDPO": "online_dpo", "NashMD": "nash_md"}


def row(number):
    if KIND == "SFT":
        return {"text": tiny.text(number, 5 + number % 11)}
    if KIND in ONLINE:
        return {"prompt": tiny.text(number, 4)}
    if KIND == "GKD":
        texts = {"user": tiny.text(number, 4), "assistant": " " + tiny.text(number, 8)}
        return {"messages": [{"role": role, "content": text} for role, text in texts.items()]}
    if KIND == "PRM":
        steps = [tiny.text(number + step, 4) for step in range(3)]
        return {"prompt": tiny.text(number, 4), "completions": steps, "labels": [True, False, True]}
    if KIND in ("KTO", "BCO"):
        answer = " " + tiny.text(number + 1, 6)
        return {"prompt": tiny.text(number, 4), "completion": answer, "label": number % 2 == 0}
    return {
        "prompt": tiny.text(number, 4),
        "chosen": " " + tiny.text(number + 1, 6),
        "rejected": " " + tiny.text(number + 2, 6),
    }


def find(name):
    """Return a class of TRL from the module that has it in this release."""
    if hasattr(trl, name):
        return getattr(trl, name)
    return getattr(
        importlib.import_module(f"trl.experimental.{MODULES.get(KIND, KIND.lower())}"), name
    )


model = tiny.language_model()
options = {"KTO": {}, "BCO": {}, "ORPO": {"max_length": 64}, "CPO": {"max_length": 64},
           "GKD": {"max_new_tokens": 8, "max_length": 64}, "PRM": {"max_length": 64},
           "SFT": {"packing": True, "max_length": 32}, "RLOO": {"num_generations": 4,
           "max_completion_length": 8}, "GRPO": {"num_generations": 4, "max_completion_length": 8},
           "OnlineDPO": {"max_new_tokens": 8}, "XPO": {"max_new_tokens": 8},
           "NashMD": {"max_new_tokens": 8}}[KIND]  # fmt: skip
extra_arguments = {}
if KIND in ("KTO", "BCO"):
    extra_arguments = {"ref_model": tiny.language_model()}
elif KIND == "GKD":
    extra_arguments = {"teacher_model": tiny.language_model()}
elif KIND in ONLINE:
    extra_arguments = {
        "reward_funcs": lambda completions, **_: [float(len(text)) for text in completions]
    }
elif KIND == "PRM":
    from transformers import LlamaConfig, LlamaForTokenClassification

    model = LlamaForTokenClassification(LlamaConfig(**(model.config.to_dict() | {"num_labels": 2})))
arguments = find(f"{KIND}Config")(
    output_dir="out",
    per_device_train_batch_size=BATCH,
    gradient_accumulation_steps=ACCUMULATE,
    max_steps=40,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    logging_strategy="no",
    **options,
)
find(f"{KIND}Trainer")(
    model=model,
    **extra_arguments,
    args=arguments,
    train_dataset=Dataset.from_list([row(number) for number in range(600)]),
    processing_class=tiny.tokenizer(),
    callbacks=[trainer_clock(BATCH * ACCUMULATE)],
).train()
