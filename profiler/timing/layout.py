"""Finds ranks that share a batch: parallel over a model's tensors or layers, not over the data.

Each reports its share of the batch, so that the sum over the ranks is what was trained on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from hops_profiler.timing.handlers import SuppressErrors

SAME_BATCH = ("tp", "tensor", "pp", "pipe", "pipeline", "cp", "context", "sp", "sequence", "model")
"""Usual names of device mesh axes along which the batch is the same."""


def sharing(optimizer: Any) -> int:
    """How many ranks share a batch, from ``optimizer``'s parameters and from Megatron, if used."""
    found = 1
    with SuppressErrors():
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        found = max((_of_mesh(p) for p in parameters if hasattr(p, "device_mesh")), default=1)
    with SuppressErrors():
        megatron: Any = sys.modules.get("megatron.core.parallel_state")
        if megatron is not None and megatron.model_parallel_is_initialized():
            found = max(
                found,
                megatron.get_tensor_model_parallel_world_size()
                * megatron.get_pipeline_model_parallel_world_size()
                * megatron.get_context_parallel_world_size(),
            )
    return found


def watch_pipeline(found: Callable[[int], None]) -> None:
    """Call ``found`` with the number of stages once a stage of this process runs."""
    module: Any = sys.modules.get("torch.distributed.pipelining.stage")
    stage = getattr(module, "_PipelineStageBase", None)
    original = getattr(stage, "forward_one_chunk", None)
    if stage is None or original is None:
        return

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with SuppressErrors():
            stage.forward_one_chunk = original
            found(int(self.group_size))
        return original(self, *args, **kwargs)

    stage.forward_one_chunk = forward


def _of_mesh(parameter: Any) -> int:
    """Ranks along the axes whose names say so. A mesh without names is of one or of the other kind:
    data parallelism shards a parameter along its first axis alone."""
    mesh = parameter.device_mesh
    names = mesh.mesh_dim_names
    if names is None:
        along = {getattr(placement, "dim", 0) for placement in parameter.placements}
        return int(mesh.size()) if along - {0} else 1
    ranks = 1
    for axis, name in enumerate(names):
        if name.lower().partition("_")[0] in SAME_BATCH:
            ranks *= int(mesh.size(axis))
    return ranks
