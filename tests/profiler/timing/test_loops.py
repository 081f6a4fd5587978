"""Iterations and samples counted in training loops of every form, run in this process."""

from __future__ import annotations

import contextlib
import itertools
import math
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hops_profiler
import pytest
import torch
from hops_profiler.timing import events, graphless, hooks, inspections
from hops_profiler.timing import session as session_module
from hops_profiler.timing.batch import samples_given, samples_of
from hops_profiler.timing.gradients import KeptGradient
from hops_profiler.timing.recorder import Recorder
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

pytestmark = pytest.mark.live

FEATURES = 4


def measure(train: Callable[[], object]) -> dict[str, Any]:
    with hops_profiler.profile() as session:
        train()
    summary = session.summary()
    assert summary["failure"] == ""
    return summary


def counts(summary: dict[str, Any]) -> tuple[int, float, int, float]:
    """Return iterations and samples: total, then timed ones."""
    timed_part = summary["timed"]
    return (
        summary["iterations"],
        summary["samples"],
        timed_part["iterations"],
        timed_part["samples"],
    )


def rows(samples: int) -> TensorDataset:
    return TensorDataset(torch.randn(samples, FEATURES), torch.zeros(samples, 1))


class Loop:
    """A model and an optimizer; ``step`` trains on one batch."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, features: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(features).square().mean().backward()
        self.optimizer.step()

    def evaluate(self, batches: Any) -> None:
        self.model.eval()
        with torch.no_grad():
            for batch in batches:
                self.model(batch[0] if isinstance(batch, list) else batch)
        self.model.train()


def test_a_step_may_read_several_loaders() -> None:
    """Domain generalization: one batch from each domain, all in one pass."""
    loop = Loop()
    loaders = [DataLoader(rows(320), batch_size=size) for size in (8, 8, 16)]

    def train() -> None:
        for number, batches in enumerate(itertools.islice(zip(*loaders, strict=False), 20)):
            loop.step(torch.cat([features for features, _ in batches]))
            if number % 5 == 4:
                loop.evaluate(DataLoader(rows(8), batch_size=8))

    summary = measure(train)
    assert counts(summary)[:2] == (20, 20 * 32)
    assert summary["interrupted"] == 3
    assert summary["timed"]["samples"] == summary["timed"]["iterations"] * 32


@pytest.mark.parametrize("batches", [1, 2, 7])
def test_an_evaluation_of_any_number_of_batches_is_not_training(batches: int) -> None:
    loop = Loop()

    def train() -> None:
        for number, (features, _) in enumerate(DataLoader(rows(8 * 30), batch_size=8)):
            loop.step(features)
            if number % 5 == 0:
                loop.evaluate(DataLoader(rows(64 * batches), batch_size=64))

    summary = measure(train)
    assert counts(summary)[:2] == (30, 240)
    assert summary["interrupted"] == 6
    assert summary["timed"]["samples"] == 8 * summary["timed"]["iterations"]


def test_an_evaluation_without_a_loader_is_not_training() -> None:
    loop = Loop()

    def train() -> None:
        for number in range(60):
            loop.step(torch.randn(8, FEATURES))
            if number % 20 == 19:
                loop.evaluate(torch.randn(100, 64, FEATURES))

    summary = measure(train)
    assert counts(summary)[:2] == (60, 480)
    assert summary["interrupted"] == 2
    assert summary["samples_from"] == "input"


def test_a_validation_before_training_is_not_counted() -> None:
    loop = Loop()

    def train() -> None:
        loop.evaluate(DataLoader(rows(500), batch_size=25))
        for features, _ in DataLoader(rows(80), batch_size=8):
            loop.step(features)

    summary = measure(train)
    assert summary["kind"] == "training"
    assert counts(summary) == (10, 80, 7, 56)


def test_data_read_before_the_loop_is_counted() -> None:
    loop = Loop()
    (features, _) = next(iter(DataLoader(rows(100), batch_size=100)))

    def read_and_train() -> None:
        (features, _) = next(iter(DataLoader(rows(100), batch_size=100)))
        for _ in range(20):
            loop.step(features)

    def cut_and_train() -> None:
        for position in range(20):
            loop.step(features[4 * position : 4 * position + 4])

    assert counts(measure(read_and_train))[:2] == (20, 2000)
    assert counts(measure(cut_and_train))[:2] == (20, 80)


def test_passes_of_a_closure_use_the_same_samples() -> None:
    model = nn.Linear(FEATURES, 1)
    features = torch.randn(32, FEATURES)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=6)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(features).square().mean()
        loss.backward()
        return loss

    def train() -> None:
        for _ in range(12):
            optimizer.step(closure)

    assert counts(measure(train))[:2] == (12, 12 * 32)


def test_neither_rollouts_nor_passes_of_other_networks_add_samples() -> None:
    """As in SAC, a critic and an actor step alternately on one batch from a buffer."""
    critic, actor = Loop(), Loop()

    def train() -> None:
        for _ in range(50):
            with torch.no_grad():
                actor.model(torch.randn(1, FEATURES))
            batch = torch.randn(64, FEATURES)
            critic.step(batch)
            actor.step(batch)

    summary = measure(train)
    assert counts(summary)[:2] == (50, 50 * 64)
    assert summary["timed"]["samples"] == summary["timed"]["iterations"] * 64


def test_steps_of_an_episode_add_up() -> None:
    """As in REINFORCE, one backward pass covers a graph built by one call per step."""
    loop = Loop()

    def train() -> None:
        for _ in range(10):
            picks = [loop.model(torch.randn(1, FEATURES)).sum() for _ in range(25)]
            loop.optimizer.zero_grad()
            torch.stack(picks).sum().backward()
            loop.optimizer.step()

    assert counts(measure(train))[:2] == (10, 250)


def test_layers_with_their_own_optimizers_count_each_step_once() -> None:
    """As in forward-forward, each layer takes many steps before the next one begins."""
    layers = [nn.Linear(FEATURES, FEATURES) for _ in range(3)]

    def train() -> None:
        (features, _) = next(iter(DataLoader(rows(50), batch_size=50)))
        for layer in layers:
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
            for _ in range(40):
                optimizer.zero_grad()
                (layer.forward(features) - layer.forward(-features)).square().mean().backward()
                optimizer.step()
            features = layer.forward(features).detach()

    iterations, samples, _, _ = counts(measure(train))
    assert 120 - 2 * 10 <= iterations <= 120
    assert samples == 50 * iterations


def test_a_step_that_calls_its_base_class_counts_once() -> None:
    class Twice(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = nn.Linear(FEATURES, 1)
    optimizer = Twice(model.parameters(), lr=0.1)

    def train() -> None:
        for features, _ in DataLoader(rows(160), batch_size=8):
            optimizer.zero_grad()
            model(features).square().mean().backward()
            optimizer.step()

    assert counts(measure(train)) == (20, 160, 17, 136)


def test_one_step_per_parameter_group_is_one_iteration() -> None:
    """As in DeepSpeed, the same optimizer steps once per group after one pass."""
    loop = Loop()

    def train() -> None:
        for features, _ in DataLoader(rows(160), batch_size=8):
            loop.step(features)
            loop.optimizer.step()

    assert counts(measure(train)) == (20, 160, 17, 136)


def test_an_accumulation_of_many_passes_is_not_mistaken_for_training_without_steps() -> None:
    loop = Loop()

    def train() -> None:
        loader = DataLoader(rows(40 * 8 * 8), batch_size=8)
        for number, (features, _) in enumerate(loader, start=1):
            loop.model(features).square().mean().backward()
            if number % 40 == 0:
                loop.optimizer.step()
                loop.optimizer.zero_grad()

    iterations, samples, timed_iterations, timed_samples = counts(measure(train))
    assert iterations == 8
    assert samples == 40 * 8 * 8
    assert timed_samples == timed_iterations * 40 * 8


def test_steps_that_no_hook_sees_are_counted_from_passes() -> None:
    model = nn.Linear(FEATURES, 1)

    def train() -> None:
        for features, _ in DataLoader(rows(400), batch_size=8):
            model(features).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad, alpha=0.1)
                    parameter.grad = None

    iterations, samples, timed_iterations, timed_samples = counts(measure(train))
    assert (iterations, samples) == (50, 400)
    # On a busy machine, the updates, which build no graph, may be slow enough to pass for an
    # evaluation.
    assert 9 <= timed_iterations <= 18
    assert timed_samples == 8 * timed_iterations


def test_a_gradient_cleared_through_data_is_not_kept() -> None:
    kept_gradient = KeptGradient()
    weights = nn.Parameter(torch.ones(FEATURES))
    kept = []
    for step in range(4):
        loss = (weights * (step + 1)).sum()
        kept.append(kept_gradient.is_kept(loss))
        loss.backward()
        kept_gradient.note()
        if step % 2 and weights.grad is not None:
            weights.grad.data.zero_()
    assert kept == [False, True, False, True]


def test_a_gradient_that_no_pass_changes_is_not_kept() -> None:
    """It belongs to another model, which is no longer trained."""
    kept_gradient, kept = KeptGradient(), []
    weights = [nn.Parameter(torch.ones(FEATURES)) for _ in range(2)]
    for step in range(6):
        parameter = weights[step > 1]
        kept.append(kept_gradient.is_kept(parameter.sum()))
        parameter.sum().backward()
        kept_gradient.note()
        if step > 1:
            parameter.grad = None
    assert kept == [False, True, True, False, False, False]


def test_a_loader_knows_the_number_of_samples_it_read() -> None:
    """The collation does not matter: here, it makes the batch axis the second one."""

    def transpose(parts: Any) -> torch.Tensor:
        return torch.stack([features for features, _ in parts], 1)

    loop = Loop()

    def train() -> None:
        for features in DataLoader(rows(90), batch_size=8, collate_fn=transpose):
            loop.step(features.T)

    assert measure(train)["samples"] == 90


def test_a_layer_shows_that_the_second_axis_is_the_batch() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer = nn.Embedding(10, 8), nn.LSTM(8, 8)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layer(self.words(words))[0]
            return result

    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.randint(10, (35, 20))).square().mean().backward()
            optimizer.step()

    assert measure(train)["samples"] == 200


def test_a_loss_may_cover_all_words_of_all_texts() -> None:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        for _ in range(10):
            optimizer.zero_grad()
            words = torch.randint(10, (20, 35))
            loss(model(words).flatten(0, 1), words.flatten()).backward()
            optimizer.step()

    assert measure(train)["samples"] == 200


def test_models_may_be_called_in_an_unusual_way() -> None:
    """As in GPyTorch, where constraints on parameters are modules, too."""

    class Process(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1, 1))
            self.positive = nn.Softplus()

        def __call__(self, features: torch.Tensor) -> torch.Tensor:
            return self.positive(self.scale) * features

    model = Process()
    call = Process.__call__
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    features = torch.randn(200, 2)

    def train() -> None:
        for _ in range(60):
            optimizer.zero_grad()
            model(features).square().mean().backward()
            optimizer.step()

    assert counts(measure(train))[:2] == (60, 12_000)
    assert Process.__call__ is call


def test_a_sampler_without_a_length_is_measured() -> None:
    class Endless(Sampler[list[int]]):
        def __iter__(self) -> Iterator[list[int]]:
            for position in range(10):
                yield list(range(8 * position, 8 * position + 8))

        def __len__(self) -> int:
            raise NotImplementedError

    loop = Loop()

    def train() -> None:
        session_module._session._next_write = 0.0  # type: ignore[union-attr]
        for features, _ in DataLoader(rows(80), batch_sampler=Endless()):
            loop.step(features)

    assert counts(measure(train))[:2] == (10, 80)


def test_a_dataset_may_yield_batches() -> None:
    class Batches(IterableDataset[dict[str, Any]]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            for _ in range(10):
                yield {
                    "boxes": torch.randn(31, 4),
                    "features": torch.randn(8, FEATURES),
                    "labels": torch.zeros(8),
                }

    loop = Loop()

    def train() -> None:
        for batch in DataLoader(Batches(), batch_size=None):
            loop.step(batch["features"])

    assert measure(train)["samples"] == 80


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ([torch.zeros(3, 32, 32), torch.zeros(3, 24, 40)], 2),
        ([{"boxes": torch.zeros(7, 4)}, {"boxes": torch.zeros(1, 4)}], 2),
        (pack_sequence([torch.zeros(5, 2), torch.zeros(3, 2), torch.zeros(2, 2)]), 3),
        ({"boxes": torch.zeros(7, 4), "image": torch.zeros(2, 3, 8, 8), "id": torch.zeros(2)}, 2),
        ([torch.zeros(16, 3), torch.zeros(16)], 16),
        ((torch.zeros(16, 3, 8, 8), (torch.zeros(16), torch.zeros(16))), 16),
        (torch.zeros(5), 1),
        (torch.zeros(5, dtype=torch.long), 5),
        ("text", 0),
    ],
)
def test_samples_of_a_batch_are_counted_by_its_type(batch: Any, samples: int) -> None:
    assert samples_of(batch) == samples


@pytest.mark.parametrize("minibatches", [2, 4, 8, 16])
def test_inspections_cover_all_minibatches_of_a_rollout(minibatches: int) -> None:
    """Otherwise, a rollout's shorter last minibatch would be inspected too often or never."""
    for share in range(1, 200):
        recorder = Recorder()
        recorder.sample_counter.varies = True
        shortest = inspections.INSPECTION_SECONDS / inspections.MAX_SHARE
        recorder.counts.iteration.add(shortest / share * 10)
        interval = inspections.InspectionPlan().interval(recorder)
        assert math.gcd(interval, minibatches) == 1


