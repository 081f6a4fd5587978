"""How the recorder turns events into iterations, without PyTorch or a clock."""

from __future__ import annotations

from typing import Any

import pytest
from hops_profiler.timing.basics import pattern
from hops_profiler.timing.counts import PHASES, WARMUP
from hops_profiler.timing.forgotten import ForgottenGraphs
from hops_profiler.timing.inspections import InspectionPlan
from hops_profiler.timing.pauses import DOUBT, EVALUATION, ROLLOUT, Pauses
from hops_profiler.timing.recorder import STEPS_TO_NEW_LEADER, Recorder
from hops_profiler.timing.series import Histogram
from hypothesis import given
from hypothesis import strategies as st


class Loop:
    """A training loop that passes each event to a recorder."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.now = 100.0

    def phase(self, name: str, seconds: float) -> None:
        getattr(self.recorder, f"begin_{name}")(self.now)
        self.now += seconds
        self.recorder.leave(self.now)

    def fetch(self, seconds: float = 0.1, samples: int = 8) -> None:
        self.phase("data", seconds)
        self.recorder.add_batch(samples)

    def step(self, optimizer: int = 1, seconds: float = 0.4) -> bool:
        self.phase("update", seconds)
        return self.recorder.step(optimizer)

    def iteration(self) -> None:
        """Data 0.1 s, forward 0.2 s, backward 0.3 s, clipping and update 0.5 s, rest 0.05 s."""
        self.fetch()
        self.now += 0.2
        self.phase("backward", 0.3)
        self.now += 0.1
        self.step()
        self.now += 0.05


def test_each_moment_belongs_to_one_phase() -> None:
    loop = Loop()
    for _ in range(WARMUP + 4):
        loop.iteration()
    counts = loop.recorder.counts
    assert (counts.iterations, counts.samples) == (7, 56)
    assert (counts.iteration.count, counts.timed_samples) == (4, 32)
    means = {name: series.mean for name, series in counts.phases.items()}
    assert means == pytest.approx(
        {"data": 0.1, "forward": 0.2, "backward": 0.3, "update": 0.5, "rest": 0.05}
    )
    assert counts.iteration.mean == pytest.approx(1.15)


def test_an_evaluation_pauses_the_iteration_and_its_samples_do_not_count() -> None:
    loop = Loop()
    for _ in range(10):
        loop.iteration()
    for _ in range(50):
        loop.fetch(samples=64)
    loop.iteration()
    counts = loop.recorder.counts
    assert (counts.iterations, counts.interruptions, counts.samples) == (11, 1, 88)
    assert counts.iteration.mean == pytest.approx(1.15)


def test_a_loop_that_reads_ahead_is_not_mistaken_for_an_evaluation() -> None:
    loop = Loop()
    loop.fetch()
    for _ in range(9):
        loop.iteration()
    loop.now += 0.2
    loop.phase("backward", 0.3)
    loop.step()
    recorder = loop.recorder
    assert (recorder.counts.iterations, recorder.counts.iteration.count) == (10, 6)
    assert recorder.samples == 80


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_loop_that_prefetches_a_batch_is_timed_to_the_end_of_each_epoch(evaluates: bool) -> None:
    """As with accelerate's loaders. The last iteration includes the shutdown of the loader's
    workers, and the last batch is shorter."""
    loop, epochs = Loop(), 5
    recorder = loop.recorder

    def train() -> None:
        loop.now += 0.2
        loop.phase("backward", 0.3)
        loop.now += 0.1
        loop.step()
        loop.now += 0.05

    for _ in range(epochs):
        loop.fetch()
        for batch in range(9):
            loop.fetch(samples=8 if batch < 8 else 3)
            train()
        recorder.begin_data(loop.now)
        loop.now += 0.6
        recorder.leave(loop.now)
        recorder.end_loader()
        train()
        for _ in range(7 * evaluates):
            loop.fetch(samples=64)
    counts = recorder.counts
    assert counts.iterations == 10 * epochs
    evaluations = (epochs - 1) * evaluates
    assert counts.interruptions == evaluations
    assert counts.iteration.count == 10 * epochs - WARMUP - evaluations
    timed_seconds = counts.iteration.count * 1.15 + 0.5 * epochs + 0.1 * (epochs - 1 - evaluations)
    assert counts.iteration.sum == pytest.approx(timed_seconds)
    assert recorder.samples == pytest.approx(75 * epochs, abs=10 * epochs)


def test_inference_before_training_is_not_counted() -> None:
    loop = Loop()
    for _ in range(5):
        loop.fetch(samples=1000)
    loop.fetch()
    loop.now += 0.2
    loop.phase("backward", 0.3)
    loop.step()
    assert loop.recorder.samples == 8
    assert not loop.recorder.counts.inference


def test_inference_counts_as_data_and_forward() -> None:
    loop = Loop()
    for _ in range(WARMUP + 5):
        loop.fetch()
        loop.now += 0.2
    counts = loop.recorder.counts
    assert counts.inference
    assert counts.iterations == WARMUP + 4
    assert counts.phases["data"].mean == pytest.approx(0.1)
    assert counts.phases["forward"].mean == pytest.approx(0.2)
    assert counts.iteration.mean == pytest.approx(0.3)


def test_the_first_optimizer_leads_until_it_stops_stepping() -> None:
    loop = Loop()
    assert loop.step(1)
    assert not loop.step(2)
    assert loop.step(1)
    assert [loop.step(2) for _ in range(STEPS_TO_NEW_LEADER)] == [False] * (
        STEPS_TO_NEW_LEADER - 1
    ) + [True]
    assert loop.step(2)
    assert loop.recorder.counts.iterations == 2 + STEPS_TO_NEW_LEADER + 1


def test_an_iteration_of_a_leader_that_returns_includes_steps_of_the_other_optimizer() -> None:
    """If the leader no longer exists, the next optimizer leads immediately and permanently."""
    loop = Loop()
    for _ in range(3):
        for _ in range(2 * STEPS_TO_NEW_LEADER):
            loop.phase("backward", 0.3)
            loop.step(1)
        for _ in range(3 * STEPS_TO_NEW_LEADER):
            loop.phase("backward", 0.3)
            loop.step(2)
    loop.phase("backward", 0.3)
    assert loop.step(1)
    counts = loop.recorder.counts
    assert counts.iterations == 3 * 2 * STEPS_TO_NEW_LEADER + 1
    assert counts.iteration.count == counts.iterations - WARMUP
    assert counts.iteration.sum == pytest.approx(0.7 * (3 * 5 * STEPS_TO_NEW_LEADER + 1 - WARMUP))
    loop.recorder.retire(1)
    loop.phase("backward", 0.3)
    assert loop.step(2)
    assert loop.recorder.counts is counts


def test_the_optimizer_that_steps_once_for_each_read_leads() -> None:
    """Another steps four times in between; the iterations so far are counted again."""
    loop = Loop()
    for _ in range(12):
        loop.fetch(samples=8)
        for optimizer in (1, 1, 1, 1, 2):
            loop.phase("backward", 0.3)
            loop.step(optimizer)
    recorder = loop.recorder
    counts = recorder.counts
    assert (counts.iterations, counts.samples, counts.passes) == (12, 12 * 8, 12 * 5)
    assert counts.iteration.mean == pytest.approx(0.1 + 5 * 0.7)
    assert recorder.samples_are_unknown  # no iteration was inspected


def test_a_read_for_each_step_of_the_leader_makes_no_other_optimizer_lead() -> None:
    loop = Loop()
    for _ in range(12):
        for optimizer in (1, 1, 1, 1, 2):
            if optimizer == 1:
                loop.fetch(samples=8)
            loop.phase("backward", 0.3)
            loop.step(optimizer)
    assert loop.recorder.counts.iterations == 48


def test_time_is_unknown_if_every_second_iteration_with_many_passes_has_an_evaluation() -> None:
    """As when a rollout sometimes takes long enough to look like one."""
    loop = Loop()
    for iteration in range(60):
        rounds, place = divmod(iteration, 5)
        if place == 4 and rounds % 2:
            loop.recorder.add_evaluation()
        for optimizer in (*[2] * (8 * (place == 4)), 1):
            loop.phase("backward", 0.3)
            loop.step(optimizer, seconds=0.0)
    assert loop.recorder.time_is_unknown


def test_the_first_iteration_with_many_passes_is_timed_once_there_is_another() -> None:
    """Every fifth step of the leader comes after eight passes of another model."""
    loop = Loop()
    for iteration in range(30):
        loop.fetch(0.0)
        for optimizer in (*[2] * (8 * (iteration % 5 == 4)), 1):
            loop.phase("backward", 0.3)
            loop.step(optimizer, seconds=0.0)
    counts = loop.recorder.counts
    assert counts.iteration.count == 30 - WARMUP
    assert counts.iteration.sum == pytest.approx((30 - WARMUP + 8 * 6) * 0.3)
    assert counts.interruptions == 0


def test_steps_within_the_backward_pass_are_updates() -> None:
    loop, recorder = Loop(), None
    recorder = loop.recorder
    for _ in range(WARMUP + 2):
        loop.fetch()
        loop.now += 0.2
        recorder.begin_backward(loop.now)
        for optimizer in (1, 2):
            loop.now += 0.3
            loop.step(optimizer)
        recorder.leave(loop.now)
    seconds = {name: series.mean for name, series in recorder.counts.phases.items()}
    assert seconds["update"] == pytest.approx(0.8)
    assert seconds["backward"] == pytest.approx(0.6)
    assert seconds["forward"] == pytest.approx(0.2)


def test_a_forward_pass_inside_a_step_counts_as_forward() -> None:
    """Lightning and LBFGS pass such closures."""
    loop = Loop()
    for _ in range(WARMUP + 2):
        loop.fetch()
        loop.recorder.begin_update(loop.now)
        loop.now += 0.2
        loop.phase("backward", 0.3)
        loop.now += 0.1
        loop.recorder.leave(loop.now)
        loop.recorder.step(1)
    seconds = {name: series.mean for name, series in loop.recorder.counts.phases.items()}
    assert seconds == pytest.approx(
        {"data": 0.1, "forward": 0.2, "backward": 0.3, "update": 0.1, "rest": 0.0}
    )


KINDS = [
    *("usual", "usual", "usual", "numbered", "numbered"),
    *("evaluated", "accumulated", "unread", "alien", "dry", "looked"),
]


def _events(kinds: list[tuple[str, int]]) -> list[Any]:
    """Return the events of such iterations: methods alternate with their arguments."""
    events: list[Any] = []
    now = 64.0

    def note(*event: object) -> None:
        nonlocal now
        now += 1 / 64 * (1 + len(events) % 5)
        events.extend(event if len(event) == 2 else (*event, now))

    def batch(size: int) -> None:
        note(Recorder.begin_data)
        note(Recorder.leave)
        note(Recorder.add_batch, size)

    for kind, size in kinds:
        if kind == "dry":
            note(Recorder.begin_data)
            note(Recorder.leave)
            note(Recorder.end_loader, None)
        if kind == "evaluated":
            note(Recorder.add_evaluation, None)
            batch(64)
        for _ in range(1 + (kind == "accumulated")):
            if kind not in ("unread", "dry", "numbered"):
                batch(size)
            if kind == "numbered":
                note(Recorder.number, 3 * len(events))
            if kind == "looked":
                note(Recorder.inspect, Batch(5, 5, set(), samples=5))
            note(Recorder.begin_backward)
            note(Recorder.leave)
        note(Recorder.begin_update)
        note(Recorder.leave)
        note(Recorder.step, 2 if kind == "alien" else 1)
    return events


def _replay(events: list[Any], *, is_batched: bool) -> Recorder:
    recorder, position = Recorder(), 0
    while position < len(events):
        several = recorder.consume_regular_iterations(events, position) if is_batched else 0
        if not several:
            events[position](recorder, events[position + 1])
        position += several or 2
    return recorder


def _state(recorder: Recorder) -> dict[str, Any]:
    """Return the recorder's state except for times."""
    counter = recorder.sample_counter
    owners = recorder, recorder.counts, recorder._phases, counter, recorder._warmup
    state = {name: value for owner in owners for name, value in vars(owner).items()}
    state["_inspections"] = counter._inspections.as_json()
    state["_regular"] = recorder._regular._kinds
    state["_pauses"], state["_graphs"] = vars(recorder._pauses), vars(recorder._graphs)
    state["_loss"], state["_reads"] = vars(counter._loss), vars(recorder._reads)
    state["_accumulation"] = vars(recorder._accumulation)
    state["_former_leaders"] = {
        leader: (counts.iterations, counts.samples, learnt[:2])
        for leader, (counts, _, learnt, _) in recorder._former_leaders.items()
    }
    for name in ("counts", "sample_counter", "_phases", "_device_times", "_warmup"):
        del state[name]
    del state["_exclusions"]
    for name in ("iteration", "phases", "data", "backward", "on_device", "took"):
        del state[name]
    del state["backward_on_device"]
    return state


