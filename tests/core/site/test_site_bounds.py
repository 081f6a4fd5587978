"""What accounts, QOS and partitions leave for jobs, by Slurm's own rules of precedence."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.site.bounds import Place, bounds
from hopsd.core.site.limits import limit_rows
from hopsd.core.site.own_bounds import counts_allowed
from hopsd.model.ids import JobId, UserName
from hopsd.model.job import Job
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import Limit
from hopsd.model.site import Association, Holder, Kind, Partition, Qos, SiteRules


def job(number: int, user: str = "alice", reqs: tuple[int, ...] = (1, 2)) -> Job:
    return Job(JobId(str(number)), UserName(user), 0.0, 0.0, reqs, {})


def read(number: int, user: str = "alice", **other: object) -> JobReading:
    fields: dict[str, object] = {"account": "lab", "qos": "small", "partition": "gpu", **other}
    return JobReading(
        JobId(str(number)), UserName(user), 1, "", "hops:reqs=1,2", state=SlurmState.PENDING,
        submit=0.0, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def rules(*parts: Association | Qos | Partition, **other: object) -> SiteRules:
    return SiteRules(
        limited=True,
        associations={
            (a.account, a.user, a.partition): a for a in parts if isinstance(a, Association)
        },
        qos={q.name: q for q in parts if isinstance(q, Qos)},
        partitions={p.name: p for p in parts if isinstance(p, Partition)},
        **other,  # type: ignore[arg-type]
    )


def rows(site: SiteRules, jobs: list[Job], others: tuple[Holder, ...] = ()) -> list[Limit]:
    reading = Reading(
        0.0, (), tuple(read(int(j.id), j.user) for j in jobs), others=others, site=site
    )
    return list(limit_rows(reading, jobs))


def lab(**given: object) -> Association:
    return Association("lab", UserName(""), **given)  # type: ignore[arg-type]


def in_lab(user: str, **given: object) -> Association:
    return Association("lab", UserName(user), parent="lab", **given)  # type: ignore[arg-type]


SMALL = Qos("small", per_user={Kind.GPUS: 2})


def test_each_user_of_a_qos_has_a_row_and_others_have_none() -> None:
    jobs = [job(1), job(2), job(3, "bob"), job(4, "bob", (1,))]
    assert rows(rules(SMALL), jobs) == [
        Limit("QOS small, user alice", frozenset({JobId("1"), JobId("2")}), gpus=2),
        Limit("QOS small, user bob", frozenset({JobId("3"), JobId("4")}), gpus=2),
    ]


def test_what_plain_jobs_use_is_taken_off_and_told() -> None:
    plain = Holder(JobId("9"), UserName("alice"), "lab", "small", "gpu", 1, 8)
    [row] = rows(rules(SMALL), [job(1)], (plain,))
    assert (row.gpus, row.name) == (
        1,
        "QOS small, user alice (2 GPUs, of which 9 beside hops has 1 GPUs)",
    )
    others = replace(plain, user=UserName("bob"))
    assert rows(rules(SMALL), [job(1, reqs=(1,))], (others,)) == []


def test_a_row_that_could_not_keep_anything_back_is_left_out() -> None:
    assert rows(rules(Qos("small", per_user={Kind.GPUS: 4, Kind.JOBS: 2})), [job(1), job(2)]) == []
    assert rows(replace(rules(SMALL), limited=False), [job(1), job(2)]) == []


def test_accounts_bound_all_below_them_and_users_their_jobs() -> None:
    above = Association("root", UserName(""), group={Kind.GPUS: 3})
    site = rules(
        above, lab(parent="root", group={Kind.JOBS: 2}), in_lab("alice", jobs=1), in_lab("bob")
    )
    found = rows(site, [job(1), job(2), job(3, "bob")])
    everybody = frozenset(map(JobId, "123"))
    assert found == [
        Limit("account lab", everybody, count=2),
        Limit("account lab, user alice", frozenset(map(JobId, "12")), count=1),
        Limit("account root", everybody, gpus=3),
    ]


def test_a_qos_comes_before_accounts_and_a_partitions_before_the_jobs() -> None:
    accounts = (lab(group={Kind.GPUS: 1, Kind.JOBS: 1}), in_lab("alice", jobs=1))
    of_gpu = Qos("gpu", group={Kind.GPUS: 5}, per_user={Kind.JOBS: 7})
    own = Qos("small", group={Kind.GPUS: 4})
    partition = Partition("gpu", own_qos="gpu")
    place = Place(UserName("alice"), "lab", "small", "gpu")
    found = {(b.counted.name, b.kind, b.most) for b in bounds(rules(*accounts, own), place)}
    assert found == {
        ("QOS small", Kind.GPUS, 4),
        ("account lab", Kind.JOBS, 1),
        ("account lab, user alice", Kind.JOBS, 1),
    }
    both = bounds(rules(*accounts, own, of_gpu, partition), place)
    assert {(b.counted.name, b.kind, b.most) for b in both} == {
        ("QOS gpu", Kind.GPUS, 5),
        ("QOS gpu, user alice", Kind.JOBS, 7),
        ("account lab", Kind.JOBS, 1),
    }
    stronger = replace(own, over_partition=True)
    first = bounds(rules(*accounts, stronger, of_gpu, partition), place)[0]
    assert (first.counted.name, first.most) == ("QOS small", 4)


def test_bounds_on_cpus_are_as_many_gpus_as_they_are_enough_for() -> None:
    site = rules(Qos("small", group={Kind.CPUS: 20}))
    jobs = [replace(j, rules=replace(j.rules, cores_per_gpu=6.0)) for j in (job(1), job(2))]
    [row] = rows(site, jobs)
    assert (row.gpus, row.name) == (3, "QOS small (20 CPUs, 6 for each GPU)")


def test_one_job_keeps_the_counts_that_it_may_have() -> None:
    asks = job(1, reqs=(1, 2, 4, 8))
    for site in (
        rules(Qos("small", each={Kind.GPUS: 4})),
        rules(Qos("small", gpus_per_node=5)),
        rules(in_lab("alice", each={Kind.GPUS: 4})),
        rules(in_lab("alice", each={Kind.GPUS: 1}), Qos("small", each={Kind.GPUS: 4})),
    ):
        assert counts_allowed(asks, read(1), site) == (1, 2, 4)
    minutes = rules(Qos("small", group={Kind.GPU_MINUTES: 100}, gpu_minutes=40), safe=True)
    in_time = replace(asks, time_limit_seconds=20 * 60.0)
    assert counts_allowed(in_time, read(1), minutes) == (1, 2)


def test_a_job_that_no_rule_lets_run_is_told_which() -> None:
    def told(site: SiteRules, **other: object) -> Reason:
        found = counts_allowed(job(1, reqs=(4,)), read(1, **other), site)
        assert isinstance(found, Reason)
        return found

    assert told(rules(Qos("small", each={Kind.GPUS: 2}))) == Reason(
        ReasonCode.NO_CONFIGURATION,
        "QOS small, GPUs of one job: at most 2 GPUs; it asks for 4 or more",
    )
    closed = told(rules(Partition("gpu", accounts=frozenset({"chem"}))))
    assert closed.text == "partition gpu is for the accounts chem, not lab"
    short = told(rules(Partition("gpu", seconds=3600.0)), time_limit_seconds=7200.0)
    assert short.text.startswith("its time limit of 120 minutes is above the 60 of partition gpu")
    spent = told(rules(Qos("small", group={Kind.GPU_MINUTES: 9}, gpu_minutes=9)))
    assert (spent.code, "9 of 9 GPU minutes used" in spent.text) == (ReasonCode.LIMIT, True)
    either = rules(Partition("gpu", accounts=frozenset({"chem"})), Partition("debug"))
    assert counts_allowed(job(1, reqs=(4,)), read(1, partition="gpu,debug"), either) == (4,)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=4),
    st.integers(0, 6),
)
def test_the_order_of_jobs_changes_nothing_and_no_row_gives_more_than_is_left(
    asking: list[tuple[str, int]], using: list[tuple[str, int]], most: int
) -> None:
    site = rules(Qos("small", per_user={Kind.GPUS: most}))
    jobs = [job(at, user, (gpus,)) for at, (user, gpus) in enumerate(asking)]
    others = tuple(
        Holder(JobId(str(100 + at)), UserName(user), "lab", "small", "gpu", gpus, gpus)
        for at, (user, gpus) in enumerate(using)
    )
    found = rows(site, jobs, others)
    assert rows(site, jobs[::-1], others[::-1]) == [
        replace(row, name=again.name)
        for row, again in zip(found, rows(site, jobs[::-1], others[::-1]), strict=True)
    ]
    for user in "abc":
        mine = [j for j in jobs if j.user == user]
        left = max(0, most - sum(gpus for name, gpus in using if name == user))
        given = [row for row in found if mine and mine[0].id in row.jobs]
        if sum(max(j.reqs) for j in mine) > left:
            assert [(row.jobs, row.gpus) for row in given] == [
                (frozenset(j.id for j in mine), left)
            ]
        else:
            assert given == []
