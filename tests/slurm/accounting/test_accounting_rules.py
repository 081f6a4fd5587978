"""The site's rules from Slurm's output; the texts are those of 22.05."""

from __future__ import annotations

from itertools import count

import pytest

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.site import Association, Partition, Qos, ResourceKind, kind_of_type
from hopsd.slurm.accounting.rules import (
    SiteRulesReader,
    read_associations,
    read_enforced,
    read_partitions,
    read_qos,
)
from hopsd.slurm.command import SlurmCommands

NO_LIMITS = "cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),gres/gpu=N(0)"
RUNNING = "cpu=N(4294967295),mem=N(0),node=N(4294967295),gres/gpu=N(8589934590)"
ASSOCIATIONS = f"""Current Association Manager state
Association Records
ClusterName=hops Account=phys UserName= Partition= Priority=0 ID=4 \
SharesRaw/Norm/Level/Factor=1/0.50/2/0.00 UsageRaw/Norm/Efctv=0.00/0.00/0.00 \
ParentAccount=lab(3) Lft=7 DefAssoc=No GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(3) \
GrpWall=N(0.00) GrpTRES=cpu=N(1),mem=N(0),node=N(1),gres/gpu=8(2),gres/gpu:a100=1(0) \
GrpTRESMins={NO_LIMITS} GrpTRESRunMins={RUNNING} MaxJobs=10(1) MaxJobsAccrue= MaxSubmitJobs= \
MaxWallPJ= MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= MinPrioThresh=
ClusterName=hops Account=phys UserName=news(9) Partition= Priority=0 ID=6 \
SharesRaw/Norm/Level/Factor=3/0.75/4/0.40 UsageRaw/Norm/Efctv=0.00/0.00/0.00 ParentAccount= \
Lft=8 DefAssoc=Yes GrpJobs=N(0) GrpTRES=cpu=N(0),gres/gpu=1(0) \
GrpTRESMins=cpu=N(0),gres/gpu=50(7) GrpTRESRunMins=cpu=N(0),gres/gpu=N(3) MaxJobs=10(0) \
MaxWallPJ=60 MaxTRESPJ=gres/gpu=3 MaxTRESPN=gres/gpu=2 MaxTRESMinsPJ= MinPrioThresh=
"""
QOS = f"""QOS Records
QOS=normal(1) UsageRaw=0.000000 GrpJobs=N(0) GrpTRES={NO_LIMITS} GrpTRESMins={NO_LIMITS} \
GrpTRESRunMins={NO_LIMITS} MaxWallPJ= MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= MinPrioThresh=  \
MinTRESPJ= PreemptMode=OFF Priority=0 Account Limits=No Accounts User Limits=No Users
QOS=big(2) UsageRaw=0.000000 GrpJobs=5(0) GrpWall=500(12.50) GrpTRES=cpu=20(0),gres/gpu=6(0) \
GrpTRESMins=gres/gpu=1000(40) GrpTRESRunMins=gres/gpu=900(2) MaxWallPJ=600 \
MaxTRESPJ=gres/gpu=4 MaxTRESPN=mem=4096,gres/gpu=2 MaxTRESMinsPJ=gres/gpu=333 MinPrioThresh=  \
MinTRESPJ=gres/gpu=1 PreemptMode=OFF Priority=100 \
Account Limits= phys={{MaxJobsPA=N(0) MaxSubmitJobsPA=N(1) MaxTRESPA=cpu=N(0),gres/gpu=5(0)}} \
User Limits= 9={{MaxJobsPU=3(0) MaxTRESPU=cpu=N(0),gres/gpu=N(0)}} \
12={{MaxJobsPU=3(1) MaxTRESPU=cpu=N(0),gres/gpu=N(0)}}
"""
PARTITIONS = """PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES \
QoS=N/A MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 State=UP Nodes=n[0-2]
PartitionName=debug AllowGroups=ALL DenyAccounts=phys,chem AllowQos=small,big QoS=debug \
MaxNodes=2 MaxTime=1-02:30:00 State=UP Nodes=n0 TRESBillingWeights=CPU=0.5,Mem=2G,GRES/gpu=4.0
"""
CONFIG = "AccountingStorageEnforce = associations,limits,qos,safe\nSlurmUser = root(0)\n"


def test_associations_have_limits_usage_and_shares() -> None:
    account, user = read_associations(ASSOCIATIONS)
    assert account == Association(
        "phys",
        UserName(""),
        parent="lab",
        group={ResourceKind.GPUS: 8, kind_of_type("a100"): 1},
        jobs=10,
        share=0.0,
    )
    assert user == Association(
        account="phys",
        user=UserName("news"),
        parent="phys",
        group={ResourceKind.GPUS: 1, ResourceKind.GPU_MINUTES: 50},
        usage={ResourceKind.GPU_MINUTES: 7},
        per_job={ResourceKind.GPUS: 3},
        per_node={ResourceKind.GPUS: 2},
        seconds=3600.0,
        jobs=10,
        share=0.4,
    )


def test_qos_have_limits_per_user_and_account() -> None:
    assert read_qos(QOS) == [
        Qos("normal"),
        Qos(
            name="big",
            group={
                ResourceKind.CPUS: 20,
                ResourceKind.GPUS: 6,
                ResourceKind.JOBS: 5,
                ResourceKind.GPU_MINUTES: 1000,
                ResourceKind.RUNNING_GPU_MINUTES: 900,
                ResourceKind.WALL_MINUTES: 500,
            },
            usage={ResourceKind.GPU_MINUTES: 40, ResourceKind.WALL_MINUTES: 12},
            per_user={ResourceKind.JOBS: 3},
            per_account={ResourceKind.GPUS: 5},
            per_job={ResourceKind.GPUS: 4, ResourceKind.GPU_MINUTES: 333},
            per_node={ResourceKind.GPUS: 2, ResourceKind.MEMORY: 4096},
            least={ResourceKind.GPUS: 1},
            seconds=36000.0,
            priority=100,
        ),
    ]


