"""Finds ranks that share a batch: those parallel over a model's tensors or layers, not its data.

Each of these ranks reports its share of the batch, so that the sum over all ranks is right.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from hops_profiler.timing.handlers import SuppressErrors
from hops_profiler.timing.inputs import is_compiling

SAME_BATCH = ("tp", "tensor", "pp", "pipe", "pipeline", "cp", "context", "sp", "sequence", "model")
"""Usual names of device mesh axes along which the batch is the same."""


def ranks_of_batch(optimizer: Any) -> int:
    """Number of ranks that share a batch, by ``optimizer``'s parameters and by Megatron if used."""
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


def shards(optimizer: Any) -> bool:
    """Whether PyTorch shards the parameters of ``optimizer`` (FSDP, tensor parallelism)."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return any(hasattr(p, "device_mesh") or type(p).__name__ == "FlatParameter" for p in parameters)


def watch_pipeline(report: Callable[[int], None]) -> None:
    """Call ``report`` with the number of stages when a stage of this process first runs."""
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


def watch_rows(report: Callable[[int], None]) -> None:
    """Call ``report`` once, when the first layer that ranks share takes its input: with 1 if all
    ranks pass it the same rows (tensor parallelism), or with the number of ranks if each passes a
    part of the batch (sequence parallelism along the first axis).
    """
    module: Any = sys.modules.get("torch.distributed.tensor")
    tensors = getattr(module, "DTensor", None)
    original = vars(tensors).get("from_local") if tensors is not None else None
    if tensors is None or original is None:
        return
    call = tensors.from_local

    @functools.wraps(call)
    def from_local(local: Any, mesh: Any = None, placements: Any = None, **options: Any) -> Any:
        if not is_compiling() and torch.is_grad_enabled() and not local.requires_grad:
            with SuppressErrors():
                tensors.from_local = original
                report(_row_groups(mesh, placements))
        return call(local, mesh, placements, **options)

    tensors.from_local = staticmethod(from_local)


def _row_groups(mesh: Any, placements: Any) -> int:
    """Parts into which ``placements`` divide a batch, whose first axis is that of its samples."""
    groups = 1
    for axis, placement in enumerate(placements):
        if getattr(placement, "dim", None) == 0:
            groups *= int(mesh.size(axis))
    return groups


def _mesh_ranks(parameter: Any) -> int:
    """Number of ranks along the mesh axes whose names say that they share a batch. The axes of a
    mesh without names are all of one kind: data parallelism if it shards a parameter along its
    first axis only.
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
