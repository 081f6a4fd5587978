"""Slow nodes are named, with an interval and a time; healthy nodes are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.health.site import DAY, SiteSettings, Slowdown, Stored, simulate
from hopsd.health.measurements import read_past
from hopsd.health.records import HealthNode, HealthRecords, RankTime, SlowNode, SpeedRecord, Stay
from hopsd.health.slow import MAX_CHANGES, _newest, find_slow
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

SITE = SiteSettings(nodes=12, types=1, days=2.0, workloads=5, interval=240.0)
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2)))
"""One site for each test, and two more for `make test-long`."""


def slow_nodes_of(site: SiteSettings, seed: int) -> dict[str, SlowNode]:
    return {slow.node: slow for slow in find_slow(simulate(site, seed))}


def unshared(site: SiteSettings) -> SiteSettings:
    """Keep only runs that are alone on a single server."""
    return replace(site, spread=0.0, shared_share=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_slow_server_is_named(seed: int) -> None:
    slow_nodes = slow_nodes_of(replace(SITE, slow=(Slowdown(3, 0.05),)), seed)
    assert set(slow_nodes) == {"n3"}
    assert slow_nodes["n3"].low < slow_nodes["n3"].factor < slow_nodes["n3"].high
    assert slow_nodes["n3"].factor == pytest.approx(0.95, abs=0.02)
    assert slow_nodes["n3"].since is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_healthy_server_is_named(seed: int) -> None:
    site = replace(SITE, days=1.5)
    assert slow_nodes_of(site, seed) == {}
    assert slow_nodes_of(replace(site, spread=0.6, run=0.02, busy=0.15), seed) == {}
    assert slow_nodes_of(replace(site, spread=0.9, ranks=True), seed) == {}


def unlike_programs(seed: int, loss: float = 0.0) -> HealthRecords:
    """Return three hours of ten servers. Runs of a program differ by 0.05 % to 2 %, and last for 20
    minutes; ``loss`` is that of the fourth server.
    """
    random = np.random.default_rng(seed)
    servers = [HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(10)]
    deviations = 0.0005 * 40.0 ** np.linspace(0.0, 1.0, 8)
    reports = []
    for server in servers:
        start, speed = 0.0, 1.0 - loss * (server.name == "n3")
        while start < 10_800.0:
            program = int(random.integers(8))
            run = random.normal(0.0, deviations[program])
            for at in np.arange(start + 60.0, start + 1260.0, 60.0).tolist():
                seconds = float(np.exp(run + random.normal(0.0, 0.003))) / speed
                job = JobId(f"{server.name}.{start}")
                name = WorkloadName(f"w{program}")
                reports.append(SpeedRecord(at, name, job, {server.name: 4}, seconds))
            start += 1260.0 + random.uniform(0.0, 300.0)
    return HealthRecords(10_800.0, tuple(servers), tuple(reports))


@pytest.mark.parametrize(("seed", "now"), [(2, 7200.0), (4, 6000.0)])
def test_programs_whose_runs_differ_more_than_others_name_no_server(seed: int, now: float) -> None:
    """Runs of most programs are alike; the server's last run is one of a program whose are not."""
    assert find_slow(replace(unlike_programs(seed), now=now)) == ()


def test_a_slow_server_is_named_though_runs_of_some_programs_differ() -> None:
    assert [slow.node for slow in find_slow(unlike_programs(0, 0.05))] == ["n3"]


@pytest.mark.slow
def test_a_server_that_becomes_slow_is_named_after_ten_minutes_of_training() -> None:
    since = 1.5 * DAY
    site = replace(unshared(SITE), interval=30.0, noise=0.01, slow=(Slowdown(3, 0.05, since),))
    records = simulate(site, 3)
    after = [r.at for r in records.records if "n3" in r.nodes and r.at >= since]
    slow_nodes = find_slow(replace(records, now=after[20]))
    assert [slow.node for slow in slow_nodes] == ["n3"]
    assert slow_nodes[0].since == pytest.approx(since, abs=600.0)


