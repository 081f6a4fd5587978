"""Averages gradients over ranks explicitly, even if some of them had no sample."""

from __future__ import annotations

import torch
import torch.distributed as dist


def average_gradients(model: torch.nn.Module) -> None:
    """Replace each parameter's gradient by its mean over all ranks, in one exchange per data type
    and device; call this on all ranks, once per step. A missing gradient counts as zero, and stays
    missing if no rank has one. ``model`` is a plain model, or a DistributedDataParallel one whose
    backward passes were all within ``no_sync()``.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return
    groups: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for parameters in groups.values():
        _average(parameters)


def _average(parameters: list[torch.nn.Parameter]) -> None:
    first = parameters[0]
    exists = torch.tensor(
        [float(parameter.grad is not None) for parameter in parameters], device=first.device
    )
    gradients = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in parameters
    ]
    flat = torch.cat([gradient.detach().flatten() for gradient in gradients])
    dist.all_reduce(flat)
    dist.all_reduce(exists, dist.ReduceOp.MAX)
    flat /= dist.get_world_size()
    sizes = [parameter.numel() for parameter in parameters]
    parts = zip(parameters, torch.split(flat, sizes), exists.tolist())  # noqa: B905 - Python 3.8
    for parameter, mean, exists_somewhere in parts:
        if exists_somewhere:
            parameter.grad = mean.view_as(parameter).clone()
