"""Hugging Face Trainer, Lightning and Accelerate save on hops' signal, without a line in a script.

By their own checkpoints, at the end of an optimizer's step. The next run of the job goes on from
there. A training that is not asked to leave runs as without hops. Accelerate is looked after only
where the user has it so: a script that does not resume by itself would begin again and again.
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
    ours = _ATTACH[name][0] if name in _ATTACH else ""
    wished = environment.frameworks_save_by_wish()
    wanted = wished if ours == "accelerate" else environment.saves_for_frameworks()
    if environment.number() and ours and wanted and not environment.is_trial():
        module = importlib.import_module(f"hops_profiler.frameworks.{ours}")
        getattr(module, _ATTACH[name][1])(sys.modules[name])
