"""Lets Hugging Face Trainer, Lightning and Accelerate save on hops' signal, without script changes.

They write their own checkpoints, at the end of an optimizer step, and the next run of the job
resumes from there. This is on if Slurm sends the signal to the job's steps, unless the user turns
it off.
"""

from __future__ import annotations

import importlib
import sys

from hops_profiler import environment

_ATTACH = {
    "transformers.trainer_utils": ("huggingface", "attach_search"),
    "transformers.trainer": ("huggingface", "attach"),
    "lightning.pytorch.trainer.trainer": ("lightning", "attach"),
    "pytorch_lightning.trainer.trainer": ("lightning", "attach"),
    "accelerate.accelerator": ("accelerate", "attach"),
}


def attach(name: str) -> None:
    """Patch the module ``name``, which has just been imported, if this is a hops job."""
    is_active = environment.saves_for_frameworks() and not environment.is_trial()
    if environment.number() and is_active and name in _ATTACH:
        room, function = _ATTACH[name]
        module = importlib.import_module(f"hops_profiler.frameworks.{room}")
        getattr(module, function)(sys.modules[name])
