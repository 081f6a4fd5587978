"""The loader compared with an uninterrupted run; ranks are emulated in this process."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import hops_profiler  # noqa: E402 - torch may be missing
from hops_profiler import ElasticLoader  # noqa: E402
from torch.utils.data import Dataset, IterableDataset  # noqa: E402


class Numbers(Dataset[int]):
    """Sample n is n."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class CountedStream(IterableDataset[int]):
    """A stream of the same samples in another order each epoch, without a state."""

    def __init__(self, length: int) -> None:
        self.length, self.epoch = length, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return iter([(n + 3 * self.epoch) % self.length for n in range(self.length)])


class Resumable(CountedStream):
    """A stream with a state and a count of the samples read."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.next, self.reads = 0, 0

    def __iter__(self) -> Any:
        start, self.next = self.next, 0
        for number in range(start, self.length):
            self.reads += 1
            self.next = number + 1
            yield (number + 3 * self.epoch) % self.length
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


class BufferShuffledExamplesIterable:
    """Stands for the class of Hugging Face's `datasets` whose state omits its buffer."""


class BufferedStream(Resumable):
    """A stream with a shuffle buffer that reads three samples ahead."""

    _ex_iterable = SimpleNamespace(ex_iterable=BufferShuffledExamplesIterable())

    def __iter__(self) -> Any:
        buffer: list[int] = []
        for number in super().__iter__():
            buffer.append(number)
            if len(buffer) > 3:
                yield buffer.pop(self.epoch % 2)
        yield from buffer


class ReorderedStream(IterableDataset[int]):
    """A stream with another order in each pass, like webdataset's `detshuffle`."""

    def __init__(self, length: int) -> None:
        self.length, self.epoch_count = length, -1

    def __iter__(self) -> Any:
        self.epoch_count += 1
        yield from [(n + 3 * self.epoch_count) % self.length for n in range(self.length)]


class ShuffledStream(CountedStream):
    """Shuffles by the random numbers of the process, which the training uses as well."""

    def __iter__(self) -> Any:
        torch.rand(3)
        numbers = list(range(self.length))
        random.shuffle(numbers)
        while numbers:
            yield numbers.pop(np.random.randint(len(numbers)))


@dataclass
class Training:
    """Records samples of each step, losses and weights over all runs of a training."""

    weights: Any = field(default_factory=lambda: torch.zeros(4, dtype=torch.float64))
    steps: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    def loss(self, batch: Any, weights: Any) -> Any:
        angles = batch.to(torch.float64)[:, None] * torch.arange(1, 5)
        return (torch.sin(angles) @ weights - torch.cos(batch.to(torch.float64))) ** 2

    def run(self, loaders: list[ElasticLoader], stop: int = 10**9, draws: int = 0) -> Any:
        """Train on all ranks for ``stop`` steps, then stop after ``draws`` micro-batches of the
        next step or, if ``draws`` is negative, in the body of the last step. Return the first
        rank's state, or None at the end of the training.
        """
        for step_count, steps in enumerate(
            zip(*(loader.steps() for loader in loaders), strict=True)
        ):
            if step_count == stop:
                for step in steps:  # incomplete, so the step does not count
                    for _ in zip(range(min(draws, len(step) - 1)), step):  # noqa: B905
                        pass
                return loaders[0].state_dict()
            gradients, losses, ids = [], 0.0, []
            for step in steps:
                weights = self.weights.clone().requires_grad_()
                for batch, weight in step:
                    batch_losses = self.loss(batch, weights)
                    (batch_losses.mean() * weight).backward()
                    losses += float(batch_losses.detach().sum())
                    ids += batch.tolist()
                gradients.append(torch.zeros(4) if weights.grad is None else weights.grad)
            key = loaders[0].epoch, loaders[0].step
            assert key not in self.steps
            assert len(ids) == len(set(ids)) == steps[0].samples
            self.steps[key] = set(ids)
            self.losses.append(losses / len(ids))
            self.weights = self.weights - 0.05 * torch.stack(gradients).mean(0)
            if step_count + 1 == stop and draws < 0:
                return loaders[0].state_dict()
        return None


