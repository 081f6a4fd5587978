"""Any policy places a job only where Slurm lets it start, and others lose nothing by that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cluster import A100, TABLE, Cluster, comment, submission
from memory_store import MemoryStore

from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.plan import PlanSettings
from hopsd.model.reading import Hold, JobReading, NodeReading
from hopsd.model.reason import ReasonCode
from hopsd.model.site import Association, Holder, Partition, Qos, ResourceKind, SiteRules
from hopsd.policies.registry import get as policy
from hopsd.round.result import RoundResult
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings

V100 = GpuType("v100")
SETTINGS = RoundSettings(seconds=60.0, plan=PlanSettings(time_limit_seconds=5.0))
FOUR_IN_A = SiteRules(
    has_limits=True,
    qos={"of_a": Qos("of_a", group={ResourceKind.GPUS: 4})},
    partitions={"a": Partition("a", own_qos="of_a"), "b": Partition("b")},
)


def node(name: str, *partitions: str, gpu_type: GpuType = A100) -> NodeReading:
    return NodeReading(NodeName(name), gpu_type, 4, cores=16, partitions=partitions)


def job(number: int, partition: str, *reqs: int) -> JobReading:
    return replace(submission(number, comment(*reqs)), partition=partition)


def cluster(nodes: Collection[NodeReading], jobs: Collection[JobReading]) -> Cluster:
    return Cluster({job.id: job for job in jobs}, nodes=tuple(nodes))


def one_round(port: Cluster, name: str = "hops") -> RoundResult:
    memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE, V100: TABLE}})
    return run_round(port, memory, policy(name), SETTINGS, None)


def test_each_job_gets_gpus_of_its_own_partition_only() -> None:
    port = cluster(
        [node("n0", "long"), node("n1", "long"), node("n2", "long", "short")],
        [job(1, "short", 1, 2), job(2, "short", 2), job(3, "long", 8), job(4, "short", 4)],
    )
    result = one_round(port)
    node_names = {i: a.nodes for i, a in port.placements().items()}
    assert node_names == {"1": ("n2",), "2": ("n2",), "3": ("n0", "n1")}
    assert result.plan.waiting[JobId("4")].code is not ReasonCode.ERROR


def test_all_nodes_of_a_job_are_in_one_of_its_partitions() -> None:
    nodes = [node("n0", "a"), node("n1", "b"), node("n2", "b")]
    port = cluster(nodes, [job(1, "a,b", 8)])
    one_round(port)
    assert port.placements()[JobId("1")].nodes == ("n1", "n2")


def test_a_job_that_does_not_fit_its_partition_takes_no_place_in_the_window() -> None:
    """The window has only as many jobs as the cluster has GPUs for."""
    impossible = [job(i, "short", 8) for i in range(1, 9)]
    port = cluster([node("n0", "long"), node("n1", "short")], [*impossible, job(9, "long", 4)])
    result = one_round(port)
    assert port.placements().keys() == {"9"}
    text = result.plan.waiting[JobId("1")].text
    assert "a100 has 4 in one server" in text
    assert "1 of 2 servers are open to it" in text


@pytest.mark.parametrize("is_held", [False, True])
def test_a_job_may_use_all_of_its_partition_whoever_else_waits(is_held: bool) -> None:
    """Regression: of two overlapping partitions, a job in the smaller split the larger for all."""
    nodes = [node("n0", "gpu", "debug"), node("n1", "gpu"), node("n2", "gpu")]
    competitor = job(2, "debug", 4)
    port = cluster(
        nodes, [job(1, "gpu", 12), replace(competitor, hold=Hold.USER) if is_held else competitor]
    )
    one_round(port)
    placements = port.placements()
    assert placements[JobId("1")].gpus == 12 or (
        not is_held and placements[JobId("2")].nodes == ("n0",)
    )
    assert is_held or placements.keys() <= {"1", "2"}


def test_a_job_in_several_partitions_goes_where_it_fits() -> None:
    nodes = [node("n0", "a"), node("n1", "b"), node("n2", "b"), node("n3", "c", gpu_type=V100)]
    port = cluster(nodes, [job(1, "a,b", 6), job(2, "a,c", 4), job(3, "a,c", 4)])
    one_round(port)
    node_names = {i: a.nodes for i, a in port.placements().items()}
    assert node_names["1"] == ("n1", "n2")
    assert {node_names["2"], node_names["3"]} == {("n0",), ("n3",)}


def test_a_job_is_placed_in_a_partition_with_room_in_its_limits() -> None:
    """At a round's start others may leave the first one, where Slurm would then start the job."""
    port = cluster([node("n0", "a", "b"), node("n1", "a", "b")], [job(1, "a", 4), job(2, "a,b", 4)])
    port.site = FOUR_IN_A
    memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE}})
    result = run_round(port, memory, policy("hops"), SETTINGS, None)
    assert port.placements().keys() == {"1"}
    assert "QOS of_a" in result.plan.waiting[JobId("2")].text
    second_round = run_round(port, memory, policy("hops"), SETTINGS, result.window)
    assert not second_round.first
    assert port.placements().keys() == {"1", "2"}
    assert [(outcome.step.job, outcome.step.partition) for outcome in second_round.outcomes] == [
        ("2", "b")
    ]
    assert (
        "no room in partition a: QOS of_a, 4 of 4 GPUs used" in second_round.build.notes[JobId("2")]
    )


def test_a_partition_filled_by_a_plain_job_is_left_out_at_a_rounds_start() -> None:
    """After that, nothing may be left on a full cluster to start on."""
    port = cluster([node("n0", "a", "b"), node("n1", "a", "b")], [job(2, "a,b", 4)])
    port.other_holders = (Holder(JobId("1"), UserName("bob"), "", "", "a", 4, 4),)
    port.site = FOUR_IN_A
    memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE}})
    result = run_round(port, memory, policy("hops"), SETTINGS, None)
    assert result.first
    assert [(outcome.step.job, outcome.step.partition) for outcome in result.outcomes] == [
        ("2", "b")
    ]