def test_dictionaries_passed_to_a_model_are_part_of_its_input() -> None:
    frames = {"frame": torch.zeros(5, 8, 6), "reward": torch.zeros(5, 8)}
    assert samples_given([frames]) == samples_given([frames, frames]) == 5
    assert samples_of({"student": frames, "teacher": frames}) == 5
    assert samples_of([frames, frames]) == 2  # a list of samples, as for detectors


@pytest.fixture
def nothing_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    session_module._session._hooks._inputs._compiles = False  # type: ignore[union-attr]


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["model", "function", "in place"])
def test_compiled_models_are_observed_without_a_loader(kind: str) -> None:
    loop = Loop()

    def train() -> None:
        loss = forward = lambda features: loop.model(features).square().mean()
        if kind == "model":
            loop.model = torch.compile(loop.model, backend="eager")  # type: ignore[assignment]
        elif kind == "in place":
            loop.model.compile(backend="eager")
        else:
            loss = torch.compile(forward, backend="eager", fullgraph=True)
        with torch._dynamo.config.patch(error_on_recompile=True):
            for _ in range(50):
                loop.optimizer.zero_grad()
                loss(torch.randn(8, FEATURES)).backward()
                loop.optimizer.step()

    assert counts(measure(train))[:2] == (50, 400)


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["model", "in place"])
def test_a_model_compiled_during_training_is_not_compiled_again(kind: str) -> None:
    loop = Loop()

    def train() -> None:
        for _ in range(50):
            loop.step(torch.randn(8, FEATURES))

    def compile_and_train() -> None:
        if kind == "model":
            loop.model = torch.compile(loop.model, backend="eager")  # type: ignore[assignment]
        else:
            loop.model.compile(backend="eager")
        with torch._dynamo.config.patch(error_on_recompile=True):
            train()

    measure(train)
    assert counts(measure(compile_and_train))[:2] == (50, 400)