def test_partitions_have_allowed_users_and_a_time_limit() -> None:
    assert read_partitions(PARTITIONS) == [
        Partition("main"),
        Partition(
            "debug",
            denied_accounts=frozenset({"phys", "chem"}),
            qos=frozenset({"small", "big"}),
            own_qos="debug",
            seconds=95400.0,
            nodes=2,
            billing={ResourceKind.CPUS: 0.5, ResourceKind.MEMORY: 2 / 1024, ResourceKind.GPUS: 4.0},
        ),
    ]


@pytest.mark.parametrize(
    ("value", "limits"),
    [("none", False), ("associations", False), ("associations,limits", True), ("safe", True)],
)
def test_limits_apply_where_slurm_enforces_them(value: str, limits: bool) -> None:
    assert ("limits" in read_enforced(f"AccountingStorageEnforce = {value}\n")) is limits


class QueryService(SlurmCommands):
    """Returns prepared outputs, and counts the queries."""

    def __init__(self, **outputs: str | Exception) -> None:
        super().__init__()
        object.__setattr__(self, "said", outputs)
        object.__setattr__(self, "asked", [])

    def run(self, *arguments: str) -> str:
        self.asked.append(arguments)  # type: ignore[attr-defined]
        answer = self.said[arguments[2] if arguments[0] == "scontrol" else "sacctmgr"]  # type: ignore[attr-defined]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, str)
        return answer


def test_rules_are_read_occasionally_and_from_slurmdbd_only_if_needed() -> None:
    times = iter([0.0, 1.0, 20.9, 21.0, 22.0, 42.0, 43.0, 63.0])
    queries = QueryService(
        partition=PARTITIONS,
        config=CONFIG,
        assoc_mgr=ASSOCIATIONS + QOS,
        sacctmgr="big|OverPartQOS\n",
    )
    reader = SiteRulesReader(queries, share=0.05, clock=lambda: next(times))
    rules = reader.read()
    assert (rules.has_limits, rules.safe, rules.qos["big"].over_partition) == (True, True, True)
    assert not rules.qos["normal"].over_partition
    query_count = len(queries.asked)  # type: ignore[attr-defined]
    assert reader.read() is rules
    queries.said["sacctmgr"] = SlurmUnavailableError("slurmdbd is away")  # type: ignore[attr-defined]
    assert reader.read().qos["big"].over_partition  # as last known
    assert len(queries.asked) == 2 * query_count  # type: ignore[attr-defined]
    queries.said["assoc_mgr"] = SlurmError("no such entity")  # type: ignore[attr-defined]
    assert reader.read().qos.keys() == {"normal", "big"}
    queries.said["partition"] = SlurmUnavailableError("slurmctld is away")  # type: ignore[attr-defined]
    with pytest.raises(SlurmUnavailableError):
        reader.read()


def test_rules_are_read_again_when_a_user_has_a_first_job_in_a_qos() -> None:
    """Slurm 22.05 shows a QOS' limits by user only for users with jobs in it."""
    queries = QueryService(partition=PARTITIONS, config=CONFIG, assoc_mgr=ASSOCIATIONS, sacctmgr="")
    reader = SiteRulesReader(queries, share=0.05, clock=map(float, count()).__next__)

    def count_queries(*users: str, partition: str = "main") -> int:
        old_count = len(queries.asked)  # type: ignore[attr-defined]
        reader.read([job_in(user, partition) for user in users])
        return len(queries.asked) - old_count  # type: ignore[attr-defined]

    assert count_queries("alice") > 0
    assert (count_queries("alice"), count_queries()) == (0, 0)
    assert count_queries("alice", "bob") > 0
    assert (count_queries("bob"), count_queries("alice")) == (0, 0), "who comes back is known"
    assert count_queries("alice", partition="debug") > 0, "which may have a QOS of its own"


def test_a_first_job_counts_as_known_only_after_slurmctld_has_answered() -> None:
    queries = QueryService(partition=PARTITIONS, config=CONFIG, assoc_mgr=ASSOCIATIONS, sacctmgr="")
    reader = SiteRulesReader(queries, share=0.05, clock=map(float, count()).__next__)
    reader.read([job_in("alice")])
    queries.said["partition"] = SlurmUnavailableError("no answer")  # type: ignore[attr-defined]
    with pytest.raises(SlurmUnavailableError):
        reader.read([job_in("bob")])
    queries.said["partition"] = PARTITIONS  # type: ignore[attr-defined]
    old_count = len(queries.asked)  # type: ignore[attr-defined]
    reader.read([job_in("bob")])
    assert len(queries.asked) > old_count  # type: ignore[attr-defined]


def job_in(user: str, partition: str = "main") -> JobReading:
    return JobReading(
        JobId("1"), UserName(user), 1, "", "hops:reqs=1", state=SlurmState.PENDING,
        submit=0.0, account="lab", qos="small", partition=partition,
    )  # fmt: skip


def test_a_site_without_accounting_has_only_its_partitions() -> None:
    queries = QueryService(partition=PARTITIONS, config="AccountingStorageEnforce = none\n")
    rules = SiteRulesReader(queries).read()
    assert (rules.has_limits, set(rules.partitions), rules.qos) == (False, {"main", "debug"}, {})