@given(
    st.sampled_from(["usual", "numbered"]),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9)), max_size=40),
)
def test_processing_regular_iterations_in_batches_gives_the_same_result(
    usual: str, kinds: list[tuple[str, int]]
) -> None:
    """This holds with and without a loader."""
    events = _events([(usual, 8)] * 4 + kinds + [(usual, 8)] * 12)
    single, several = _replay(events, is_batched=False), _replay(events, is_batched=True)
    assert _state(single) == _state(several)
    for name, series in single.counts.phases.items():
        assert series.as_json() == several.counts.phases[name].as_json()
    assert single.counts.iteration.as_json() == several.counts.iteration.as_json()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["data", "backward", "update", "leave", "fetched", "step 1", "step 2"]),
            st.floats(0.001, 10.0),
        ),
        max_size=200,
    )
)
def test_no_sequence_of_events_loses_time_or_counts_it_twice(
    event_list: list[tuple[str, float]],
) -> None:
    """The phases of timed iterations add up to their wall time, and none is negative."""
    recorder, now = Recorder(), 50.0
    for kind, seconds in event_list:
        now += seconds
        if kind in ("data", "backward", "update"):
            getattr(recorder, f"begin_{kind}")(now)
        elif kind == "leave":
            recorder.leave(now)
        elif kind == "fetched":
            recorder.leave(now)
            recorder.add_batch(4)
        else:
            recorder.begin_update(now)
            recorder.leave(now)
            recorder.step(int(kind[-1]))
    counts = recorder.counts
    parts = sum(counts.phases[name].sum for name in PHASES)
    assert parts == pytest.approx(counts.iteration.sum)
    assert all(series.sum >= 0 for series in counts.phases.values())
    assert counts.iteration.count + counts.interruptions <= counts.iterations