def test_hooked_functions_can_be_pickled() -> None:
    measure(lambda: None)
    functions = (
        torch.save,
        torch.autograd.backward,
        nn.Module.eval,
        torch.optim.Optimizer.__init__,
    )
    for function in functions:
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301


@pytest.mark.parametrize("steps", [1, 3, 5, 7])
def test_modules_are_called_as_before_when_an_inspection_ends(steps: int) -> None:
    """This also holds if the measured block ends during an inspection."""
    call_before = nn.Module.__call__
    loop = Loop()
    measure(lambda: [loop.step(torch.randn(2, FEATURES)) for _ in range(steps)])
    assert nn.Module.__call__ is call_before


@pytest.mark.parametrize("loader", [True, False])
def test_processing_events_in_batches_gives_the_same_result(
    loader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterations are short, with evaluations, accumulations and a late second optimizer."""
    now = 0.0
    for module in (hooks, graphless):
        monkeypatch.setattr(module, "perf_counter", lambda: now)

    def train() -> None:
        nonlocal now
        now, loop = 100.0, Loop()
        peer = torch.optim.SGD(loop.model.parameters(), lr=0.01)
        batches = iter(DataLoader(rows(6000), batch_size=8))
        for number in range(300):
            for part in range(1 + number % 3):
                now += 0.0001
                features = next(batches)[0] if loader else torch.randn(8, FEATURES)
                now += 0.0002 * (1 + part)
                loop.model(features).square().mean().backward()
            now += 0.0003
            loop.optimizer.step()
            if number % 23 == 0:
                loop.evaluate(DataLoader(rows(8), batch_size=8))
            if number > 150:
                peer.step()

    results = []
    for batch_steps in (1, 7, 64):
        with hops_profiler.profile() as session:
            monkeypatch.setattr(session._hooks, "batch_steps", batch_steps)
            train()
        report = session.summary()
        assert (report["failure"], report["iterations"]) == ("", 300)
        keys = ("samples", "timed", "phases", "interrupted", "basics")
        results.append({name: report[name] for name in keys})
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("slow_milliseconds", [0, 1])
def test_one_slow_block_without_a_graph_is_not_an_evaluation(
    monkeypatch: pytest.MonkeyPatch, slow_milliseconds: int
) -> None:
    """Clipping of gradients is slow if another process takes the CPU, in each step or only once.

    Regression: an accumulating loop on a busy machine got an additional evaluation.
    """
    now = 1.0
    for module in (hooks, graphless):
        monkeypatch.setattr(module, "perf_counter", lambda: now)
    loop = Loop()

    def train() -> None:
        nonlocal now
        for number, (features,) in enumerate(DataLoader(TensorDataset(torch.randn(320, 4)), 8)):
            now += 0.01
            loop.model(features).square().mean().backward()
            if number % (1 + slow_milliseconds) == 0:
                with torch.no_grad():
                    now += 0.5 if number == 12 else 0.001
            loop.optimizer.step()

    report = measure(train)
    assert (report["iterations"], report["interrupted"]) == (40, 0)


def test_another_thread_may_request_the_counts_at_any_time() -> None:
    """As a thread that saves checkpoints in the background does. Events stay in order."""
    request, end, report = threading.Event(), threading.Event(), []

    def slow(*_: object) -> None:
        request.set()
        end.wait()
        report.append("first")

    with hops_profiler.profile() as session:
        session._hooks._queue.extend((slow, None))
        first = threading.Thread(target=lambda: session._hooks.recorder)
        first.start()
        request.wait()
        session._hooks._queue.extend((lambda *_: report.append("second"), None))
        second = threading.Thread(target=session._hooks._queue.flush)
        second.start()
        end.set()
        first.join()
        second.join()
        session.summary()
    assert report == ["first", "second"]


class PreemptedError(Exception):
    """Raised by the program's signal handler."""


def test_a_handler_may_raise_anywhere_during_a_flush() -> None:
    """It may raise before any instruction, as in Python 3.9; later events are still processed."""
    signals, report, number = True, [], 0

    def handler(frame: Any, event: str, _: object) -> Any:
        nonlocal opcodes_left
        if frame.f_code is not events.EventQueue.flush.__code__:
            return None
        frame.f_trace_opcodes = True
        opcodes_left -= event == "opcode"
        if not opcodes_left:
            raise PreemptedError
        return handler

    def tell() -> None:
        report.clear()
        session._hooks._queue.extend((lambda *_: report.append(number), None))
        session._hooks._queue.flush()

    trace_before = sys.gettrace()
    with hops_profiler.profile() as session:
        while signals:
            number += 1
            opcodes_left, signals = number, False
            sys.settrace(handler)
            try:
                tell()
            except PreemptedError:
                signals = True
            finally:
                sys.settrace(trace_before)
            tell()
            assert report[-1] == number
            teller = threading.Thread(target=tell, daemon=True)
            teller.start()
            teller.join(60)
            assert report == [number]
        assert session.summary()["failure"] == ""
    assert number > 20


def test_an_exception_raised_by_a_handler_during_a_flush_reaches_the_program() -> None:
    """The exception reaches the loop from any hook, and later iterations are measured."""

    def handler(*_: object) -> None:
        raise PreemptedError

    def note(place: str) -> None:
        if place == phase:
            session._hooks._queue.extend((lambda *_: signal.raise_signal(signal.SIGUSR1), None))

    class Rows(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, _: int) -> torch.Tensor:
            note("data")
            return torch.ones(FEATURES)

    def train() -> None:
        for features in loader:
            loop.optimizer.zero_grad()
            loss = loop.model(features).square().mean()
            note("backward")
            loss.backward()
            note("update")
            loop.optimizer.step()

    loop, loader = Loop(), DataLoader(Rows())
    handler_before = signal.signal(signal.SIGUSR1, handler)
    try:
        with hops_profiler.profile() as session:
            for phase in ("data", "backward", "update"):  # noqa: B007 - note() reads it
                with pytest.raises(PreemptedError):
                    train()
                assert not session._hooks.recorder.in_phase
            phase = "nowhere"
            train()
            report = session.summary()
    finally:
        signal.signal(signal.SIGUSR1, handler_before)
    assert (report["failure"], report["iterations"]) == ("", 4)


def test_a_block_begins_after_another_thread_has_flushed_earlier_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins, report = threading.Event(), []

    class WatchedLock:
        """A lock that signals when a thread waits for it."""

        def __init__(self) -> None:
            self.lock = threading.RLock()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.lock, name)

        def __enter__(self) -> None:
            if threading.current_thread() is beginner:
                begins.set()
            self.lock.__enter__()

        def __exit__(self, *error: Any) -> None:
            self.lock.__exit__(*error)

    def begin() -> None:
        session.resume()
        for number in (1, 2):
            session._hooks._queue.extend((lambda *_, number=number: report.append(number), None))
        begins.set()

    def slow(*_: object) -> None:
        beginner.start()
        begins.wait()

    with hops_profiler.profile() as session:
        monkeypatch.setattr(session._hooks._queue, "_lock", WatchedLock())
        beginner = threading.Thread(target=begin)
        session._hooks._queue.extend((slow, None))
        flusher = threading.Thread(target=session._hooks._queue.flush)
        flusher.start()
        flusher.join()
        beginner.join()
        assert session.summary()["failure"] == ""
    assert report == [1, 2]


