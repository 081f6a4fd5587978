"""`CudaClock` with events of a simulated GPU that lags behind the loop."""

from __future__ import annotations

import hops_profiler
import pytest
import torch
from hops_profiler.timing import session
from hops_profiler.timing.counts import WARMUP
from hops_profiler.timing.device import MAX_MARKS, MAX_PENDING, CudaClock
from hops_profiler.timing.recorder import Recorder
from torch.utils.data import DataLoader


class Gpu:
    """Processes queued work later; ``done_seconds`` is the time of the completed work."""

    def __init__(self) -> None:
        self.queue_seconds = 0.0
        self.done_seconds = 0.0
        self.event_count = 0
        self.usable = True

    def work(self, seconds: float) -> None:
        self.queue_seconds += seconds

    def catch_up(self) -> None:
        self.done_seconds = self.queue_seconds

    def new_event(self) -> Event:
        self.event_count += 1
        return Event(self)


class Event:
    """Like ``torch.cuda.Event``, but without ``synchronize``."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.at = -1.0

    def record(self) -> None:
        self.at = self._gpu.queue_seconds

    def query(self) -> bool:
        return self.at <= self._gpu.done_seconds

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query()
        return (end.at - self.at) * 1e3


def train(gpu: Gpu, clock: CudaClock, iterations: int) -> Recorder:
    """Queue work only: it takes no time on the CPU's clock."""
    recorder = Recorder(clock)
    continue_training(recorder, gpu, iterations)
    return recorder


def continue_training(recorder: Recorder, gpu: Gpu, iterations: int) -> None:
    for _ in range(iterations):
        recorder.begin_data(0.0)
        recorder.leave(0.0)
        recorder.add_batch(8)
        gpu.work(0.2)
        recorder.begin_backward(0.0)
        gpu.work(0.3)
        recorder.leave(0.0)
        recorder.begin_update(0.0)
        gpu.work(0.1)
        recorder.leave(0.0)
        recorder.step(1)
        recorder.begin_on_device()


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


def test_times_come_from_the_gpu_and_are_read_only_after_its_events_completed(gpu: Gpu) -> None:
    clock = CudaClock(1, gpu.new_event, lambda: gpu.usable)
    recorder = train(gpu, clock, WARMUP + 5)
    assert recorder.counts.on_device["forward"].count == 0
    gpu.catch_up()
    recorder.read_device()
    device = recorder.counts.on_device
    assert device["forward"].count == 5
    assert device["forward"].mean == pytest.approx(0.2)
    assert device["backward"].mean == pytest.approx(0.3)
    assert device["update"].mean == pytest.approx(0.1)
    assert device["data"].mean == 0.0


def test_events_are_reused(gpu: Gpu) -> None:
    clock = CudaClock(1, gpu.new_event, lambda: gpu.usable)
    for _ in range(200):
        train(gpu, clock, 1)
        gpu.catch_up()
        clock.end_iteration(keep=True)
        clock.begin()
        clock.read()
    assert gpu.event_count < 30


def test_a_gpu_far_behind_uses_bounded_memory(gpu: Gpu) -> None:
    train(gpu, CudaClock(1, gpu.new_event, lambda: gpu.usable), 10 * MAX_PENDING)
    assert gpu.event_count < 10 * MAX_PENDING


def test_a_loop_that_never_steps_uses_bounded_memory(gpu: Gpu) -> None:
    clock = CudaClock(1, gpu.new_event, lambda: gpu.usable)
    clock.end_iteration(keep=False)
    clock.begin()
    for _ in range(3 * MAX_MARKS):
        clock.mark("backward")
    assert gpu.event_count <= MAX_MARKS


def test_timing_every_seventh_iteration_is_enough(gpu: Gpu) -> None:
    clock = CudaClock(7, gpu.new_event, lambda: gpu.usable)
    recorder = train(gpu, clock, WARMUP + 100)
    gpu.catch_up()
    recorder.read_device()
    assert recorder.counts.on_device["backward"].count == pytest.approx(100 / 7, abs=1)
    assert recorder.counts.on_device["backward"].mean == pytest.approx(0.3)


