"""The sites that `bench.health` simulates."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from bench.health.alarms import FIRST, alarms
from bench.health.gain import SLOW, with_slow_servers
from bench.health.site import DAY, KEPT_RUNS, SiteSettings, Slowdown, Stored, as_stored, simulate
from hopsd.sim.presets import preset

SITE = SiteSettings(
    nodes=4,
    types=1,
    days=1.0,
    workloads=1,
    interval=300.0,
    spread=0.0,
    shared_share=0.0,
    warm_up=0.0,
)


def test_a_simulated_site_is_reproducible_and_in_order() -> None:
    records = simulate(SITE, 1)
    assert records == simulate(SITE, 1)
    times = [record.at for record in records.records]
    assert times == sorted(times)
    assert times[-1] <= records.now == DAY


def test_a_slow_server_is_slower_only_while_its_slowdown_lasts() -> None:
    slow = Slowdown(0, 0.2, 0.25 * DAY, 0.75 * DAY)
    usual, slowed_site = simulate(SITE, 1), simulate(replace(SITE, slow=(slow,)), 1)
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for usual_record, slowed_record in zip(usual.records, slowed_site.records, strict=True):
        is_slow = "n0" in usual_record.nodes and slow.since <= usual_record.at < slow.until
        ratios[is_slow].append(
            usual_record.seconds_per_iteration / slowed_record.seconds_per_iteration
        )
    assert abs(fmean(ratios[True]) - 0.8) < 1e-9
    assert abs(fmean(ratios[False]) - 1.0) < 1e-9


def test_the_stored_state_does_not_depend_on_earlier_readings() -> None:
    site = simulate(replace(SITE, interval=60.0), 1)
    store = Stored(site)
    early, late = store.at(0.3 * DAY), store.at(0.8 * DAY)
    assert early == as_stored(site, 0.3 * DAY)
    assert late == as_stored(site, 0.8 * DAY)
    assert max(record.at for record in late.records) <= 0.8 * DAY == late.now
    by_server = [next(iter(record.nodes)) for record in late.records]
    assert {by_server.count(server.name) for server in site.nodes} == {KEPT_RUNS}


def test_heavy_tails_make_large_deviations_more_frequent() -> None:
    def spread(tails: float) -> list[float]:
        site = replace(SITE, days=6.0, run_hours=0.5, noise=0.0, heat=0.0, drift=0.0, tails=tails)
        records = simulate(site, 1).records
        usual = fmean(record.seconds_per_iteration for record in records)
        return [record.seconds_per_iteration / usual - 1.0 for record in records]

    assert max(map(abs, spread(2.0))) > 2.0 * max(map(abs, spread(float("inf"))))


@pytest.mark.long
@pytest.mark.slow
def test_a_verdict_counts_as_one_alarm_while_it_is_in_force() -> None:
    site = replace(SITE, nodes=8, days=(FIRST + 0.3 * DAY) / DAY, workloads=3, noise=0.005)
    assert alarms(site, 1, 0.1 * DAY).begins == 0
    counts = alarms(replace(site, slow=(Slowdown(0, 0.2),)), 1, 0.1 * DAY)
    assert counts.begins == 1
    assert counts.looks == (3,)


def test_a_tenth_of_the_servers_is_slow_for_every_workload() -> None:
    workload = with_slow_servers(preset("paper-512").workload(0, jobs=1), 0.1, 0)
    servers = len(preset("paper-512").cluster().servers)
    assert workload.server_factor.keys() == workload.throughput.keys()
    for factors in workload.server_factor.values():
        assert list(factors.values()) == [SLOW] * round(0.1 * servers)
