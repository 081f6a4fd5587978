"""One rank computes at a time, and no rank waits for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hops_profiler.lane import turnstile
from hops_profiler.lane.turnstile import Turnstile
from torch.autograd.graph import get_gradient_edge
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.live

LAYER = torch.nn.Linear(1, 1)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turnstile:
    """A turnstile that controls this process's backward passes until the end of the test."""
    monkeypatch.setattr(turnstile, "register_module_forward_pre_hook", lambda _: None)
    monkeypatch.setattr(turnstile, "register_optimizer_step_post_hook", lambda _: None)
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    turnstile_ = Turnstile()
    turnstile_.attach()
    return turnstile_


def another_rank(turnstile: Turnstile) -> Iterator[None]:
    """Run another rank, which has its turn from the first ``next`` until the second."""
    read_end, says = os.pipe()
    hears, hear = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(hear)  # so that it ends at the latest with this process
            turnstile._before_layer(LAYER, ())
            os.write(says, b"x")
            os.read(hears, 1)
            turnstile.leave()
        finally:
            os._exit(0)
    os.read(read_end, 1)
    yield
    os.write(hear, b"x")
    os.waitpid(pid, 0)
    for number in (read_end, says, hears, hear):
        os.close(number)
    yield


def passes(turnstile: Turnstile) -> bool:
    """Return whether a pass of this rank gets a turn."""
    turnstile._before_layer(LAYER, ())
    inside = turnstile._inside
    turnstile.leave()
    return inside


def is_free(turnstile: Turnstile) -> bool:
    """Return whether another rank could get a turn; a child asks, as locks are per process."""
    rank = os.fork()
    if not rank:
        os._exit(int(turnstile._is_free()))
    return os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) == 1


def test_a_rank_that_has_waited_in_vain_waits_once_more_in_the_next_pass(
    turns: Turnstile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first pass may compile for minutes, but a rank may also wait in vain in every pass."""
    monkeypatch.setattr(turnstile, "PATIENCE_SECONDS", 0.05)
    for how_long in ("in this pass", "from now on"):
        rank = another_rank(turns)
        next(rank)
        assert not passes(turns)
        assert how_long in capsys.readouterr().err
        next(rank)
        assert passes(turns) == (how_long == "in this pass")


def test_waiting_in_vain_is_forgiven_after_many_turns(
    turns: Turnstile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turnstile, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(turnstile, "TURNS_TO_FORGET", 3)
    for _ in range(3):
        rank = another_rank(turns)
        next(rank)
        assert not passes(turns)
        assert "in this pass" in capsys.readouterr().err
        next(rank)
        assert [passes(turns) for _ in range(3)] == [True] * 3


@pytest.fixture
def gpu(turns: Turnstile, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of the GPU at the end of a turn."""
    result: list[str] = []

    def note(event: str) -> None:
        result.append(event if not is_free(turns) else f"{event} too late")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: note("synchronised"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: note("emptied"))
    return result


@pytest.mark.parametrize("tight", [True, False])
def test_computation_on_a_gpu_ends_before_the_next_turn_begins(
    turns: Turnstile, gpu: list[str], tight: bool
) -> None:
    turns.tight = tight
    assert passes(turns)
    assert gpu == ["synchronised", "emptied"][: 1 + tight]


def test_the_gpu_is_not_synchronized_during_graph_capture(
    turns: Turnstile, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert passes(turns)
    assert not gpu


@pytest.mark.usefixtures("gpu")
def test_the_turn_ends_even_if_the_gpu_has_failed(
    turns: Turnstile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("illegal access")

    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    with pytest.raises(RuntimeError, match="illegal access"):
        passes(turns)
    assert is_free(turns)


def test_passes_over_checkpointed_segments_are_part_of_the_turn(
    turns: Turnstile, gpu: list[str]
) -> None:
    def segment(x: torch.Tensor) -> torch.Tensor:
        turns._before_layer(LAYER, ())
        return 2 * x

    x = torch.ones(1, requires_grad=True)
    turns._before_layer(LAYER, ())
    loss = x
    for _ in range(3):
        loss = checkpoint(segment, loss, use_reentrant=True, preserve_rng_state=False)
    loss.backward()
    assert not turns._inside
    assert gpu == ["synchronised", "emptied"]
    assert x.grad == 8


def test_with_any_arguments_of_backward_the_turn_ends_and_gradients_are_right(
    turns: Turnstile,
) -> None:
    def gradient(kind: str) -> float:
        x = torch.ones(1, requires_grad=True)
        losses = [2 * x, 4 * x]
        turns._before_layer(LAYER, ())
        assert turns._inside
        if kind == "edge":
            torch.autograd.backward(get_gradient_edge(losses[0]), torch.ones(1))
        elif kind == "edges":
            torch.autograd.backward(
                [get_gradient_edge(loss) for loss in losses], [torch.ones(1)] * 2
            )
        elif kind == "iterator":
            torch.autograd.backward(iter(losses), [torch.ones(1)] * 2)
        else:
            losses[0].backward()
        assert not turns._inside
        assert x.grad is not None
        return float(x.grad)

    results = {kind: gradient(kind) for kind in ("tensor", "iterator", "edge", "edges")}
    assert results == {"tensor": 2, "iterator": 6, "edge": 2, "edges": 6}


def test_a_step_ends_the_turn_of_a_forward_pass_without_a_backward_pass(
    turns: Turnstile,
) -> None:
    x = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([x], 0.1)
    handle = register_optimizer_step_post_hook(turns._after_step)
    try:
        turns._before_layer(LAYER, ())
        optimizer.step()
        assert not turns._inside
        # Not in the middle of a pass, while its intermediates are in memory.
        turns._before_layer(LAYER, ())
        inside: list[bool] = []
        x.register_hook(lambda _: (optimizer.step(), inside.append(turns._inside))[0])
        (2 * x).backward()
        assert inside == [True]
        assert not turns._inside
    finally:
        handle.remove()