def loaders(ranks: int, data: Any, **options: Any) -> list[ElasticLoader]:
    return [ElasticLoader(data(), rank=r, world_size=ranks, **options) for r in range(ranks)]


def check(data: Any, options: dict[str, Any], runs: list[tuple[int, int, int]]) -> None:
    """Compare with one run. ``runs`` are (ranks, steps, draws); a last run finishes."""
    unbroken_training = Training()
    unbroken_training.run(loaders(1, data, **{**options, "micro_batch": None}))
    broken_training, state = Training(), None
    for ranks, stop, draws in [*runs, (runs[-1][0], 10**9, 0)]:
        group = loaders(ranks, data, **options)
        if state is not None:
            for loader in group:
                loader.load_state_dict(state)
        steps_before = dict(broken_training.steps)
        state = broken_training.run(group, stop, draws)
        if state is None:
            break
        assert state["step"] == len(steps_before) + stop == len(broken_training.steps)
    assert broken_training.steps == unbroken_training.steps
    assert broken_training.losses == pytest.approx(unbroken_training.losses, rel=1e-6)
    assert broken_training.weights.tolist() == pytest.approx(
        unbroken_training.weights.tolist(), rel=1e-5
    )


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    data=st.sampled_from(
        [Numbers, CountedStream, ReorderedStream, Resumable, BufferedStream, ShuffledStream]
    ),
    samples=st.integers(1, 40),
    global_batch=st.integers(1, 14),
    micro_batch=st.none() | st.integers(1, 5),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**40),
    runs=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 8), st.integers(-2, 4)), min_size=1, max_size=6
    ),
)
def test_a_training_stopped_and_resumed_on_any_ranks_equals_the_unbroken_one(
    data: Any, samples: int, runs: list[tuple[int, int, int]], **options: Any
) -> None:
    check(lambda: data(samples), options, runs)


def test_each_epoch_has_every_sample_once_in_another_order() -> None:
    training = Training()
    training.run(loaders(3, lambda: Numbers(20), global_batch=6, epochs=2))
    assert len(training.steps) == 8
    for epoch in (0, 1):
        sample_ids = [
            ids for (epoch_of_step, _), ids in training.steps.items() if epoch_of_step == epoch
        ]
        assert [len(ids) for ids in sample_ids] == [6, 6, 6, 2]
        assert set().union(*sample_ids) == set(range(20))
    assert training.steps[0, 0] != training.steps[1, 4]


