"""Hugging Face Trainer, Lightning and Accelerate save on hops' signal, without a line in a script.

By their own checkpoints, at the end of an optimizer's step. The next run of the job goes on from
there. On where Slurm sends the job's steps the signal, unless the user turns it off.
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
    """Look after the module ``name``, which has just been imported, if this is a hops job."""
    is_active = environment.saves_for_frameworks() and not environment.is_trial()
    if environment.number() and is_active and name in _ATTACH:
        room, function = _ATTACH[name]
        module = importlib.import_module(f"hops_profiler.frameworks.{room}")
        getattr(module, function)(sys.modules[name])
