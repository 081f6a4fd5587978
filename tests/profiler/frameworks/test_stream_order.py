"""Iterable data of a framework, with emulated ranks. Real frameworks: `tests/bench`."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hops_profiler.data.order import Share  # noqa: E402 - torch may be missing
from hops_profiler.data.source import Position  # noqa: E402
from hops_profiler.frameworks import stream_order  # noqa: E402
from hops_profiler.frameworks.stream_order import StreamLoader, is_plain_stream  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402


class Numbers(IterableDataset[int]):
    def __init__(self, length: int, first: int = 0) -> None:
        self.length, self.first = length, first

    def __iter__(self) -> Any:
        return iter(range(self.first, self.first + self.length))


class SizedNumbers(Numbers):
    def __len__(self) -> int:
        return self.length


class ShardedNumbers(Numbers):
    """Gives each rank a shard."""

    def __iter__(self) -> Any:
        return iter(range(int(os.environ["RANK"]), self.length, 2))


START_POSITION = Position()


def stream(
    data: Any, share: Share, position: Position = START_POSITION, **options: Any
) -> StreamLoader:
    return StreamLoader(DataLoader(data, batch_size=3, **options), 12, share, 0, position)


@settings(deadline=None, max_examples=60)
@given(
    samples=st.integers(1, 50),
    ranks=st.integers(1, 5),
    micro_batch=st.integers(1, 12),
    drop_last=st.booleans(),
    offset=st.integers(0, 5),
)
def test_each_step_has_its_samples_with_equal_weights(
    samples: int, ranks: int, micro_batch: int, drop_last: bool, offset: int
) -> None:
    steps = samples // 12 if drop_last else -(-samples // 12)
    weights = [dict.fromkeys(range(step * 12, min(samples, step * 12 + 12)), 0.0)
               for step in range(steps)]  # fmt: skip
    for rank in range(ranks):
        share = Share(rank, ranks, micro_batch)
        loader = stream(
            SizedNumbers(samples), share, Position(0, min(offset, steps)), drop_last=drop_last
        )
        assert len(loader) == steps * loader.accumulation
        step = min(offset, steps)
        iterator = iter(loader)
        while parts := iterator.begin_step():
            assert len(parts) == loader.accumulation  # otherwise ranks would wait for each other
            for number, weight in enumerate(parts):
                batch = next(iterator).tolist()
                assert len(batch) <= micro_batch
                assert loader.factor(step * len(parts) + number) == weight * len(parts)
                for sample in batch:
                    weights[step][sample] += weight / len(batch) / ranks
            step += 1
            assert iterator.after(step) == iterator.position
            assert iterator.position.offset == step
        assert step == steps
    for weights_of_step in weights[min(offset, steps) :]:
        assert list(weights_of_step.values()) == pytest.approx(
            [1 / len(weights_of_step)] * len(weights_of_step)
        )


def test_a_pass_is_repeated_until_the_framework_enters_another_epoch() -> None:
    class Epochs(Numbers):
        def set_epoch(self, epoch: int) -> None:
            self.first = 100 * epoch

    loader = stream(Epochs(4), Share(0, 1, 12), Position(2))
    loader.set_epoch(7)  # Lightning and Trainer may start at another number
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[200, 201, 202, 203]]
    loader.set_epoch(8)
    assert [batch.tolist() for batch in loader] == [[300, 301, 302, 303]]
    with pytest.raises(TypeError):
        len(loader)


def test_a_saved_position_does_not_change_when_the_data_advances() -> None:
    class Stateful(Numbers):
        def __init__(self, length: int) -> None:
            super().__init__(length)
            self.state: list[int] = []

        def __iter__(self) -> Any:
            for number in range(self.length):
                self.state.append(number)
                yield number

        def state_dict(self) -> list[int]:
            return self.state

        def load_state_dict(self, state: list[int]) -> None:
            self.state = state

    loader = iter(stream(Stateful(30), Share(0, 1, 12)))
    loader.begin_step()
    position = loader.position
    loader.begin_step()
    assert position.stream["data"] == list(range(12))


def test_data_whose_state_cannot_be_saved_is_read_from_the_start() -> None:
    class Stateful(Numbers):
        def state_dict(self) -> Any:
            return (number for number in range(3))

        def load_state_dict(self, state: Any) -> None:
            raise AssertionError(state)

    loader = iter(stream(Stateful(30), Share(0, 1, 12)))
    loader.begin_step()
    assert loader.position.stream is None
    resumed_loader = stream(Stateful(30), Share(0, 1, 12), loader.position)
    assert next(iter(resumed_loader)).tolist() == list(range(12, 24))


@pytest.mark.parametrize(
    ("data", "options", "fits"),
    [
        (Numbers(5), {"batch_size": 2}, True),
        (Numbers(5), {"batch_size": None}, False),
        (ShardedNumbers(5), {"batch_size": 2}, False),
        (TensorDataset(torch.zeros(3)), {"batch_size": 2}, False),
        (
            SizedNumbers(5),
            {"batch_size": 2, "num_workers": 2},
            False,
        ),  # each worker would have a last step
    ],
)
def test_only_plain_streams_are_replaced(data: Any, options: dict[str, Any], fits: bool) -> None:
    assert is_plain_stream(DataLoader(data, **options)) == fits


def test_data_split_by_datasets_is_left_unchanged() -> None:
    data: Any = Numbers(5)
    data._distributed = SimpleNamespace(rank=0, world_size=2)
    assert not is_plain_stream(DataLoader(data, batch_size=2))


@pytest.mark.parametrize("first", [0, 5])
def test_ranks_that_read_different_samples_do_not_agree(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Each would skip what it believes to be the other's part."""
    foreign = iter(stream(Numbers(30, first), Share(1, 2, 3)))
    foreign.read_ahead()

    def gather(values: list[str], value: str) -> None:
        values[:] = [value, foreign.fingerprint]

    monkeypatch.setattr(stream_order, "several", lambda: True)
    monkeypatch.setattr(stream_order.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(stream_order.dist, "all_gather_object", gather)
    loader = stream(Numbers(30), Share(0, 2, 3))
    assert loader.agrees() == (first == 0)
    assert next(iter(loader)).tolist() == [0, 1, 2]  # the batches read ahead are not lost