def test_a_job_waits_for_the_partition_that_can_hold_it() -> None:
    """The other partition has room in its limits, but no server that is large enough."""
    port = cluster([node("n0", "a"), node("n1", "a"), replace(node("n2", "b"), gpus=2)], [])
    port.jobs = {
        request.id: request for request in (job(1, "a", 4), job(2, "a,b", 4), job(3, "b,a", 4))
    }
    port.site = FOUR_IN_A
    memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE}})
    result = run_round(port, memory, policy("hops"), SETTINGS, None)
    for _ in range(2):
        result = run_round(port, memory, policy("hops"), SETTINGS, result.window)
        assert port.placements().keys() == {"1"}
        for waits in map(JobId, "23"):
            reason = result.plan.waiting[waits]
            assert (reason.code, "QOS of_a" in reason.text) == (ReasonCode.LIMIT, True)


def test_no_job_stops_at_a_rounds_start_because_others_used_up_its_limit() -> None:
    """Job 2 counts in the account without being bound by it, since its QOS has its own limit."""
    exempt_job = replace(job(2, "a", 4), qos="own", account="lab")
    port = cluster([node("n0", "a"), node("n1", "a")], [replace(job(1, "a", 4), account="lab")])
    port.site = SiteRules(
        has_limits=True,
        associations={
            ("lab", "", ""): Association("lab", UserName(""), group={ResourceKind.GPUS: 4})
        },
        qos={"own": Qos("own", group={ResourceKind.GPUS: 8})},
    )
    memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE}})
    result = run_round(port, memory, policy("hops"), SETTINGS, None)
    port.jobs[exempt_job.id] = exempt_job
    run_round(port, memory, policy("hops"), SETTINGS, result.window)
    assert port.placements().keys() == {"1", "2"}
    second_round = run_round(port, memory, policy("hops"), SETTINGS, None)
    assert (second_round.first, second_round.outcomes) == (True, ())
    assert port.placements().keys() == {"1", "2"}


def test_a_partition_without_gpus_is_named_as_the_reason() -> None:
    port = cluster([node("n0", "long")], [job(1, "cpu", 1)])
    reason = one_round(port).plan.waiting[JobId("1")]
    assert (reason.code, "its partition" in reason.text) == (ReasonCode.NO_CONFIGURATION, True)


def test_a_type_in_two_partitions_is_measured_once() -> None:
    port = cluster([node("n0", "a"), node("n1", "b")], [job(1, "a", 1, 4), job(2, "b", 1, 4)])
    settings = replace(SETTINGS, profiling=ProfilingSettings(enabled=True))
    result = run_round(port, MemoryStore(), policy("hops"), settings, None)
    assert [(run.job, run.gpu_type) for run in result.profile_runs] == [("1", A100)]
    assert {i: a.gpus for i, a in port.placements().items()} == {"1": 1, "2": 4}


def test_a_job_that_cannot_end_before_a_reservation_is_placed_elsewhere() -> None:
    """The jobs' time limit is an hour; the reservation was made while one of them ran."""
    nodes = [node("n0", "main"), node("n1", "main")]
    port = cluster(nodes, [job(1, "main", 4)])
    memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE}})
    window = run_round(port, memory, policy("hops"), SETTINGS, None).window
    port.now += 60.0
    port.nodes = tuple(replace(n, reserved_from=port.now + 1800.0) for n in nodes)
    short = replace(job(2, "main", 4), time_limit_seconds=1800.0)
    port.jobs |= {j.id: j for j in (short, job(3, "main", 1))}
    result = run_round(port, memory, policy("hops"), SETTINGS, window)
    node_names = {i: a.nodes for i, a in port.placements().items()}
    assert node_names == {"1": ("n0",), "2": ("n1",)}, "what runs may finish where it is"
    assert "reservations" in result.plan.waiting[JobId("3")].text
    port.nodes = (nodes[0], replace(nodes[1], reserved_from=port.now + 1800.0))
    del port.jobs[JobId("1")]
    run_round(port, memory, policy("hops"), SETTINGS, window)
    assert port.placements()[JobId("3")].nodes == ("n0",)


PARTITIONS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)


@pytest.mark.parametrize(
    "name", ["hops", "hops+", "sia", "gavel", "themis", "fifo", "allox", "hare"]
)
@settings(max_examples=25)
@given(
    nodes=st.lists(st.tuples(PARTITIONS, st.sampled_from([A100, V100])), min_size=1, max_size=5),
    requests=st.lists(
        st.tuples(PARTITIONS, st.sampled_from([1, 2, 4, 6, 8])), min_size=1, max_size=6
    ),
)
def test_no_policy_places_a_job_outside_its_partitions(
    name: str,
    nodes: list[tuple[list[str], GpuType]],
    requests: list[tuple[list[str], int]],
) -> None:
    nodes_in_partitions = [
        node(f"n{i}", *partitions, gpu_type=kind) for i, (partitions, kind) in enumerate(nodes)
    ]
    port = cluster(
        nodes_in_partitions,
        [job(i, ",".join(partitions), gpus) for i, (partitions, gpus) in enumerate(requests, 1)],
    )
    one_round(port, name)
    inside = {n.name: set(n.partitions) for n in nodes_in_partitions}
    for job_id, allocation in port.placements().items():
        allowed_partitions = set(requests[int(job_id) - 1][0])
        assert allowed_partitions.intersection(*(inside[n] for n in allocation.nodes)), (
            f"{job_id}: {allocation}"
        )