def test_events_between_steps_use_bounded_memory() -> None:
    """The program is a server that calls ``eval()`` before each inference request."""
    model = nn.Linear(1, 1)
    with hops_profiler.profile() as session:
        for _ in range(2 * events.MAX_EVENTS):
            model.eval()
        assert len(session._hooks._queue.events) <= events.MAX_EVENTS + 2


def test_a_handler_that_saves_during_a_flush_does_not_wait_for_the_flush() -> None:
    report: list[str] = []

    def save(*_: object) -> None:
        assert not session._hooks._queue.flush()
        report.append("first")

    with hops_profiler.profile() as session:
        session._hooks._queue.extend((save, None))
        session._hooks._queue.extend((lambda *_: report.append("second"), None))
        session.summary()
    assert report == ["first", "second"]


def test_after_a_failure_no_events_are_kept_and_the_first_error_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("first")

    with hops_profiler.profile() as session:
        monkeypatch.setattr(session._hooks, "failure", "")
        for _ in range(3):
            session._hooks._queue.extend((fail, None))
        report = session.summary()
        assert (report["failure"], len(session._hooks._queue.events)) == ("ValueError('first')", 0)


class Refuses(torch.optim.SGD):
    """Raises at every third step; takes the other steps like its base class."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        if self.steps % 3 == 0:
            raise PreemptedError
        return super().step(closure)


@pytest.mark.parametrize("loads", [True, False])
def test_a_step_that_raises_ends_its_phase(loads: bool) -> None:
    """It ends immediately, not at the end of the training or after eight such steps."""
    model = nn.Linear(FEATURES, 1)
    optimizer = Refuses(model.parameters(), lr=0.01)
    rows = [torch.ones(FEATURES)] * 12
    open_after = []
    with hops_profiler.profile() as session:
        for features in DataLoader(rows) if loads else rows:  # type: ignore[arg-type]
            model(features).square().mean().backward()
            with contextlib.suppress(PreemptedError):
                optimizer.step()
                open_after.append(session._hooks.recorder.in_phase)
        report = session.summary()
    assert open_after == [False] * 8
    assert (report["iterations"], report["failure"]) == (8, "")