@given(st.lists(st.floats(1e-5, 1e3), min_size=1, max_size=200))
def test_a_histogram_keeps_mean_deviation_and_quantiles(values: list[float]) -> None:
    series = Histogram()
    for value in values:
        series.add(value)
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    assert series.mean == pytest.approx(mean)
    assert series.deviation == pytest.approx(variance**0.5, rel=1e-3, abs=1e-4 * mean)
    # A bin is 10 % wide, so its middle is within 5 % of its values.
    smallest, largest = sorted(values)[0], sorted(values)[-1]
    assert series.quantile(0.0001) == pytest.approx(smallest, rel=0.06)
    assert series.quantile(1.0) == pytest.approx(largest, rel=0.06)
    assert sum(series.bins.values()) == len(values)


def test_a_histogram_does_not_grow() -> None:
    series = Histogram()
    for i in range(-40, 40):
        series.add(10.0 ** (i / 8))
    assert len(series.bins) <= 1 + 24 * 11


@pytest.mark.parametrize(
    ("data", "forward", "backward_update"), [(5.0, 2.0, 3.0), (1.0, 2.0, 3.0), (0.5, 1.0, 9.0)]
)
def test_the_pattern_is_the_one_closer_to_the_measured_time(
    data: float, forward: float, backward_update: float
) -> None:
    overlap_seconds = max(data, backward_update) + forward
    sequential = data + forward + backward_update
    assert pattern(overlap_seconds * 1.02, data, forward, backward_update) == 1
    assert pattern(sequential * 0.99, data, forward, backward_update) == 2


