"""How the launcher patches PyTorch before a script runs in one of its ranks."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hops_profiler.launch import script
from torch.nn import parallel


class Part:
    """A reducer or its logger."""


class ReducerStub:
    __slots__ = ()


def model_with(
    monkeypatch: pytest.MonkeyPatch, original: Callable[..., None], *, times: int = 1
) -> Any:
    """Return a model whose original constructor is ``original``."""
    kind = parallel.DistributedDataParallel
    monkeypatch.setattr(kind, "__init__", original)
    for _ in range(times):
        script._keep_groups_longer_than_reducers()
    model = kind.__new__(kind)
    kind.__init__(model, None)
    return model


def with_reducer(model: Any, _: Any) -> None:
    vars(model).update(reducer=Part(), logger=Part(), process_group=Part())


@pytest.mark.parametrize("times", [1, 2])
def test_a_group_lives_as_long_as_the_reducer(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    model = model_with(monkeypatch, with_reducer, times=times)
    group, report = weakref.ref(vars(model)["process_group"]), vars(model)
    holds = weakref.getweakrefcount(report["reducer"]), weakref.getweakrefcount(report["logger"])
    del report["process_group"], report["logger"]
    assert (group() is not None, holds) == (True, (1, 1))
    del report["reducer"]
    assert group() is None


def test_a_model_without_a_reducer_can_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its parameters may be reduced late (``delay_all_reduce_named_params``)."""
    model_with(monkeypatch, lambda model, _: None)


def test_a_model_of_another_version_of_pytorch_can_be_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its parts may not support weak references, or its group may be elsewhere."""
    model_with(monkeypatch, lambda model, _: vars(model).update(reducer=ReducerStub()))
    model_with(monkeypatch, lambda model, _: vars(model).update(reducer=Part(), logger=None))


def test_exceptions_of_the_constructor_reach_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(model: Any, _: Any) -> None:
        raise ValueError("no parameter")

    with pytest.raises(ValueError, match="no parameter"):
        model_with(monkeypatch, refuses)
