"""What accounts, QOS and partitions leave for jobs, by Slurm's rules of precedence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.site.applicable_limits import LimitSubject, bounds
from hopsd.core.site.job_limits import open_partitions, over_memory, within_site
from hopsd.core.site.limits import limit_rows, over_limits
from hopsd.core.site.partition_room import PartitionSelector
from hopsd.core.submission.placement_rules import allowed_nodes
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, NodeReading, Reading, SiteMemory, SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import Limit, ShapeRule
from hopsd.model.script_options import ScriptOptions
from hopsd.model.site import (
    Association,
    Holder,
    Licence,
    Partition,
    Qos,
    ResourceKind,
    SiteRules,
    kind_of_type,
)


def job(number: int, user: str = "alice", reqs: tuple[int, ...] = (1, 2)) -> Job:
    return Job(JobId(str(number)), UserName(user), 0.0, 0.0, reqs, {})


def read(number: int, user: str = "alice", **changes: object) -> JobReading:
    fields: dict[str, object] = {"account": "lab", "qos": "small", "partition": "gpu"}
    fields |= {"time_limit_seconds": 3600.0, **changes}
    return JobReading(
        JobId(str(number)), UserName(user), 1, "", "hops:reqs=1,2", state=SlurmState.PENDING,
        submit=0.0, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def rules(*parts: Association | Qos | Partition, **fields: object) -> SiteRules:
    return SiteRules(
        has_limits=True,
        associations={
            (a.account, a.user, a.partition): a for a in parts if isinstance(a, Association)
        },
        qos={q.name: q for q in parts if isinstance(q, Qos)},
        partitions={p.name: p for p in parts if isinstance(p, Partition)},
        **fields,  # type: ignore[arg-type]
    )


def rows(site: SiteRules, jobs: list[Job], holders: tuple[Holder, ...] = ()) -> list[Limit]:
    reading = Reading(
        0.0, (), tuple(read(int(j.id), j.user) for j in jobs), other_holders=holders, site=site
    )
    return list(limit_rows(reading, jobs))


def lab(**fields: object) -> Association:
    return Association("lab", UserName(""), **fields)  # type: ignore[arg-type]


def in_lab(user: str, **fields: object) -> Association:
    return Association("lab", UserName(user), parent="lab", **fields)  # type: ignore[arg-type]


SMALL = Qos("small", per_user={ResourceKind.GPUS: 2})


def test_each_user_of_a_qos_has_a_row_and_other_users_have_none() -> None:
    jobs = [job(1), job(2), job(3, "bob"), job(4, "bob", (1,))]
    assert rows(rules(SMALL), jobs) == [
        Limit("QOS small, user alice", frozenset({JobId("1"), JobId("2")}), gpus=2),
        Limit("QOS small, user bob", frozenset({JobId("3"), JobId("4")}), gpus=2),
    ]


def test_usage_of_plain_jobs_is_subtracted_and_shown() -> None:
    plain = Holder(JobId("9"), UserName("alice"), "lab", "small", "gpu", 1, 8)
    [row] = rows(rules(SMALL), [job(1)], (plain,))
    assert (row.gpus, row.name) == (
        1,
        "QOS small, user alice (2 GPUs, 1 GPU in use outside hops by 9)",
    )
    holders = replace(plain, user=UserName("bob"))
    assert rows(rules(SMALL), [job(1, reqs=(1,))], (holders,)) == []


def test_rows_that_could_not_hold_anything_back_are_left_out() -> None:
    assert (
        rows(
            rules(Qos("small", per_user={ResourceKind.GPUS: 4, ResourceKind.JOBS: 2})),
            [job(1), job(2)],
        )
        == []
    )
    assert rows(replace(rules(SMALL), has_limits=False), [job(1), job(2)]) == []


def test_accounts_limit_all_below_them_and_users_their_jobs() -> None:
    root = Association("root", UserName(""), group={ResourceKind.GPUS: 3})
    site = rules(
        root,
        lab(parent="root", group={ResourceKind.JOBS: 2}),
        in_lab("alice", jobs=1),
        in_lab("bob"),
    )
    limits = rows(site, [job(1), job(2), job(3, "bob")])
    all_ids = frozenset(map(JobId, "123"))
    assert limits == [
        Limit("account lab", all_ids, count=2),
        Limit("account lab, user alice", frozenset(map(JobId, "12")), count=1),
        Limit("account root", all_ids, gpus=3),
    ]


def test_a_qos_comes_before_accounts_and_a_partitions_qos_before_the_jobs() -> None:
    accounts = (lab(group={ResourceKind.GPUS: 1, ResourceKind.JOBS: 1}), in_lab("alice", jobs=1))
    of_gpu = Qos("gpu", group={ResourceKind.GPUS: 5}, per_user={ResourceKind.JOBS: 7})
    job_qos = Qos("small", group={ResourceKind.GPUS: 4})
    partition = Partition("gpu", own_qos="gpu")
    place = LimitSubject(UserName("alice"), "lab", "small", "gpu")
    scopes = {(b.scope.name, b.kind, b.maximum) for b in bounds(rules(*accounts, job_qos), place)}
    assert scopes == {
        ("QOS small", ResourceKind.GPUS, 4),
        ("account lab", ResourceKind.JOBS, 1),
        ("account lab, user alice", ResourceKind.JOBS, 1),
    }
    of_both = bounds(rules(*accounts, job_qos, of_gpu, partition), place)
    assert {(b.scope.name, b.kind, b.maximum) for b in of_both} == {
        ("QOS gpu", ResourceKind.GPUS, 5),
        ("QOS gpu, user alice", ResourceKind.JOBS, 7),
        ("account lab", ResourceKind.JOBS, 1),
    }
    stronger = replace(job_qos, over_partition=True)
    first = bounds(rules(*accounts, stronger, of_gpu, partition), place)[0]
    assert (first.scope.name, first.maximum) == ("QOS small", 4)


def test_a_job_exempt_from_a_limit_uses_it_up_for_the_others() -> None:
    """A QOS' bound replaces an account's, but the job counts in the account (acct_policy.c)."""
    exempt_qos = Qos("own", group={ResourceKind.GPUS: 8, ResourceKind.JOBS: 8})
    site = rules(
        exempt_qos,
        lab(group={ResourceKind.GPUS: 5, ResourceKind.JOBS: 3}),
        in_lab("alice"),
        in_lab("bob"),
    )
    runs = Allocation.of({NodeName("n0"): 4})
    reads = (
        read(1, qos="own", allocation=runs),
        *(read(n, "bob", qos="none") for n in (2, 3, 4)),
    )
    jobs = [job(1), *(job(n, "bob") for n in (2, 3, 4))]
    [row] = limit_rows(Reading(0.0, (), reads, site=site), jobs)
    assert (row.gpus, row.count, row.jobs) == (1, 2, frozenset(map(JobId, "234")))
    text = "account lab (5 GPUs and 3 jobs, 4 GPUs in use by 1, to which it does not apply)"
    assert (row.name, row.exempt) == (text, {JobId("1")})
    waits = tuple(replace(reading, allocation=Allocation()) for reading in reads)
    [row] = limit_rows(Reading(0.0, (), waits, site=site), jobs)
    assert (row.gpus, row.count, row.exempt) == (5, 3, {JobId("1")})


def test_running_jobs_stay_if_others_use_up_their_limit() -> None:
    """Slurm stops no job because of a limit, but would not start a stopped one again."""
    exempt_qos = Qos("own", group={ResourceKind.GPUS: 8, ResourceKind.JOBS: 8})
    site = rules(exempt_qos, lab(group={ResourceKind.GPUS: 4}), in_lab("alice"), in_lab("bob"))
    runs, second_allocation = (Allocation.of({NodeName(name): 3}) for name in ("n0", "n1"))
    exempt = read(1, qos="own", allocation=second_allocation)
    reads = exempt, read(2, "bob", qos="none", allocation=runs), read(3, "bob", qos="none")
    jobs = [
        replace(job(1), running=second_allocation),
        replace(job(2, "bob"), running=runs),
        job(3, "bob"),
    ]

    def staying_ids(
        site: SiteRules, *changed_reads: JobReading, **fields: object
    ) -> frozenset[JobId]:
        reading = Reading(0.0, (), changed_reads or reads, site=site)
        return over_limits(replace(reading, **fields), jobs)  # type: ignore[arg-type]

    assert staying_ids(site) == {JobId("2")}
    waits = replace(exempt, allocation=Allocation())
    assert staying_ids(site, waits, *reads[1:]) == frozenset()
    plain = Holder(JobId("9"), UserName("bob"), "lab", "own", "gpu", 2, 2)
    assert staying_ids(site, waits, *reads[1:], other_holders=(plain,)) == {JobId("2")}
    lowered_site = rules(
        exempt_qos, lab(group={ResourceKind.GPUS: 2}), in_lab("alice"), in_lab("bob")
    )
    assert staying_ids(lowered_site) == frozenset()
    assert staying_ids(replace(site, has_limits=False)) == frozenset()


def partitions_for(request: JobReading, site: SiteRules) -> str | Reason:
    return open_partitions(request, Reading(0.0, (), (request,), site=site))


def test_the_partition_of_the_highest_tier_is_tried_first() -> None:
    site = rules(Partition("low", tier=1), Partition("high", tier=5), Partition("same", tier=1))
    request = read(1, partition="low,high,same,unknown")
    assert partitions_for(request, site) == "high,low,same,unknown"


def test_a_job_refused_in_all_partitions_is_told_each_reason() -> None:
    site = rules(
        Partition("a", accounts=frozenset({"ops"})),
        Partition("b", seconds=600.0),
        Qos("small", per_job={ResourceKind.GPUS: 1}),
    )
    reason = partitions_for(read(1, partition="a,b"), site)
    assert reason == Reason(
        ReasonCode.NO_CONFIGURATION,
        "in partition a partition a is for the accounts ops, not lab; in partition b its time limit"
        " of 60 minutes is above the 10 of partition b; scontrol update its TimeLimit",
    )
    large = job(1, reqs=(2,))
    same_reason = within_site(large, read(1, partition="c,d"), site, 8, 0.0)
    assert same_reason == within_site(large, read(1, partition="c"), site, 8, 0.0)


def test_a_job_waits_if_one_of_its_partitions_is_used_up() -> None:
    spent_qos = Qos(
        "spent", group={ResourceKind.GPU_MINUTES: 9}, usage={ResourceKind.GPU_MINUTES: 9}
    )
    site = rules(
        Partition("a", nodes=0), Partition("b", own_qos="spent"), spent_qos, SMALL, safe=True
    )
    reason = within_site(job(1), read(1, partition="a,b"), site, 8, 0.0)
    assert isinstance(reason, Reason)
    assert reason.code is ReasonCode.LIMIT
    assert "in partition a partition a allows no node; in partition b QOS spent" in reason.text


FULL = (
    Partition("a", own_qos="of_a"),
    Partition("b", own_qos="of_b"),
    Qos("of_a", group={ResourceKind.GPUS: 2}),
    Qos("of_b", group={ResourceKind.JOBS: 1}),
)


def test_a_job_counts_in_the_partition_that_has_room_for_it() -> None:
    """Slurm tries its next partition if a limit of one is reached."""
    plain = Holder(JobId("9"), UserName("bob"), "lab", "small", "a", 1, 4)
    asks, request = job(1, reqs=(2, 4)), read(1, partition="a,b")
    reading = Reading(0.0, (), (request,), other_holders=(plain,), site=rules(*FULL))
    no_room = "no room in partition a: QOS of_a, 1 of 2 GPUs used"
    assert PartitionSelector(reading).partitions(asks, request) == ("b", no_room)
    assert PartitionSelector(reading).partitions(job(1), request) == ("a,b", "")
    full_reading = replace(
        reading, other_holders=(plain, replace(plain, id=JobId("8"), partition="b"))
    )
    remark = "no room in partition b: QOS of_b, 1 of 1 job used"
    assert PartitionSelector(full_reading).partitions(asks, request) == ("a,b", remark)
    small_qos = Qos("small", group={ResourceKind.GPUS: 2})
    same_qos_reading = replace(reading, site=rules(small_qos))
    assert PartitionSelector(same_qos_reading).partitions(asks, request) == ("a,b", "")


@pytest.mark.parametrize("kind", [ResourceKind.CPUS, ResourceKind.MEMORY, ResourceKind.BILLING])
def test_running_hops_jobs_count_in_limits_on_cores_and_memory(kind: ResourceKind) -> None:
    site = rules(*FULL[:2], Qos("of_a", group={kind: 16}))
    runs = {"allocation": Allocation.of({NodeName("n0"): 1}), "tres": {kind: 14}}
    holder = replace(read(8, partition="a", **runs), state=SlurmState.RUNNING)
    asks = with_rules(1, cores_per_gpu=4.0, memory_mb_per_gpu=4.0)
    request = read(1, partition="a,b")
    remark = f"no room in partition a: QOS of_a, 14 of 16 {kind} used"
    assert PartitionSelector(Reading(0.0, (), (holder, request), site=site)).partitions(
        asks, request
    ) == ("b", remark)


def with_rules(number: int, *, reqs: tuple[int, ...] = (1, 2), **fields: object) -> Job:
    plain_job = job(number, reqs=reqs)
    return replace(plain_job, rules=replace(plain_job.rules, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "maximum", "fields", "weight"),
    [
        (ResourceKind.CPUS, 20, {"cores_per_gpu": 6.0}, 6),
        (
            ResourceKind.MEMORY,
            9000,
            {"memory_mb_per_gpu": 4000.0, "memory_mb_per_node": 100.0},
            4100,
        ),
        (ResourceKind.BILLING, 20, {"cores_per_gpu": 6.0}, 6),
        (ResourceKind.RUNNING_GPU_MINUTES, 100, {}, 60),
        (ResourceKind.RUNNING_CPU_MINUTES, 300, {"cores_per_gpu": 2.0}, 120),
    ],
)
def test_a_row_counts_each_jobs_usage_per_gpu(
    kind: ResourceKind, maximum: int, fields: dict[str, object], weight: int
) -> None:
    site = rules(Qos("small", group={kind: maximum}))
    jobs = [with_rules(1, **fields), with_rules(2, **fields)]
    [row] = rows(site, jobs)
    assert (row.gpus, row.unit, set(row.per_gpu.values())) == (maximum, kind, {weight})
    assert row.amount(JobId("1"), 2) == 2 * weight
    assert rows(rules(Qos("small", group={kind: 1000 * maximum})), jobs) == []


def test_billing_uses_the_partitions_weights_in_whole_numbers() -> None:
    partition = Partition("gpu", billing={ResourceKind.GPUS: 2.0, ResourceKind.CPUS: 0.25})
    site = rules(Qos("small", group={ResourceKind.BILLING: 9}), partition)
    [row] = rows(site, [with_rules(n, cores_per_gpu=3.0) for n in (1, 2)])
    assert (row.gpus, row.scale, set(row.per_gpu.values())) == (9000, 1000, {2750})
    largest = rows(replace(site, billing_is_largest=True), [with_rules(1, reqs=(8,))])
    assert [(limit.gpus, limit.per_gpu) for limit in largest] == [(9, {JobId("1"): 2})]


def test_limits_on_a_gpu_type_count_for_jobs_that_name_it() -> None:
    site = rules(Qos("small", group={kind_of_type("a100"): 1}))
    reading = Reading(
        0.0, (), (read(1, options=ScriptOptions(gpu_type=GpuType("a100"))), read(2)), site=site
    )
    [row] = limit_rows(reading, [job(1), job(2)])
    assert (row.jobs, row.gpus, row.unit) == ({JobId("1")}, 1, "GPUs of type a100")


WHOLE = "it asks for 16000 MB of a node, and MaxMemPerNode is 14000; without --mem or"
EXPLICIT = "it asks for 15000 MB of a node, and MaxMemPerNode is 14000"
DEFAULT = ScriptOptions(default_memory=True)


@pytest.mark.parametrize(
    ("options", "fields", "site", "text"),
    [
        (DEFAULT, {}, {}, WHOLE),
        (DEFAULT, {}, {"mb_per_gpu": 1000}, WHOLE),
        (DEFAULT, {}, {"mb_per_node": 1000}, ""),
        (DEFAULT, {}, {"mb_per_cpu": 1000}, ""),
        (DEFAULT, {}, {"counted": False}, ""),
        (DEFAULT, {}, {"most_mb_per_node": 16000}, ""),
        (DEFAULT, {}, {"most_mb_per_node": None}, ""),
        (ScriptOptions(memory_mb_per_gpu=10), {}, {}, WHOLE),
        (ScriptOptions(whole_memory=True), {}, {}, ""),
        (ScriptOptions(), {"memory_mb_per_node": 15000}, {}, EXPLICIT),
        (ScriptOptions(), {"memory_mb_per_node": 14000}, {}, ""),
        (ScriptOptions(), {"memory_mb_per_cpu": 15000}, {}, ""),
    ],
)
def test_memory_requests_that_slurm_never_starts_are_refused(
    options: ScriptOptions, fields: dict[str, int], site: dict[str, int], text: str
) -> None:
    """Slurm 22.05 and 24.11 report such jobs as MaxMemPerLimit."""
    a100 = GpuType("a100")
    nodes = [NodeReading(NodeName(f"n{mb}"), a100, 4, 16, memory_mb=mb) for mb in (16000, 32000)]
    memory = replace(SiteMemory(counted=True, most_mb_per_node=14000), **site)  # type: ignore[arg-type]
    reason = over_memory(read(1, options=options, **fields), memory, nodes)
    assert (reason is not None) == bool(text)
    assert reason is None or (reason.code is ReasonCode.NO_CONFIGURATION and text in reason.text)


def test_only_partitions_with_enough_memory_remain() -> None:
    """Each partition is judged by its own MaxMemPerNode and its smallest node."""
    a100 = GpuType("a100")
    nodes = tuple(
        NodeReading(NodeName(name), a100, 4, 4, memory_mb=mb, partitions=(name,))
        for name, mb in (("a", 16000), ("b", 64000), ("c", 8000))
    )
    small = SiteMemory(counted=True, most_mb_per_node=14000)

    def open_to(*, bounded_partitions: str, **fields: object) -> str | Reason:
        request = read(1, partition="a,b", **fields)
        site = dict.fromkeys(bounded_partitions, small)
        return open_partitions(
            request,
            Reading(
                0.0,
                nodes,
                (request,),
                memory=SiteMemory(counted=True),
                partition_memory=site,
                site=rules(),
            ),
        )

    assert open_to(bounded_partitions="", memory_mb_per_node=15000) == "a,b"
    assert open_to(bounded_partitions="a", memory_mb_per_node=15000) == "b"
    assert open_to(bounded_partitions="b", memory_mb_per_node=15000) == "a"
    assert (
        open_to(bounded_partitions="a", options=ScriptOptions(default_memory=True)) == "b"
    )  # node c is in neither partition
    reason = open_to(bounded_partitions="ab", memory_mb_per_node=15000)
    assert isinstance(reason, Reason)
    assert reason.code is ReasonCode.NO_CONFIGURATION
    assert "MaxMemPerNode is 14000" in reason.text


@pytest.mark.parametrize(
    ("options", "megabytes", "text"),
    [
        (
            ScriptOptions(gpu_type=GpuType("h100")),
            None,
            "GPUs of type h100, and partition a has a100, v100",
        ),
        (ScriptOptions(gpu_type=GpuType("v100")), None, ""),
        (
            ScriptOptions(shape=ShapeRule.NODE),
            102400,
            "102400 MB of each node (--mem), and",
        ),
        (ScriptOptions(shape=ShapeRule.NODE), 64000, ""),
        (
            ScriptOptions(gpu_type=GpuType("v100")),
            64000,
            "and the largest has 32000 MB",
        ),
        (ScriptOptions(gpu_type=GpuType("v100"), default_memory=True), 64000, ""),
        (ScriptOptions(whole_memory=True), 64000, ""),
    ],
)
def test_a_request_that_no_node_meets_is_named_at_once(
    options: ScriptOptions, megabytes: int | None, text: str
) -> None:
    """A drained node counts, since the job can wait for it."""
    nodes = (
        NodeReading(NodeName("n0"), GpuType("a100"), 4, 16, memory_mb=64000, usable=False),
        NodeReading(NodeName("n1"), GpuType("v100"), 4, 16, memory_mb=32000),
        NodeReading(NodeName("n2"), GpuType("h100"), 4, 16, memory_mb=99000, partitions=("b",)),
    )
    asks = read(1, partition="a", options=options, memory_mb_per_node=megabytes)
    reason = open_partitions(asks, Reading(0.0, nodes, (asks,), site=rules()))
    assert (text in reason.text) if isinstance(reason, Reason) else (reason == "a" and not text)


def test_nodes_with_too_little_memory_are_excluded() -> None:
    nodes = [
        NodeReading(NodeName(f"n{mb}"), GpuType("a100"), 4, 16, memory_mb=mb) for mb in (16, 32)
    ]
    asks = read(1, options=ScriptOptions(shape=ShapeRule.NODE), memory_mb_per_node=20)
    assert [node.name for node in allowed_nodes(asks, nodes)] == ["n32"]


def test_the_remaining_time_of_plain_jobs_is_subtracted() -> None:
    site = rules(Qos("small", group={ResourceKind.RUNNING_GPU_MINUTES: 100}))
    plain = Holder(
        *(JobId("9"), UserName("bob"), "lab", "small", "gpu", 1, 8),
        time_limit_seconds=3600.0,
        start=-1200.0,
    )
    [row] = rows(site, [job(1)], (plain,))
    assert row.gpus == 60
    assert "40 GPU minutes to run in use outside hops by 9" in row.name


def test_licences_limit_the_number_of_running_jobs() -> None:
    reading = Reading(
        0.0,
        (),
        (*(read(n, licences={"matlab": n}) for n in (1, 2)), read(3)),
        licences={"matlab": Licence(total=4, in_use=2)},
    )
    [row] = limit_rows(reading, [job(1), job(2), job(3)])
    assert (row.jobs, row.count, row.gpus) == (frozenset(map(JobId, "12")), 1, None)
    assert row.name == "licence matlab (4, 2 of them used outside hops)"


def counts_within(asks: Job, site: SiteRules, largest: int = 8, **fields: object) -> Job | Reason:
    reading = read(1, **{"time_limit_seconds": 1200.0, **fields})
    partitions = partitions_for(reading, site)
    if isinstance(partitions, Reason):
        return partitions
    return within_site(asks, replace(reading, partition=partitions), site, largest, 0.0)


def test_a_single_job_keeps_only_the_counts_within_its_limits() -> None:
    asks = job(1, reqs=(1, 2, 4, 8))
    for site in (
        rules(Qos("small", per_job={ResourceKind.GPUS: 4})),
        rules(Qos("small", per_job={ResourceKind.GPU_MINUTES: 80})),
        rules(in_lab("alice", per_job={ResourceKind.GPUS: 4})),
        rules(
            in_lab("alice", per_job={ResourceKind.GPUS: 1}),
            Qos("small", per_job={ResourceKind.GPUS: 4}),
        ),
        rules(
            in_lab("alice", per_job={ResourceKind.NODES: 1}),
            Qos("small", per_node={ResourceKind.GPUS: 5}),
        ),
    ):
        bounded_job = counts_within(asks, site)
        assert isinstance(bounded_job, Job)
        assert bounded_job.reqs == (1, 2, 4)
    bounded_below = counts_within(asks, rules(Qos("small", least={ResourceKind.GPUS: 3})))
    assert isinstance(bounded_below, Job)
    assert bounded_below.reqs == (4, 8)


def test_a_jobs_servers_and_gpus_per_server_obey_the_sites_maximum() -> None:
    asks = job(1, reqs=(1, 2, 4, 8, 16))
    two = counts_within(asks, rules(Partition("gpu", nodes=2)), largest=4)
    assert isinstance(two, Job)
    assert (two.reqs, two.rules.max_nodes) == ((1, 2, 4, 8), 2)
    grouped_job = counts_within(
        asks, rules(lab(group={ResourceKind.NODES: 3}), in_lab("alice")), largest=4
    )
    assert isinstance(grouped_job, Job)
    assert grouped_job.rules.max_nodes == 3
    cores = with_rules(1, reqs=(1, 2, 4), cores_per_gpu=4.0)
    per_node_job = counts_within(cores, rules(Qos("small", per_node={ResourceKind.CPUS: 9})))
    assert isinstance(per_node_job, Job)
    assert (per_node_job.reqs, per_node_job.rules.max_per_node, per_node_job.rules.shape) == (
        (1, 2, 4),
        2,
        ShapeRule.EVEN,
    )
    unlimited_job = counts_within(
        asks, rules(Partition("gpu", nodes=2)), largest=4, partition="gpu,debug"
    )
    assert isinstance(unlimited_job, Job)
    assert unlimited_job.rules.max_nodes is None


def test_a_job_that_a_rule_never_lets_run_is_told_which_one() -> None:
    def reason_of(site: SiteRules, **fields: object) -> Reason:
        reason = counts_within(job(1, reqs=(4,)), site, **fields)  # type: ignore[arg-type]
        assert isinstance(reason, Reason)
        return reason

    assert reason_of(rules(Qos("small", per_job={ResourceKind.GPUS: 2}))) == Reason(
        ReasonCode.NO_CONFIGURATION,
        "QOS small, 2 GPUs of one job: at most 2 GPUs; it asks for 4 or more",
    )
    nodes = reason_of(rules(Partition("gpu", nodes=1)), largest=2)
    assert nodes.text == "partition gpu, 1 node of one job: at most 2 GPUs; it asks for 4 or more"
    assert (
        "at least 9 GPUs; it asks for 4"
        in reason_of(rules(Qos("small", least={ResourceKind.GPUS: 9}))).text
    )
    closed_reason = reason_of(rules(Partition("gpu", accounts=frozenset({"chem"}))))
    assert closed_reason.text == "partition gpu is for the accounts chem, not lab"
    short = reason_of(rules(Partition("gpu", seconds=3600.0)), time_limit_seconds=7200.0)
    assert short.text.startswith("its time limit of 120 minutes is above the 60 of partition gpu")
    spent_reason = reason_of(
        rules(
            Qos("small", group={ResourceKind.GPU_MINUTES: 9}, usage={ResourceKind.GPU_MINUTES: 9})
        )
    )
    assert (spent_reason.code, "9 of 9 GPU minutes used" in spent_reason.text) == (
        ReasonCode.LIMIT,
        True,
    )
    wall = {"group": {ResourceKind.WALL_MINUTES: 30}, "usage": {ResourceKind.WALL_MINUTES: 15}}
    assert isinstance(counts_within(job(1), rules(Qos("small", **wall))), Job)
    wall_reason = reason_of(rules(Qos("small", **wall), safe=True))
    assert (wall_reason.code, "15 of 30 minutes of run time" in wall_reason.text) == (
        ReasonCode.LIMIT,
        True,
    )
    two_partitions = rules(Partition("gpu", accounts=frozenset({"chem"})), Partition("debug"))
    assert partitions_for(read(1, partition="gpu,debug"), two_partitions) == "debug"


def test_limits_on_gpu_minutes_are_enforced_where_slurm_uses_safe_mode() -> None:
    spent_qos = Qos(
        "small", group={ResourceKind.GPU_MINUTES: 200}, usage={ResourceKind.GPU_MINUTES: 50}
    )
    jobs = [job(1), job(2)]
    [row] = rows(rules(spent_qos, safe=True), jobs)
    assert (row.gpus, set(row.per_gpu.values())) == (150, {60})
    assert "50 used up" in row.name
    assert rows(rules(spent_qos), jobs) == []


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=4),
    st.integers(0, 6),
)
def test_the_order_of_jobs_does_not_matter_and_no_row_exceeds_its_limit(
    requests: list[tuple[str, int]], uses: list[tuple[str, int]], maximum: int
) -> None:
    site = rules(Qos("small", per_user={ResourceKind.GPUS: maximum}))
    jobs = [job(number, user, (gpus,)) for number, (user, gpus) in enumerate(requests)]
    holders = tuple(
        Holder(JobId(str(100 + number)), UserName(user), "lab", "small", "gpu", gpus, gpus)
        for number, (user, gpus) in enumerate(uses)
    )
    limits = rows(site, jobs, holders)
    assert rows(site, jobs[::-1], holders[::-1]) == [
        replace(row, name=reversed_row.name)
        for row, reversed_row in zip(limits, rows(site, jobs[::-1], holders[::-1]), strict=True)
    ]
    for user in "abc":
        users_jobs = [j for j in jobs if j.user == user]
        rest_of_limit = max(0, maximum - sum(gpus for name, gpus in uses if name == user))
        user_rows = [row for row in limits if users_jobs and users_jobs[0].id in row.jobs]
        if sum(max(j.reqs) for j in users_jobs) > rest_of_limit:
            assert [(row.jobs, row.gpus) for row in user_rows] == [
                (frozenset(j.id for j in users_jobs), rest_of_limit)
            ]
        else:
            assert user_rows == []