@pytest.mark.slow
def test_wandering_programs_do_not_hide_a_slow_server_that_steady_ones_show() -> None:
    """Two of five workloads change their speed by about 5 % every ten minutes."""

    def wander(record: SpeedRecord) -> SpeedRecord:
        if record.workload not in ("w0", "w1"):
            return record
        random = np.random.default_rng((int(record.job), int(record.at // 600.0)))
        factor = float(np.exp(random.normal(0.0, 0.05)))
        return replace(record, seconds_per_iteration=factor * record.seconds_per_iteration)

    slow = (Slowdown(3, 0.03, 0.6 * DAY),)
    site = replace(unshared(SITE), days=0.8, interval=60.0, noise=0.005, run_hours=2.0, slow=slow)
    records = simulate(site, 1)
    wild = replace(records, records=tuple(map(wander, records.records)))
    assert [node.node for node in find_slow(wild)] == ["n3"]


@pytest.mark.slow
def test_a_server_two_percent_slow_is_named_after_a_day() -> None:
    slow_nodes = slow_nodes_of(
        replace(unshared(SITE), days=3.0, slow=(Slowdown(3, 0.02, 2.0 * DAY),)), 1
    )
    assert set(slow_nodes) == {"n3"}
    assert slow_nodes["n3"].factor == pytest.approx(0.98, abs=0.006)


@pytest.mark.slow
def test_a_server_that_recovered_is_no_longer_named() -> None:
    site = replace(unshared(SITE), slow=(Slowdown(3, 0.06, 0.5 * DAY, 1.2 * DAY),))
    records = simulate(site, 2)
    assert [s.node for s in find_slow(replace(records, now=1.1 * DAY))] == ["n3"]
    assert find_slow(records) == ()


@pytest.mark.long
@pytest.mark.slow
def test_a_slow_server_with_few_recent_records_is_still_slow() -> None:
    """A recovery that only the prior of the last epoch makes clear does not count."""
    slow = (Slowdown(0, 0.1, 6.0 * DAY), Slowdown(1, 0.05, 6.0 * DAY))
    site = SiteSettings(nodes=24, days=9.0, interval=1800.0, slow=slow)
    assert set(slow_nodes_of(site, 8013)) == {"n0", "n1"}


@pytest.mark.long
@pytest.mark.slow
def test_the_only_job_of_a_workload_does_not_show_that_its_servers_are_equal() -> None:
    slow = (Slowdown(0, 0.1, 6.0 * DAY), Slowdown(1, 0.1))
    site = SiteSettings(nodes=24, days=9.0, interval=1800.0, slow=slow)
    assert set(slow_nodes_of(site, 8009)) == {"n0", "n1"}


@pytest.mark.slow
def test_jobs_on_several_servers_show_the_slowest() -> None:
    site = replace(SITE, spread=1.0, shared_share=0.0, days=4.0, slow=(Slowdown(3, 0.06),))
    assert set(slow_nodes_of(site, 1)) == {"n3"}


@pytest.mark.slow
def test_ranks_show_a_slow_server_sooner() -> None:
    site = replace(SITE, spread=1.0, ranks=True, days=0.6, slow=(Slowdown(3, 0.05),))
    slow_nodes = slow_nodes_of(site, 1)
    assert set(slow_nodes) == {"n3"}
    assert slow_nodes["n3"].high - slow_nodes["n3"].low < 0.012


@pytest.mark.slow
def test_records_after_now_are_ignored() -> None:
    records = simulate(replace(SITE, slow=(Slowdown(3, 0.05, DAY),)), 4)
    now = 1.4 * DAY
    past = tuple(r for r in records.records if r.at <= now)
    assert find_slow(replace(records, now=now)) == find_slow(
        replace(records, now=now, records=past)
    )


@pytest.mark.slow
def test_the_order_of_records_does_not_matter() -> None:
    records = simulate(replace(SITE, days=1.0, slow=(Slowdown(3, 0.05),)), 5)
    reversed_records = replace(records, records=records.records[::-1])
    assert find_slow(reversed_records) == find_slow(records)


def runs_at(
    speeds: dict[str, float],
    workload: str = "w",
    gpu_type: str = "a",
    *,
    count: int = 60,
    seed: int = 0,
) -> tuple[list[HealthNode], list[SpeedRecord]]:
    """Return the nodes of ``speeds``, and a run on each at its speed, a report a minute."""
    r = np.random.default_rng(seed)
    nodes = [HealthNode(NodeName(name), GpuType(gpu_type), 4) for name in speeds]
    records = [
        SpeedRecord(
            60.0 * i,
            WorkloadName(workload),
            JobId(f"{workload}-{name}"),
            {NodeName(name): 4},
            float(np.exp(r.normal(0.0, 0.01))) / speed,
        )
        for name, speed in speeds.items()
        for i in range(count)
    ]
    return nodes, records


def nodes_judged_slow(*parts: tuple[list[HealthNode], list[SpeedRecord]]) -> list[str]:
    nodes = {node.name: node for given_nodes, _ in parts for node in given_nodes}
    records = tuple(record for _, given_records in parts for record in given_records)
    return [s.node for s in find_slow(HealthRecords(1e5, tuple(nodes.values()), records))]


def test_a_workload_that_ran_on_a_single_server_is_no_evidence() -> None:
    usual = runs_at(dict.fromkeys(["n0", "n1", "n2", "n3"], 1.0))
    assert nodes_judged_slow(usual, runs_at({"n4": 0.5}, "new")) == []


def test_the_only_server_of_a_type_is_not_judged() -> None:
    usual = runs_at(dict.fromkeys(["n0", "n1", "n2", "n3"], 1.0))
    assert nodes_judged_slow(usual, runs_at({"b0": 0.5}, gpu_type="b")) == []


def test_several_jobs_show_which_of_three_servers_is_slow() -> None:
    speeds = {"n0": 1.0, "n1": 0.9, "n2": 1.0}
    jobs = [runs_at(speeds, f"w{number}", seed=number) for number in range(3)]
    for number, (_, records) in enumerate(jobs):
        records[:] = [replace(r, at=r.at + 10_000.0 * number) for r in records]
    assert nodes_judged_slow(*jobs) == ["n1"]


def test_neither_of_two_servers_that_differ_is_named() -> None:
    assert nodes_judged_slow(runs_at({"n0": 1.0, "n1": 0.9})) == []


@pytest.mark.slow
def test_a_faster_server_does_not_make_others_slow() -> None:
    speeds = {**dict.fromkeys(["n0", "n1", "n2", "n3"], 1.0), "n4": 1.1}
    assert nodes_judged_slow(runs_at(speeds)) == []


@pytest.mark.slow
def test_servers_that_always_run_together_cannot_be_told_apart() -> None:
    usual = runs_at(dict.fromkeys(["n0", "n1", "n2", "n3"], 1.0), count=20)
    pairs = []
    for number, pair in enumerate([("n0", "n1"), ("n2", "n3"), ("n4", "n5")] * 4):
        loss = 1.1 if "n4" in pair else 1.0
        pairs += [
            SpeedRecord(
                5000.0 * (number // 3) + 60.0 * i,
                WorkloadName("pair"),
                JobId(f"p{number}"),
                {NodeName(n): 4 for n in pair},
                loss * (1.0 + 0.002 * (i % 3)),
            )
            for i in range(60)
        ]
    nodes = [HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(6)]
    assert nodes_judged_slow(usual, (nodes, pairs)) == []


@pytest.mark.slow
@pytest.mark.parametrize("times", [3.0, 1e9])
@pytest.mark.parametrize("interval", [60.0, 600.0])
def test_one_pause_does_not_name_a_server(interval: float, times: float) -> None:
    """A job was stopped for a while, or saved to a busy file server, just before the look."""
    nodes, records = runs_at(dict.fromkeys([f"n{i}" for i in range(8)], 1.0))
    records = [replace(record, at=record.at / 60.0 * interval) for record in records]
    newest = max(place for place, record in enumerate(records) if "n2" in record.nodes)
    records[newest] = replace(records[newest], seconds_per_iteration=times)
    assert nodes_judged_slow((nodes, records)) == []
    two = [records[newest], replace(records[newest], at=records[newest].at + interval)]
    assert nodes_judged_slow((nodes, records + two[1:])) == []


def alternating(half: int, *, nodes: int = 24, count: int = 300) -> list[SpeedRecord]:
    """Return a run on each node whose speed alternates by 10 % every ``half`` reports, each out of
    phase with the others.
    """
    records = runs_at(dict.fromkeys([f"n{i}" for i in range(nodes)], 1.0), count=count)[1]
    return [
        replace(
            record,
            at=10.0 * record.at,
            seconds_per_iteration=record.seconds_per_iteration * (1.0 + 0.1 * (place // half % 2)),
        )
        for place, record in enumerate(records, 7)
    ]


@pytest.mark.parametrize(
    "half", [20, *(pytest.param(half, marks=pytest.mark.long) for half in (3, 10, 60))]
)
def test_an_alternating_workload_names_no_server(half: int) -> None:
    """Reports in the same state are not independent, and its runs change midway by themselves."""
    nodes = runs_at(dict.fromkeys([f"n{i}" for i in range(24)], 1.0))[0]
    assert nodes_judged_slow((nodes, alternating(half))) == []


@pytest.mark.slow
@pytest.mark.parametrize("servers", [8, 5])
def test_an_alternating_workload_does_not_hide_a_slow_server_that_another_shows(
    servers: int,
) -> None:
    """Even if the other workload ran on few servers."""
    nodes = runs_at(dict.fromkeys([f"n{i}" for i in range(24)], 1.0))[0]
    usual = runs_at(dict.fromkeys([f"n{i}" for i in range(servers)], 1.0), "v", count=120)[1]
    steady = [
        replace(
            record,
            at=2e5 + record.at,
            seconds_per_iteration=record.seconds_per_iteration
            * (1.05 if record.nodes.keys() == {"n3"} and record.at > 6000.0 else 1.0),
        )
        for record in usual
    ]
    records = HealthRecords(2e5 + 7200.0, tuple(nodes), (*alternating(20), *steady))
    (slow,) = find_slow(records)
    assert slow.node == "n3"
    assert slow.since == pytest.approx(2e5 + 6000.0, abs=300.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("swing", "seconds"),
    [
        (0.04, 2400.0),
        pytest.param(0.1, 6000.0, marks=pytest.mark.long),
        pytest.param(0.1, 4 * 3600.0, marks=pytest.mark.long),
    ],
)
def test_programs_that_alternate_all_day_name_no_server(swing: float, seconds: float) -> None:
    """hopsd stores only the last reports of each run, which are too few to show the rhythm."""
    site = SiteSettings(nodes=20, days=1.6, noise=0.01, swing=swing, swing_seconds=seconds)
    stored = Stored(simulate(site, 1))
    for now in np.arange(1.2 * DAY, 1.6 * DAY, 7200.0).tolist():
        assert find_slow(stored.at(now)) == ()


def test_the_oldest_of_many_changes_are_ignored() -> None:
    """Each change is one more unknown, and the time grows with the cube of their number."""
    begins = [[None, *np.arange(node, 300.0, 24.0).tolist()] for node in range(24)]
    newest = _newest(begins, MAX_CHANGES)
    changes = [time for times in newest for time in times if time is not None]
    assert sorted(changes) == np.arange(300.0 - MAX_CHANGES, 300.0).tolist()
    assert all(times[0] is None for times in newest)


def test_without_records_no_server_is_named() -> None:
    assert nodes_judged_slow((runs_at({"n0": 1.0})[0], [])) == []


def test_ranks_without_computing_time_are_no_evidence() -> None:
    nodes, records = runs_at(dict.fromkeys(["n0", "n1"], 1.0))
    ranks = tuple(RankTime(NodeName(n), 0.0, 1.0) for n in ("n0", "n1"))
    two_nodes = {NodeName("n0"): 4, NodeName("n1"): 4}
    records = [replace(record, nodes=two_nodes, ranks=ranks) for record in records]
    assert nodes_judged_slow((nodes, records)) == []


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1e6),
            st.sampled_from(["w0", "w1"]),
            st.sampled_from(["1", "2", "3"]),
            st.sets(st.sampled_from(["n0", "n1", "n2"]), min_size=1),
            st.floats(1e-9, 1e9),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_arbitrary_records_give_valid_verdicts(rows: list[tuple]) -> None:  # type: ignore[type-arg]
    nodes = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(3))
    records = tuple(
        SpeedRecord(
            at,
            WorkloadName(workload),
            JobId(job),
            {NodeName(n): 1 for n in sorted(node_numbers)},
            seconds,
            tuple(RankTime(NodeName(n), seconds, 0.0) for n in sorted(node_numbers))
            if ranks
            else (),
        )
        for at, workload, job, node_numbers, seconds, ranks in rows
    )
    for slow in find_slow(HealthRecords(1e6, nodes, records)):
        assert 0.0 < slow.low <= slow.factor <= slow.high < 1.0


def test_neighbours_without_records_are_known_from_their_stays() -> None:
    """hopsd keeps the newest records of each workload and server, but the stays of all jobs."""
    node = HealthNode(NodeName("n0"), GpuType("a"), 4)
    record = SpeedRecord(100.0, WorkloadName("w"), JobId("1"), {node.name: 2}, 1.0)
    stays = [
        Stay(JobId("1"), (node.name,), 0.0, np.inf),
        Stay(JobId("2"), (node.name,), 50.0, 150.0),
    ]
    alone = HealthRecords(1e3, (node,), (record, replace(record, at=500.0)), (), tuple(stays[:1]))
    assert read_past(alone).neighbours == [0, 0]
    first, second = read_past(replace(alone, stays=tuple(stays))).neighbours
    assert first > 0
    assert second == 0
