"""Averaging of gradients if ranks have different numbers of micro-batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402 - torch may be missing
from hops_profiler import ElasticLoader, average_gradients  # noqa: E402

ROOT = Path(__file__).parents[3]


def test_all_micro_batches_except_the_last_skip_the_synchronization() -> None:
    sync_flags: list[bool] = []

    class Parallel:
        held = False

        @contextlib.contextmanager
        def no_sync(self) -> Iterator[None]:
            self.held = True
            yield
            self.held = False

    model = Parallel()
    for step in ElasticLoader(range(10), global_batch=6, micro_batch=2).steps():
        for _ in step:
            with step.no_sync(model):
                sync_flags.append(not model.held)
    assert sync_flags == [False, False, True, False, True]


def test_a_plain_model_has_no_synchronization_to_skip() -> None:
    for step in ElasticLoader(range(4), global_batch=4, micro_batch=2).steps():
        for _ in step:
            with step.no_sync(torch.nn.Linear(2, 2)):
                pass


def test_a_missing_gradient_counts_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays None if no rank has one: weight decay would change a parameter with zeros."""
    with_gradient, frozen_parameter, without_gradient = (
        torch.nn.Parameter(torch.zeros(2)) for _ in range(3)
    )
    remote = torch.nn.Parameter(torch.zeros(3))
    model = torch.nn.Module()
    for name, parameter in zip(
        "abcd", (with_gradient, frozen_parameter, without_gradient, remote), strict=True
    ):
        model.register_parameter(name, parameter)
    frozen_parameter.requires_grad_(False)
    with_gradient.grad = torch.tensor([2.0, 4.0])
    theirs = iter([torch.tensor([0.0, 0, 0, 0, 3, 3, 3]), torch.tensor([0.0, 0, 1])])

    def all_reduce(gradient: torch.Tensor, reduce_op: object = dist.ReduceOp.SUM) -> None:
        gradient.copy_(
            gradient + next(theirs)
            if reduce_op == dist.ReduceOp.SUM
            else torch.maximum(gradient, next(theirs))
        )

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    average_gradients(model)
    assert with_gradient.grad.tolist() == [1, 2]
    assert remote.grad is not None
    assert remote.grad.tolist() == [1.5, 1.5, 1.5]
    assert without_gradient.grad is frozen_parameter.grad is None


def test_a_single_rank_changes_no_gradients() -> None:
    average_gradients(torch.nn.Linear(2, 2))