@pytest.mark.parametrize(("calls", "verdict"), [(20, EVALUATION), (5000, DOUBT)])
def test_time_is_unclear_if_a_pause_reads_many_times_the_batches_trained_on(
    calls: int, verdict: str
) -> None:
    """It may be an evaluation, but a world model plans on whole batches, too."""
    pauses = Pauses()
    pauses.add(8, [])
    pauses.end_iteration(1.0, regular=True)
    pauses.begin_iteration()
    pauses.add(8, [8] * calls)
    assert pauses.judge(60, is_early=False) == verdict


@pytest.mark.parametrize(("backward", "doubtful"), [(0.004, 17.0), (0.02, 17.0), (0.3, 0.0)])
def test_time_is_unclear_if_a_large_graph_has_no_backward_pass(
    backward: float, doubtful: float
) -> None:
    """A pass over the large graph would be slower in proportion, not just a few times slower."""
    graphs, number = ForgottenGraphs(), 0
    for iteration in range(30):
        number += 60
        graphs.add(number)
        graphs.end_iteration(iteration, 0.01, 0.004)
    graphs.add(number + 6000)
    graphs.end_iteration(30, 17.01, backward)
    assert graphs.doubtful_seconds == pytest.approx(doubtful)


@pytest.mark.parametrize(("every", "doubtful"), [(30, 0.0), (1, 17.0)])
def test_a_large_graph_before_a_rare_step_of_another_optimizer_is_no_evaluation(
    every: int, doubtful: float
) -> None:
    """If the other optimizer takes each step beside the leader, it says nothing of the graph."""
    graphs, number = ForgottenGraphs(), 0
    for iteration in range(1, 31):
        number += 60
        if iteration % every == 0:
            graphs.lead_to_step()
        graphs.add(number + 6000 * (iteration == 30))
        graphs.end_iteration(iteration - 1, 17.01 if iteration == 30 else 0.01, 0.004)
    assert graphs.doubtful_seconds == pytest.approx(doubtful)