def test_no_events_are_recorded_when_cuda_forbids_them(gpu: Gpu) -> None:
    """They are forbidden while a graph is captured and before CUDA is in use."""
    gpu.usable = False
    clock = CudaClock(1, gpu.new_event, lambda: gpu.usable)
    recorder = train(gpu, clock, 20)
    assert gpu.event_count == 0
    assert recorder.counts.on_device["forward"].count == 0


def test_iteration_times_come_from_the_gpu_if_each_iteration_is_timed(gpu: Gpu) -> None:
    """A loop that never waits for its GPU queues ten iterations in the time of one."""
    clock = CudaClock(1, gpu.new_event, lambda: gpu.usable)
    recorder = train(gpu, clock, WARMUP + 5)
    counts = recorder.counts
    assert counts.iterations == WARMUP + 5
    assert counts.iteration.count == 0
    gpu.catch_up()
    recorder.read_device()
    # The last iteration ends when the next one begins, which never happens.
    assert counts.iteration.count == counts.phases["forward"].count == 4
    assert counts.iteration.mean == pytest.approx(0.6)
    assert counts.timed_samples == 4 * 8


def test_time_between_two_iterations_is_counted_in_neither(gpu: Gpu) -> None:
    clock = CudaClock(1, gpu.new_event, lambda: gpu.usable)
    recorder = train(gpu, clock, WARMUP + 5)
    recorder.add_evaluation()
    gpu.work(50.0)
    continue_training(recorder, gpu, 4)
    gpu.catch_up()
    recorder.read_device()
    assert recorder.counts.interruptions == 1
    assert recorder.counts.iteration.count == 4 + 2
    assert recorder.counts.iteration.mean == pytest.approx(0.6)


def test_a_gpu_too_far_behind_leaves_iterations_untimed(gpu: Gpu) -> None:
    clock = CudaClock(1, gpu.new_event, lambda: gpu.usable)
    recorder = train(gpu, clock, WARMUP + MAX_PENDING + 10)
    gpu.catch_up()
    continue_training(recorder, gpu, 5)
    gpu.catch_up()
    recorder.read_device()
    assert MAX_PENDING <= recorder.counts.iteration.count <= MAX_PENDING + 5
    assert recorder.counts.iteration.mean == pytest.approx(0.6)
    assert recorder.counts.timed_samples == 8 * recorder.counts.iteration.count


def test_a_loop_without_a_gpu_is_timed_immediately(gpu: Gpu) -> None:
    gpu.usable = False
    recorder = train(gpu, CudaClock(1, gpu.new_event, lambda: gpu.usable), WARMUP + 5)
    assert recorder.counts.iteration.count == 5


@pytest.mark.live
def test_gpu_events_are_recorded_during_the_iteration_that_they_time(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not recorded when events are flushed, even if a summary is requested meanwhile."""
    clock = CudaClock(7, gpu.new_event, lambda: gpu.usable)
    monkeypatch.setattr(session.Session, "_new_recorder", lambda _: Recorder(clock))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with hops_profiler.profile() as profile_session:
        monkeypatch.setattr(profile_session._hooks, "batch_steps", 7)
        for number, features in enumerate(DataLoader(torch.randn(800, 4), batch_size=8)):
            gpu.work(0.2)
            output = model(features).sum()
            if number % 3 == 0:
                assert profile_session.summary()["iterations"] == number
            output.backward()
            gpu.work(0.1)
            optimizer.step()
            gpu.catch_up()
    device = profile_session._hooks.recorder.counts.on_device
    assert 95 / 9 <= device["forward"].count <= 95 / 7 + 1
    assert device["forward"].mean == pytest.approx(0.2)
    assert device["update"].mean == pytest.approx(0.1)
