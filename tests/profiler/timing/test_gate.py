"""A training calls its lane's gate rarely, but turns end as if it did so at each step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import hops_profiler
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.live

TURNS = (1, 2, 3, 1, 70, 5, 9, 64, 1, 33)
STEPS = 200


def features() -> Iterator[torch.Tensor]:
    for _ in range(STEPS):
        yield torch.ones(4, 4)


def from_loader() -> Iterator[torch.Tensor]:
    for (batch,) in DataLoader(TensorDataset(torch.ones(STEPS * 4, 4)), batch_size=4):
        yield batch


def train_once(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


class Twice(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def with_one_optimizer(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for batch in batches:
        train_once(model, optimizer, batch)
        yield


def with_two_optimizers(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    """Sometimes the second optimizer does not step."""
    models = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer, peer = (torch.optim.SGD(model.parameters(), 0.01) for model in models)
    for number, batch in enumerate(batches):
        train_once(models[0], optimizer, batch)
        if number % 5:
            train_once(models[1], peer, batch)
        yield


def with_calls_of_the_base_class(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    nn.Linear(4, 1)
    model = nn.Linear(4, 1)
    torch.optim.SGD(model.parameters(), 0.01)  # replaces its step by one with hooks
    optimizer = Twice(model.parameters(), 0.01)
    for batch in batches:
        train_once(model, optimizer, batch)
        yield


def with_closure(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.01, max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 4)).square().mean()
        loss.backward()
        return loss

    for _ in batches:
        optimizer.step(closure)
        yield


def accumulate(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number, batch in enumerate(batches, 1):
        model(batch).square().mean().backward()
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if number % 50 == 0:
            model.eval()
            model(batch)
            model.train()
        yield


class Refuses(torch.optim.SGD):
    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        if self.steps in (3, 30, 31):
            raise OverflowError
        return super().step(closure)


def with_steps_that_raise(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    model = nn.Linear(4, 1)
    optimizer = Refuses(model.parameters(), 0.01)
    for batch in batches:
        with contextlib.suppress(OverflowError):
            train_once(model, optimizer, batch)
        yield


LOOPS = (
    with_one_optimizer,
    with_two_optimizers,
    with_calls_of_the_base_class,
    with_closure,
    accumulate,
    with_steps_that_raise,
)


class Turns:
    """A gate that notes the step at which each of ``TURNS`` ends, and counts its calls."""

    def __init__(self) -> None:
        self.turn_ends: list[int] = []
        self.step = self.calls = 0
        self._turns = itertools.cycle(TURNS)
        self._steps_left = next(self._turns)

    def __call__(self, ended_steps: int) -> int:
        assert 0 < ended_steps <= self._steps_left
        self.calls += 1
        self._steps_left -= ended_steps
        if not self._steps_left:
            self.turn_ends.append(self.step)
            self._steps_left = next(self._turns)
        return self._steps_left


def record_turns(
    loop: Callable[[Iterator[torch.Tensor]], Iterator[None]],
    batches: Callable[[], Iterator[torch.Tensor]],
    monkeypatch: pytest.MonkeyPatch,
    **hooks: Any,
) -> Turns:
    turns = Turns()
    with hops_profiler.profile() as session, monkeypatch.context() as patch:
        patch.setattr(session._hooks._gate, "gate", None)
        for name, value in hooks.items():
            patch.setattr(session._hooks, name, value)
        session.stop_at(turns)
        for step, _ in enumerate(loop(batches()), 1):
            turns.step = step
            if step % 17 == 0:
                _ = session._hooks.recorder  # a save in another thread flushes the events
    return turns


@pytest.mark.parametrize("batches", [features, from_loader])
@pytest.mark.parametrize("loop", LOOPS)
def test_turns_end_at_the_same_step_as_with_one_call_per_step(
    loop: Callable[[Iterator[torch.Tensor]], Iterator[None]],
    batches: Callable[[], Iterator[torch.Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch_turns = record_turns(loop, batches, monkeypatch)
    assert (
        batch_turns.turn_ends == record_turns(loop, batches, monkeypatch, batch_steps=1).turn_ends
    )
    assert len(batch_turns.turn_ends) >= 4
    if loop is with_one_optimizer:
        turn_ends = itertools.accumulate(itertools.cycle(TURNS))
        assert batch_turns.turn_ends == [
            end - 1 for end in itertools.islice(turn_ends, len(batch_turns.turn_ends))
        ]


def test_a_gate_that_allows_many_iterations_is_called_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.TURNS", (10**6,))
    assert record_turns(with_one_optimizer, from_loader, monkeypatch).calls < STEPS / 4


class Turn:
    """A gate that notes where turns of ``length`` iterations end; it raises at step ``raises``."""

    def __init__(self, length: int, raises: int = 0) -> None:
        self.turn_ends: list[int] = []
        self.step = 0
        self._length = self._steps_left = length
        self._raises = raises

    def __call__(self, ended_steps: int) -> int:
        assert torch._C._current_graph_task_id() == -1
        self._steps_left -= ended_steps
        if self._steps_left <= 0:
            self.turn_ends.append(self.step)
            self._steps_left = self._length
            if self.step == self._raises:
                raise TimeoutError
        return self._steps_left


def turn_ends(
    loop: Iterator[None], monkeypatch: pytest.MonkeyPatch, length: int = 5, raises: int = 0
) -> list[int]:
    turn = Turn(length, raises)
    with hops_profiler.profile() as session, monkeypatch.context() as patch:
        hooks = session._hooks
        for owner, name in ((hooks._gate, "gate"), (hooks, "failure"), (hooks, "is_off")):
            patch.setattr(owner, name, getattr(owner, name))
        session.stop_at(turn)
        for turn.step in itertools.count(1):
            try:
                next(loop)
            except StopIteration:
                return turn.turn_ends
    raise AssertionError


def multiples(length: int, steps: int = STEPS) -> list[int]:
    return list(range(length, steps + 1, length))


def loop_that_catches(
    before: Callable[[int], None], batches: Iterator[torch.Tensor] | None = None
) -> Iterator[None]:
    """Train, and catch what the gate raises; call ``before`` before each step."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(batches or features(), 1):
        before(number)
        with contextlib.suppress(TimeoutError):
            train_once(model, optimizer, batch)
        yield


def test_the_turn_limit_holds_after_a_handler_raises_in_the_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert turn_ends(loop_that_catches(lambda _: None), monkeypatch, raises=25) == multiples(5)


class Generators:
    """A batch sampler whose batches have no length."""

    def __iter__(self) -> Iterator[Iterator[int]]:
        for _ in range(STEPS):
            yield iter(range(4))


def test_a_sampler_may_yield_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    loader: Any = DataLoader(TensorDataset(torch.ones(4, 4)), batch_sampler=Generators())  # type: ignore[arg-type]
    loop = loop_that_catches(lambda _: None, batches=(batch for (batch,) in loader))
    assert turn_ends(loop, monkeypatch) == multiples(5)


def test_a_block_measured_by_the_script_ends_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(number: int) -> None:
        if number == 22:
            with hops_profiler.profile():
                pass

    assert turn_ends(loop_that_catches(measure), monkeypatch) == multiples(5)
