"""A run that goes on shows within minutes that its node became slow, and names no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from hopsd.health.measurements import node_types, read_columns
from hopsd.health.records import HealthNode, HealthRecords, RankTime, SpeedRecord
from hopsd.health.sudden import RunSeries, SuddenChange, find_changes
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

ONSET, NOW = 7200.0, 7800.0
NODES = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(6))


def run(
    node: int,
    loss: Callable[[float], float] = lambda at: 0.0,
    *,
    begin: float = 0.0,
    end: float = NOW,
    gpus: int = 4,
    workload: str = "",
    job: str = "",
    noise: float = 0.02,
) -> list[SpeedRecord]:
    """Simulate a report a minute; ``loss`` returns the part of its speed that the run loses at a
    time.
    """
    r = np.random.default_rng((node, gpus, abs(int(begin)), 3))
    return [
        SpeedRecord(
            at,
            WorkloadName(workload or f"w{node}"),
            JobId(job or f"j{node}.{begin}.{gpus}"),
            {NODES[node].name: gpus},
            float(np.exp(r.normal(0.0, noise))) / (1.0 - loss(at)),
        )
        for at in np.arange(begin + 60.0, end + 1.0, 60.0).tolist()
    ]


def loss_after(loss: float, since: float = ONSET) -> Callable[[float], float]:
    return lambda at: loss if at > since else 0.0


def changes_by_node(*runs: Iterable[SpeedRecord], now: float = NOW) -> dict[str, SuddenChange]:
    records = HealthRecords(
        now, NODES, tuple(record for records_of_run in runs for record in records_of_run)
    )
    series = RunSeries(read_columns(records), node_types(NODES))
    return {NODES[node].name: change for node, change in find_changes(series, now).items()}


def steady_runs(first: int = 1) -> list[SpeedRecord]:
    return [record for node in range(first, len(NODES)) for record in run(node)]


def test_a_five_percent_loss_is_found_after_ten_minutes() -> None:
    slow_nodes = changes_by_node(run(0, loss_after(0.05)), steady_runs())
    assert set(slow_nodes) == {"n0"}
    assert slow_nodes["n0"].slowness == pytest.approx(0.05, abs=3.0 * slow_nodes["n0"].error)
    assert slow_nodes["n0"].since == pytest.approx(ONSET, abs=300.0)


def test_a_change_that_all_nodes_share_names_none() -> None:
    slowed_runs = [run(node, loss_after(0.05)) for node in range(len(NODES))]
    assert changes_by_node(*slowed_runs) == {}


def test_the_slowest_of_runs_that_began_and_slowed_down_together_is_named() -> None:
    """The change that all share at that age is not taken for a warm-up and ignored."""
    begin = ONSET - 900.0

    def busy(loss: float) -> Callable[[float], float]:
        return lambda at: 1.0 - 0.9 * (1.0 - loss) if at > ONSET else 0.0

    staggered_runs = [
        run(n, busy(0.08 * (n == 0)), begin=begin, workload="w") for n in range(len(NODES))
    ]
    assert set(changes_by_node(*staggered_runs)) == {"n0"}


def test_two_nodes_are_too_few_to_name_one() -> None:
    assert changes_by_node(run(0, loss_after(0.08)), run(1)) == {}
    assert set(changes_by_node(run(0, loss_after(0.08)), run(1), run(2))) == {"n0"}


def test_a_node_that_recovered_is_not_named() -> None:
    slow_nodes = changes_by_node(
        run(0, lambda at: 0.06 if 3000.0 < at < 5000.0 else 0.0), steady_runs()
    )
    assert slow_nodes == {}


def test_a_run_that_became_faster_is_not_named() -> None:
    assert changes_by_node(run(0, lambda at: 0.06 if at < ONSET else 0.0), steady_runs()) == {}


def test_a_new_neighbour_does_not_make_the_node_slow() -> None:
    slowed_run = run(0, loss_after(0.06), gpus=2)
    assert changes_by_node(slowed_run, run(0, begin=ONSET, gpus=2, job="new"), steady_runs()) == {}
    short = ONSET + 300.0  # the neighbour has not reported yet
    assert changes_by_node([r for r in slowed_run if r.at <= short], steady_runs(), now=short) == {}


def test_all_jobs_that_share_a_node_must_slow_down() -> None:
    pair = [
        run(0, loss_after(0.05), gpus=2, job=job, begin=b) for job, b in (("a", 0.0), ("b", 1.0))
    ]
    assert set(changes_by_node(*pair, steady_runs())) == {"n0"}
    alone = [run(0, loss_after(0.08), gpus=2, job="a"), run(0, gpus=2, job="b", begin=1.0)]
    assert changes_by_node(*alone, steady_runs()) == {}


def test_a_workload_that_always_slows_down_at_that_age_names_no_node() -> None:
    """An example is a training whose sequences become longer."""
    habit = run(
        1, loss_after(0.05, 3600.0), begin=-4000.0 + 400.0, end=3000.0, workload="curriculum"
    )
    factor_at = loss_after(0.05, 0.0)
    earlier_run = run(1, factor_at, begin=-ONSET, end=3000.0, workload="curriculum")
    slow_nodes = changes_by_node(
        run(0, loss_after(0.05), workload="curriculum"), earlier_run, steady_runs(2)
    )
    assert slow_nodes == {}
    assert set(
        changes_by_node(run(0, loss_after(0.05), workload="curriculum"), habit, steady_runs(2))
    ) == {"n0"}


def distributed_run(loss: float, *, ranks: bool) -> list[SpeedRecord]:
    """Simulate a run on three nodes, the first of which becomes slow."""
    r = np.random.default_rng(5)
    records = []
    for at in np.arange(60.0, NOW + 1.0, 60.0).tolist():
        common = float(np.exp(r.normal(0.0, 0.02)))
        slow = 1.0 / (1.0 - loss * (at > ONSET))
        times = tuple(
            RankTime(NODES[n].name, common * (slow if n == 0 else 1.0) * x, 0.0)
            for n, x in enumerate(np.exp(r.normal(0.0, 0.01, 3)).tolist())
        )
        nodes = {NODES[n].name: 4 for n in range(3)}
        fields = WorkloadName("w"), JobId("d"), nodes, common * slow
        records.append(SpeedRecord(at, *fields, times if ranks else ()))
    return records


def test_ranks_show_which_of_several_nodes_became_slow() -> None:
    slow_nodes = changes_by_node(distributed_run(0.05, ranks=True), steady_runs(3))
    assert set(slow_nodes) == {"n0"}
    assert slow_nodes["n0"].slowness == pytest.approx(0.051, abs=0.012)
    assert changes_by_node(distributed_run(0.05, ranks=False), steady_runs(3)) == {}
    assert changes_by_node(distributed_run(0.0, ranks=True), steady_runs(3)) == {}


def test_a_node_that_recovers_does_not_make_another_slow() -> None:
    two = [
        SpeedRecord(
            r.at, r.workload, r.job, {node.name: 4 for node in NODES[:2]}, 1.0,
            (RankTime(NODES[0].name, 1.0 if r.at > ONSET else 1.06, 0.0),
             RankTime(NODES[1].name, r.seconds_per_iteration, 0.0)),
        )
        for r in run(1)
    ]  # fmt: skip
    assert changes_by_node(two, steady_runs(2)) == {}


def test_a_change_still_counts_for_a_while_after_the_run_ended() -> None:
    ended_run = run(0, loss_after(0.05))
    assert set(changes_by_node(ended_run, steady_runs(), now=NOW + 3600.0)) == {"n0"}
    after = run(0, begin=NOW + 600.0, end=NOW + 3600.0)
    assert changes_by_node(ended_run, after, steady_runs(), now=NOW + 3600.0) == {}


def test_a_short_run_is_taken_to_be_as_noisy_as_others() -> None:
    """hopsd keeps 32 records of a run."""
    quiet = [
        replace(r, seconds_per_iteration=1.0 + 0.004 * (i % 2) + 0.035 * (r.at > NOW - 600.0))
        for i, r in enumerate(run(0, begin=NOW - 1800.0))
    ]
    assert changes_by_node(quiet, steady_runs()) == {}
    assert set(changes_by_node(quiet, *[quieter(r) for r in steady_runs()])) == {"n0"}


def quieter(record: SpeedRecord) -> list[SpeedRecord]:
    return [replace(record, seconds_per_iteration=record.seconds_per_iteration**0.1)]


def test_a_program_that_pauses_for_minutes_names_no_node() -> None:
    """The program reads its next file every 25 minutes and is 10 % slower for five. Trainings in
    public logs of H100 do so, and otherwise vary by 0.3 % from minute to minute.
    """

    def pauses(node: int) -> Callable[[float], float]:
        return lambda at: 0.1 * ((at / 60.0 + 7.0 * node) % 25.0 < 5.0)

    pausing = [run(node, pauses(node), noise=0.003) for node in range(len(NODES))]
    for now in np.arange(3600.0, NOW, 300.0).tolist():
        assert changes_by_node(*pausing, now=now) == {}


def test_a_program_that_becomes_slower_gradually_names_no_node() -> None:
    """Its attention windows grow: trainings in public logs of H100 become 10 % slower within 25
    minutes, and otherwise vary by 0.3 % from minute to minute.
    """
    grown = run(0, lambda at: 0.1 * float(np.clip((at - 5400.0) / 1500.0, 0.0, 1.0)), noise=0.003)
    others = [run(node, noise=0.003) for node in range(1, len(NODES))]
    for now in np.arange(5700.0, NOW, 300.0).tolist():
        records = [[r for r in reports if r.at <= now] for reports in (grown, *others)]
        assert changes_by_node(*records, now=now) == {}


def test_records_after_the_time_asked_about_are_ignored() -> None:
    """A series may be asked about any time that it covers, as benchmarks do."""
    runs = [
        run(0, loss_after(0.05), end=NOW + 7200.0),
        run(0, begin=NOW + 9000.0, end=NOW + 14400.0),
    ]
    runs += [run(node, end=NOW + 14400.0) for node in range(1, len(NODES))]
    records = HealthRecords(NOW + 14400.0, NODES, tuple(r for records in runs for r in records))
    series = RunSeries(read_columns(records), node_types(NODES))
    assert set(find_changes(series, NOW)) == {0}
    assert set(find_changes(series, NOW + 8400.0)) == {0}
    assert find_changes(series, NOW + 14400.0) == {}


def test_without_runs_there_are_no_changes() -> None:
    assert changes_by_node([]) == {}