def test_a_state_saved_within_a_step_counts_the_step_once_it_has_been_read() -> None:
    loader = ElasticLoader(Numbers(8), global_batch=4, micro_batch=2, epochs=2)
    states = []
    for step in loader.steps():
        states.append((loader.epoch, loader.step, loader.state_dict()["step"]))
        for _ in step:
            states.append((loader.epoch, loader.step, loader.state_dict()["step"]))
    assert states == [(n // 2, n, step) for n in range(4) for step in (n, n, n + 1)]
    assert list(loader.steps()) == []


def test_an_interrupted_step_is_repeated_and_a_skipped_one_is_not() -> None:
    loader = ElasticLoader(Numbers(6), global_batch=3, micro_batch=1, shuffle=False)
    for step in loader.steps():
        next(iter(step))
        break
    assert [[batch.item() for batch, _ in step] for step in loader.steps()] == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    loader = ElasticLoader(Numbers(6), global_batch=3, micro_batch=1, shuffle=False)
    first = [next(iter(step))[0].item() for step in loader.steps()]
    assert first == [0, 3]


def test_a_rank_without_samples_has_no_micro_batch() -> None:
    group = loaders(4, lambda: Numbers(2), global_batch=8)
    counts = [[(len(step), len(list(step))) for step in loader.steps()] for loader in group]
    assert counts == [[(1, 1)], [(1, 1)], [(0, 0)], [(0, 0)]]
    assert {loader.state_dict()["step"] for loader in group} == {1}


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_ranks_that_would_hang_distributed_data_parallel_are_named(
    capsys: pytest.CaptureFixture[str], micro_batch: int
) -> None:
    def message(samples: int) -> str:
        loader = loaders(2, lambda: Numbers(samples), global_batch=4, micro_batch=micro_batch)[0]
        list(loader.steps())
        return capsys.readouterr().err

    assert "a step of 1 samples" in message(9)
    assert ("a step of 3 samples" in message(11)) == (micro_batch == 1)
    assert not message(12)


def test_steps_and_schedules_do_not_depend_on_the_number_of_ranks() -> None:
    for ranks in (1, 3):
        loader = loaders(ranks, lambda: Numbers(10), global_batch=4, epochs=5)[0]
        assert (loader.steps_per_epoch, loader.total_steps) == (3, 15)
    stream = ElasticLoader(CountedStream(10), global_batch=4)
    assert (stream.steps_per_epoch, stream.total_steps) == (None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"global_batch": 0}, "global_batch=0"),
        ({"global_batch": 2.5}, "global_batch=2.5"),
        ({"micro_batch": -1}, "micro_batch=-1"),
        ({"epochs": True}, "epochs=True"),
        ({"batch_size": 3}, "batch_size is not accepted"),
        ({"batch_sampler": None}, "batch_sampler is not accepted"),
        ({"rank": 1}, "give both"),
        ({"rank": 2, "world_size": 2}, "rank=2"),
        ({"dataset": Numbers(0)}, "no samples"),
        ({"dataset": 7}, "dataset is a int"),
        ({"dataset": CountedStream(3), "shuffle": True}, "its own order"),
        ({"dataset": CountedStream(3), "sample_seeds": True}, "by itself"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ElasticLoader(**{"dataset": Numbers(4), "global_batch": 2, **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "seed is 1, but the state was saved with 2"),
        ({"global_batch": 8}, "global_batch"),
        ({"samples": 11}, "samples"),
        ({"shuffle": False}, "shuffle"),
        ({"step": -1}, "step is -1"),
        ({"epoch": None}, "epoch is None"),
    ],
)
def test_a_state_of_another_order_is_refused(change: dict[str, Any], message: str) -> None:
    loader = ElasticLoader(Numbers(10), global_batch=4, seed=1)
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict({**loader.state_dict(), **change})


def test_steps_from_before_a_load_are_not_mixed_with_those_after_it() -> None:
    loader = ElasticLoader(Numbers(10), global_batch=4)
    steps = loader.steps()
    next(steps)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="new steps"):
        next(steps)


def test_several_ranks_need_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, each rank would train on all samples."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="init_process_group"):
        list(ElasticLoader(Numbers(4), global_batch=2).steps())


def test_the_batch_of_the_comment_is_the_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPS_BATCH", "3")
    assert [len(step) for step in ElasticLoader(Numbers(12), global_batch=12).steps()] == [4]


class Noise(Dataset[Any]):
    """Samples augmented by all three random number generators."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), float(np.random.rand()), float(torch.rand(()))


def noise(ranks: int = 1, **options: Any) -> dict[tuple[int, int], tuple[float, ...]]:
    values_by_sample = {}
    for loader in loaders(ranks, Noise, global_batch=5, epochs=2, sample_seeds=True, **options):
        for step in loader.steps():
            for batch, _ in step:
                for index, *values in zip(*(column.tolist() for column in batch), strict=True):
                    values_by_sample[loader.epoch, index] = tuple(values)
    return values_by_sample


def test_the_augmentation_of_a_sample_does_not_depend_on_the_rank_that_reads_it() -> None:
    on_one_rank = noise()
    assert len(set(on_one_rank.values())) == 24  # different in each epoch
    assert noise(ranks=3, micro_batch=1) == on_one_rank


@pytest.mark.live
def test_the_augmentation_of_a_sample_does_not_depend_on_workers() -> None:
    assert noise(num_workers=2) == noise()


@pytest.mark.parametrize(
    "data", [Numbers(12), Noise(), ShuffledStream(12)], ids=lambda d: type(d).__name__
)
def test_loading_does_not_draw_from_the_random_numbers_of_the_training(data: Any) -> None:
    """Otherwise, dropout would differ in a resumed run."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    random_values = torch.rand(3).tolist(), random.random(), np.random.rand()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    list(ElasticLoader(data, global_batch=4, sample_seeds=isinstance(data, Noise)).steps())
    assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == random_values


