"""Estimates of variances and their degrees of freedom: noise, and what all nodes share."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from bench.health.chances import LEVELS, count_begins
from bench.health.site import DAY, SiteSettings, Slowdown, as_stored, simulate
from bench.health.starts import judge
from hopsd.health.measurements import (
    ALONE,
    IN_COMPANY,
    Units,
    join_blocks,
    node_types,
    read_columns,
)
from hopsd.health.model import Estimate, Rows, common_course
from hopsd.health.records import HealthNode, HealthRecords, SpeedRecord
from hopsd.health.robust import moderate
from hopsd.health.slow import find_slow, fit_course
from hopsd.health.swings import lasting
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

NOISE = 0.02


def records(noise: dict[str, list[float]]) -> HealthRecords:
    """Return a run of each workload on a separate node, with a report a minute."""
    nodes = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(len(noise)))
    reports = tuple(
        SpeedRecord(
            60.0 * i,
            WorkloadName(workload),
            JobId(workload),
            {node.name: 4},
            float(np.exp(value)),
        )
        for node, (workload, values) in zip(nodes, noise.items(), strict=True)
        for i, value in enumerate(values)
    )
    return HealthRecords(60.0 * max(map(len, noise.values())), nodes, reports)


def units_of(noise: dict[str, list[float]]) -> Units:
    given_records = records(noise)
    return join_blocks(read_columns(given_records).steady(), given_records.now)


def normal(count: int, seed: int, noise: float = NOISE) -> list[float]:
    return np.random.default_rng(seed).normal(0.0, noise, count).tolist()


def test_variances_that_differ_by_chance_are_pooled() -> None:
    freedom = np.array([3.0, 5.0, 20.0, 100.0, 0.0])
    chance = np.random.default_rng(1).chisquare(np.maximum(freedom, 1.0)) / np.maximum(freedom, 1.0)
    variances, known = moderate(chance * NOISE**2, freedom)
    assert np.unique(variances).size == 1
    assert variances[0] == pytest.approx(NOISE**2, rel=0.2)
    assert known.tolist() == [freedom.sum()] * 5


def test_variances_that_clearly_differ_are_kept() -> None:
    true = np.array([0.003, 0.01, 0.03, 0.06]) ** 2
    variances, known = moderate(true, np.full(4, 50.0))
    assert variances == pytest.approx(true, rel=0.2)
    assert (known > 50.0).all()
    assert (known < 60.0).all()


def test_few_records_that_agree_by_chance_get_the_usual_noise() -> None:
    long_runs = {f"w{number}": normal(120, number) for number in range(5)}
    quiet_run = {"quiet": [0.002 * (i % 2) for i in range(11)]}
    units = units_of({**long_runs, **quiet_run})
    number = int(units.cell[np.argmin(units.variance)])
    assert np.sqrt(units.variance[units.cell == 5].max()) > 0.5 * NOISE / np.sqrt(5.0)
    assert number < 5


def test_the_mean_of_autocorrelated_noise_gets_its_true_variance() -> None:
    """The noise is an autoregressive process with a step of a minute."""
    runs: dict[str, list[float]] = {}
    for number in range(12):
        steps = normal(180, number, NOISE * np.sqrt(1.0 - 0.9**2))
        values = [steps[0]]
        for step in steps[1:]:
            values.append(0.9 * values[-1] + step)
        runs[f"w{number}"] = values
    units = units_of(runs)
    variance = units.variance * lasting(units)
    means = [float(np.mean(values)) for values in runs.values()]
    claimed = np.mean([1.0 / (1.0 / variance[units.cell == i]).sum() for i in range(12)])
    assert claimed == pytest.approx(np.var(means), rel=0.7)
    independent = units_of({name: normal(180, i) for i, name in enumerate(runs)})
    variance = independent.variance * lasting(independent)
    assert (1.0 / variance[independent.cell == 0]).sum() == pytest.approx(177.0 / NOISE**2, rel=0.2)


@pytest.mark.slow
def test_the_parts_of_an_estimates_variance_add_up() -> None:
    site = SiteSettings(nodes=6, types=1, days=0.5, workloads=3, interval=240.0)
    given_records = simulate(site, 2)
    units = join_blocks(read_columns(given_records).steady(), given_records.now)
    fit = fit_course(units, node_types(given_records.nodes)).fit
    for epoch in range(fit.summaries.epochs):
        estimate = fit.judge([epoch])
        assert estimate is not None
        gain = fit._gain(epoch)
        assert gain @ fit.summaries.value == pytest.approx(estimate.slowness, abs=1e-6)
        others = np.delete((fit.design.T @ gain) ** 2 / np.append(fit.precision, []), epoch)
        course = ((fit.summaries.course.T @ gain) ** 2).sum()
        variance = (gain**2 / fit.weight).sum() + others.sum() + course
        assert variance == pytest.approx(estimate.error**2, rel=1e-3)
        assert estimate.freedom > 4.0


def test_the_probability_of_an_estimate_allows_for_how_healthy_nodes_differ() -> None:
    """Three standard deviations of error and spread together."""
    estimate = Estimate(0.015, 0.004, 0.003**2, np.inf, 60, np.array([0.015]), False, ALONE)
    assert estimate.probability == pytest.approx(0.00135, rel=1e-3)
    assert replace(estimate, freedom=5.0).probability == pytest.approx(0.01505, rel=1e-3)


@pytest.mark.slow
def test_a_slow_servers_probability_falls_below_each_level_once() -> None:
    slow = (Slowdown(0, 0.2),)
    site = SiteSettings(nodes=8, types=1, days=1.5, workloads=3, interval=240.0, slow=slow)
    begins = count_begins(site, 1, 0.1 * DAY)
    assert [begins[level, False] + begins[level, True] for level in LEVELS] == [1] * len(LEVELS)


def test_the_noise_of_rare_reports_follows_from_their_differences() -> None:
    runs = {f"w{number}": normal(40, number) for number in range(4)}
    given_records = records(runs)
    rare = tuple(replace(r, at=30.0 * r.at, workload="w") for r in given_records.records)
    units = join_blocks(read_columns(replace(given_records, now=72e3, records=rare)).steady(), 72e3)
    assert units.variance == pytest.approx(np.full(len(units), NOISE**2), rel=0.3)
    assert units.freedom.min() > 100.0


@pytest.mark.long
@pytest.mark.slow
def test_the_slow_one_of_a_new_workloads_three_runs_makes_no_other_strange() -> None:
    case = judge(7, 0.05, NOISE, 3, (600.0,))
    assert case is not None
    assert case.seconds == 600.0
    assert case.right
    assert not case.false


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [22, 29])
def test_a_slow_node_is_not_hidden_by_its_part_in_the_common_course(seed: int) -> None:
    """The node is 2 % slow for a day; nine others have its type."""
    case = judge(seed, 0.02, 0.005, 0, (DAY,))
    assert case is not None
    assert case.seconds == DAY
    assert case.right
    assert not case.false


def hour_course(seed: int, *, slow: bool) -> float:
    """Return the course of the last hour for the nodes other than n0; 16 nodes run for half a day.

    In the last hour, four of them have begun a new run; that of n0 is left out unless ``slow``.
    """
    random = np.random.default_rng(seed)
    nodes = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(16))
    hours = random.normal(0.0, 0.01, 13)
    reports = []
    for number, node in enumerate(nodes):
        for start in (0, 4, 8, 12)[: 4 if number < 4 else 3]:
            is_slow = number == 0 and start == 12
            run, job = random.normal(0.0, 0.002), JobId(f"{node.name}.{start}")
            for minute in range(240 if start < 12 else 11):
                at = start * 3600.0 + 60.0 * minute
                value = hours[int(at // 3600.0)] + run + random.normal(0.0, NOISE) + 0.05 * is_slow
                record = SpeedRecord(
                    at, WorkloadName("w"), job, {node.name: 4}, float(np.exp(value))
                )
                if slow or not is_slow:
                    reports.append(record)
    reports.sort(key=lambda record: record.at)
    site = HealthRecords(12 * 3600.0 + 660.0, nodes, tuple(reports))
    units = join_blocks(read_columns(site).steady(), site.now)
    course = fit_course(units, node_types(nodes))
    own = np.array([units.targets[target] == (0,) for target in units.target])
    others = (units.time >= 12 * 3600.0) & ~own
    return float((units.value - course.values)[others].mean())


@pytest.mark.parametrize("seed", [4, 5])
def test_a_single_run_on_a_slow_node_does_not_move_the_common_course(seed: int) -> None:
    """The run is 5 % slow, but noisy, and healthy nodes are alike, so the fit keeps it at 0."""
    assert hour_course(seed, slow=True) == pytest.approx(hour_course(seed, slow=False), abs=0.001)


@pytest.mark.slow
def test_the_uncertainty_of_an_hours_common_course_names_no_node() -> None:
    """Several runs on a node at the same time share the error of the common course."""
    site = simulate(SiteSettings(nodes=20, days=3.2), 100)
    now = 1.2 * DAY + 41.0 * 3600.0
    assert find_slow(as_stored(site, now)) == ()


def test_a_single_precise_node_does_not_determine_the_common_course() -> None:
    """The other two nodes are shared, so their runs are far less certain."""
    count, zeros, ones = 3, np.zeros(3), np.ones(3)
    places = np.arange(count)
    kinds = np.array([ALONE, IN_COMPANY, IN_COMPANY])
    units = Units(
        value=zeros,
        variance=np.full(count, 0.002**2),
        wander=zeros,
        freedom=ones,
        records=5 * np.ones(count, np.int64),
        time=zeros,
        middle=zeros,
        run=places,
        cell=places,
        kind=kinds,
        program=kinds,
        target=places,
        targets=((0,), (1,), (2,)),
        cells=count,
        alone=np.full(count, -1),
    )
    rows, groups = Rows(places, places, ones), np.zeros(count, np.int64)

    def course(values: list[float]) -> list[float]:
        run_variance = np.array([0.005, 0.03, 0.0]) ** 2
        return common_course(units, rows, np.array(values), run_variance, groups, 3600.0)[
            0
        ].tolist()

    assert course([0.05, 0.0, 0.0]) == [0.0] * count
    units.kind[:] = ALONE
    assert course([0.05, 0.05, 0.05])[0] > 0.04


@pytest.mark.slow
@pytest.mark.long
def test_memory_is_bounded_for_years_of_records() -> None:
    """The covariance of a smooth course has the square of the number of times as entries."""
    hours, nodes = 3000, 4
    count = hours * nodes
    places, ones = np.arange(count), np.ones(count)
    middle = (3600.0 * (places // nodes)).astype(np.float64)
    units = Units(
        value=np.zeros(count),
        variance=0.01**2 * ones,
        wander=np.zeros(count),
        freedom=ones,
        records=ones.astype(np.int64),
        time=middle,
        middle=middle,
        run=places,
        cell=np.zeros(count, np.int64),
        kind=np.full(count, ALONE),
        program=np.zeros(count, np.int64),
        target=places % nodes,
        targets=tuple((node,) for node in range(nodes)),
        cells=1,
        alone=np.full(1, -1),
    )
    rows, groups = Rows(places, places % nodes, ones), np.zeros(count, np.int64)
    heat = 0.02 * np.sin(2.0 * np.pi * middle / DAY)
    noise = np.random.default_rng(1).normal(0.0, 0.01, count)
    run_variance = np.full(3, 0.001**2)
    tracemalloc.start()
    course, variance = common_course(
        units, rows, heat + noise, run_variance, groups, 3600.0, (10.0,)
    )
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()
    newest = middle > middle[-1] - 900.0 * 3600.0
    rms = [float(np.sqrt(np.mean((course - heat)[part] ** 2))) for part in (newest, ~newest)]
    assert rms[0] < 0.95 * rms[1] < 0.0055
    assert variance.max() < 0.005**2
