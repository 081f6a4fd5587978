"""Finds ranks that share a batch: parallel over a model's tensors or layers, not over the data.

Each reports its share of the batch, so that the sum over the ranks is right.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from hops_profiler.timing.handlers import SuppressErrors

SAME_BATCH = ("tp", "tensor", "pp", "pipe", "pipeline", "cp", "context", "sp", "sequence", "model")
"""Usual names of device mesh axes along which the batch is the same."""


def ranks_of_batch(optimizer: Any) -> int:
    """How many ranks share a batch, from ``optimizer``'s parameters and from Megatron, if used."""
    ranks = 1
    with SuppressErrors():
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        ranks = max((_mesh_ranks(p) for p in parameters if hasattr(p, "device_mesh")), default=1)
    with SuppressErrors():
        megatron: Any = sys.modules.get("megatron.core.parallel_state")
        if megatron is not None and megatron.model_parallel_is_initialized():
            ranks = max(
                ranks,
                megatron.get_tensor_model_parallel_world_size()
                * megatron.get_pipeline_model_parallel_world_size()
                * megatron.get_context_parallel_world_size(),
            )
    return ranks


def watch_pipeline(report: Callable[[int], None]) -> None:
    """Call ``report`` with the number of stages once a stage of this process runs."""
    module: Any = sys.modules.get("torch.distributed.pipelining.stage")
    stage = getattr(module, "_PipelineStageBase", None)
    original = getattr(stage, "forward_one_chunk", None)
    if stage is None or original is None:
        return

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with SuppressErrors():
            stage.forward_one_chunk = original
            report(int(self.group_size))
        return original(self, *args, **kwargs)

    stage.forward_one_chunk = forward


def _mesh_ranks(parameter: Any) -> int:
    """Ranks along the axes whose names say that they share a batch. A mesh without names is of one
    kind or the other: data parallelism shards a parameter along its first axis alone.
    """
    mesh = parameter.device_mesh
    names = mesh.mesh_dim_names
    if names is None:
        axes = {getattr(placement, "dim", 0) for placement in parameter.placements}
        return int(mesh.size()) if axes - {0} else 1
    ranks = 1
    for axis, name in enumerate(names):
        if name.lower().partition("_")[0] in SAME_BATCH:
            ranks *= int(mesh.size(axis))
    return ranks