@pytest.mark.parametrize(("milliseconds", "interval"), [(100, 23), (1, 23), (0.3, 97), (0.05, 797)])
def test_inspections_of_short_iterations_are_rare(milliseconds: float, interval: int) -> None:
    """Inspections take at most 0.5 % of the time."""
    recorder = Recorder()
    recorder.counts.iteration.add(milliseconds / 1000)
    assert InspectionPlan().interval(recorder) == interval


class Batch:
    """Stands for the batch of an inspected backward pass."""

    def __init__(
        self, rows: int, outputs: int, axes: set[int], *, samples: int = 0, unclear: bool = False
    ) -> None:
        self.rows, self.outputs, self.axes, self.unused_rows = rows, outputs, axes, 0
        self.samples, self.unclear, self.own_rows = samples, unclear, samples
        self.loss_rows = samples
        self.sources: set[tuple[int, int]] = set()
        self.contents: set[int] | None = None
        self.parameters: set[int] = set()
        self.widths: set[tuple[int, ...]] = set()
        self.read_axes: set[int] = set()
        self.read_storages: set[int] = set()
        self.is_made = self.wants_gradient = False
        self.place = None
        self.adds_calls = self.repeats_rows = self.is_stage = False
        self.graphless: list[int] = []


def samples_per_iteration(read: int, model_samples: int, batch: Batch) -> float:
    """Return the samples per iteration if each reads ``read`` rows and two are inspected."""
    loop = Loop()
    for iteration in range(10):
        loop.fetch(samples=read)
        if iteration in (1, 2):
            batch.samples = model_samples
            loop.recorder.inspect(batch)
        loop.phase("backward", 0.3)
        loop.step()
    return loop.recorder.samples / 10


@pytest.mark.parametrize(
    ("read", "model_samples", "batch", "samples"),
    [
        (32, 8, Batch(8, 8, set()), 8),  # a quarter of what is read
        (32, 8, Batch(16, 8, set()), 8),  # by two models
        (32, 8, Batch(32, 8, set()), 32),  # all rows, in four calls
        (32, 8, Batch(8, 8, {32}), 32),  # the first axis is time
        (32, 1, Batch(1, 1, set()), 32),  # packed into one row
        (32, 12, Batch(12, 12, set()), 32),  # not an integral fraction
        (1, 64, Batch(64, 64, set()), 64),  # a ready batch
        (1, 64, Batch(64, 1, set()), 1),  # a bag of instances
        (1, 64, Batch(89, 64, set()), 1),  # the two sets of a task
        (8, 64, Batch(64, 64, set()), 8),  # patches
        (8, 0, Batch(0, 0, set()), 8),  # an inspection without a result
    ],
)
def test_the_input_of_the_model_corrects_the_samples_read(
    read: int, model_samples: int, batch: Batch, samples: int
) -> None:
    assert samples_per_iteration(read, model_samples, batch) == samples


def test_one_inspection_that_differs_corrects_nothing() -> None:
    loop = Loop()
    for iteration in range(10):
        loop.fetch(samples=32)
        if iteration in (1, 2):
            loop.recorder.inspect(Batch(8, 8, set(), samples=8 * iteration))
        loop.phase("backward", 0.3)
        loop.step()
    assert loop.recorder.samples == 320


def test_steps_of_other_threads_share_the_time_and_add_samples() -> None:
    loop = Loop()
    for iteration in range(20):
        if iteration == 1:
            loop.recorder.inspect(Batch(8, 8, set(), samples=8))
        loop.phase("backward", 0.3)
        loop.recorder.step_elsewhere(1)
        loop.step()
    counts = loop.recorder.counts
    assert not loop.recorder.samples_are_unknown
    assert 38 <= counts.iterations <= 40
    assert counts.timed_samples == 8 * counts.iteration.count
    assert counts.iteration.mean == pytest.approx(0.35)


