"""What `bench.health` simulates."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from bench.health.gain import SLOW, with_slow_servers
from bench.health.site import DAY, SiteSettings, Slowdown, simulate
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


def test_a_site_is_the_same_again_and_in_order() -> None:
    records = simulate(SITE, 1)
    assert records == simulate(SITE, 1)
    times = [record.at for record in records.records]
    assert times == sorted(times)
    assert times[-1] <= records.now == DAY


def test_a_slow_server_is_slower_by_what_it_loses_and_no_longer_than_that() -> None:
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


def test_a_tenth_of_the_servers_is_slow_for_every_workload() -> None:
    workload = with_slow_servers(preset("paper-512").workload(0, jobs=1), 0.1, 0)
    servers = len(preset("paper-512").cluster().servers)
    assert workload.server_factor.keys() == workload.throughput.keys()
    for factors in workload.server_factor.values():
        assert list(factors.values()) == [SLOW] * round(0.1 * servers)