def test_resuming_does_not_read_earlier_samples_again() -> None:
    data = Resumable(1000)
    loader = ElasticLoader(data, global_batch=10)
    loader.load_state_dict(
        {
            **loader.state_dict(),
            "offset": 90,
            "step": 90,
            "stream": {"done": 900, "data": {"next": 900}},
        }
    )
    assert sum(step.samples for step in loader.steps()) == 100
    assert data.reads == 100


def test_an_interrupted_step_of_a_stream_with_a_state_is_repeated() -> None:
    loader = ElasticLoader(Resumable(6), global_batch=4, micro_batch=2)
    for step in loader.steps():
        next(iter(step))
        break
    assert [[batch.tolist() for batch, _ in step] for step in loader.steps()] == [
        [[0, 1], [2, 3]],
        [[4, 5]],
    ]


@pytest.mark.live
@pytest.mark.parametrize("workers", [1])
def test_workers_may_read_the_data(workers: int) -> None:
    check(lambda: Numbers(10), {"global_batch": 4, "num_workers": workers}, [(2, 1, -1)])


@pytest.mark.live
@pytest.mark.parametrize("data", [CountedStream, ReorderedStream, Resumable, ShuffledStream])
def test_a_worker_may_read_a_stream_ahead(data: Any) -> None:
    options = {"global_batch": 4, "num_workers": 1, "micro_batch": 2, "epochs": 2}
    check(lambda: data(18), options, [(2, 2, 1), (1, 3, -1), (2, 1, 1), (4, 2, -1)])


class Split(Resumable):
    """Each of n workers reads every n-th sample."""

    def __iter__(self) -> Any:
        worker = torch.utils.data.get_worker_info()
        for number in super().__iter__():
            if number % worker.num_workers == worker.id:
                yield number


@pytest.mark.live
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's, with PyTorch 2.13
@pytest.mark.parametrize("data", [Split])
def test_several_workers_may_share_a_stream(data: Any) -> None:
    pytest.importorskip("torchdata")
    options = {"global_batch": 4, "num_workers": 2, "micro_batch": 2, "epochs": 2}
    check(lambda: data(18), options, [(2, 2, 1), (1, 3, -1), (2, 1, 1), (4, 2, -1)])


def test_several_workers_with_one_stream_need_torchdata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchdata.stateful_dataloader", None)
    with pytest.raises(ImportError, match="num_workers=1"):
        ElasticLoader(CountedStream(4), global_batch=2, num_workers=2)


def test_a_script_can_import_the_loader_from_the_package() -> None:
    assert {"ElasticLoader", "average_gradients"} <= set(hops_profiler.__all__)


class BrokenNumbers(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 7:
            raise OSError("a broken file")
        return index


def test_an_unreadable_sample_does_not_shift_the_following_steps() -> None:
    loader = ElasticLoader(BrokenNumbers(20), 8, 2, shuffle=False, rank=0, world_size=1)
    steps = []
    for step in loader.steps():
        samples: list[int] = []
        try:
            for batch, _ in step:
                samples += batch.tolist()
        except OSError:
            assert loader.state_dict()["step"] == 0  # a save here repeats the step
        steps.append(samples)
    assert steps == [[0, 1, 2, 3, 4, 5], list(range(8, 16)), [16, 17, 18, 19]]
    assert loader.state_dict()["step"] == 3