def test_samples_of_learners_with_separate_optimizers_are_unclear() -> None:
    loop = Loop()
    for _ in range(20):
        loop.phase("backward", 0.3)
        loop.recorder.step_elsewhere(2)
        loop.step()
    assert loop.recorder.samples_are_unknown
    assert 38 <= loop.recorder.counts.iterations <= 40


def test_varying_samples_are_imprecise_until_enough_iterations_are_inspected() -> None:
    """Three of four batches are eight times as large; one iteration in five is inspected."""
    loop = Loop()
    vague = []
    for iteration in range(2000):
        if iteration % 5 == 0:
            rows = 64 if iteration % 4 else 8
            loop.recorder.inspect(Batch(rows, rows, set(), samples=rows))
        loop.phase("backward", 0.3)
        loop.step()
        vague.append(loop.recorder.samples_are_unknown)
    assert vague[20:600] == [True] * 580  # one standard deviation is 5 % after 300
    assert not vague[-1]


def test_a_few_uninspected_iterations_make_the_samples_of_a_short_training_imprecise() -> None:
    """Three of seventeen are uninspected; the others have 40 samples, standard deviation 16."""
    loop = Loop()
    for iteration in range(17):
        if iteration not in (3, 4, 5):
            rows = 56 if iteration % 2 else 24
            loop.recorder.inspect(Batch(rows, rows, set(), samples=rows))
        loop.phase("backward", 0.3)
        loop.step()
    assert loop.recorder.samples_are_unknown


def test_samples_are_unknown_if_batches_grew_between_two_inspections() -> None:
    """Iterations between the previous inspection and the first larger batch are unknown."""
    loop = Loop()
    for iteration in range(300):
        rows = 8 if iteration < 150 else 64
        if iteration < 4 or iteration >= 199:
            loop.recorder.inspect(Batch(rows, rows, set(), samples=rows))
        loop.phase("backward", 0.3)
        loop.step()
    assert loop.recorder.samples < 0.9 * (150 * 8 + 150 * 64)
    assert loop.recorder.samples_are_unknown


def test_varying_samples_are_known_if_all_iterations_were_inspected() -> None:
    loop = Loop()
    for iteration in range(20):
        rows = 64 if iteration % 4 else 8
        loop.recorder.inspect(Batch(rows, rows, set(), samples=rows))
        loop.phase("backward", 0.3)
        loop.step()
    assert not loop.recorder.samples_are_unknown
    assert loop.recorder.samples == 20 * 50


def test_pipeline_stages_on_one_rank_share_samples() -> None:
    loop = Loop()
    for iteration in range(6):
        for stage in (1, 2, 1, 2):
            if iteration in (1, 2):
                batch = Batch(4, 4, set(), samples=4)
                batch.is_stage, batch.parameters = True, {stage}
                loop.recorder.inspect(batch)
            loop.phase("backward", 0.3)
        loop.step()
    assert loop.recorder.samples == 6 * 8


@pytest.mark.parametrize("cleared", [True, False])
def test_time_is_unknown_if_passes_end_iterations_but_no_gradient_is_seen_cleared(
    cleared: bool,
) -> None:
    """As on a GPU with `grad.data.zero_()`, where passes may accumulate a gradient."""
    loop = Loop()
    for number in range(50):
        loop.fetch()
        loop.recorder.keep_gradients(number > 0 and not cleared)
        loop.phase("backward", 0.3)
    assert loop.recorder.counts.iterations == 50
    assert loop.recorder.time_is_unknown != cleared


def test_the_first_step_of_a_gan_covers_a_whole_batch() -> None:
    """The generator's step ends the first iteration, before the discriminator's pass."""
    loop = Loop()
    for iteration in range(6):
        if iteration:
            loop.phase("backward", 0.1)
        loop.fetch(samples=16)
        loop.phase("backward", 0.1)
        loop.step()
        assert loop.recorder.fetches == 1
    assert loop.recorder.samples == 6 * 16


def test_frequent_pauses_are_rollouts_but_the_time_of_the_first_one_is_unclear() -> None:
    pauses = Pauses()
    verdicts = []
    for iteration, acts in enumerate((0, 5, 0, 0, 0, 0, 5)):
        pauses.begin_iteration()
        pauses.add(8, [1] * acts)
        if acts:
            verdicts.append(pauses.judge(iteration, is_early=False))
        pauses.end_iteration(2.0, regular=not acts)
    assert verdicts == [DOUBT, ROLLOUT]
    assert pauses.doubtful_seconds == 2.0
