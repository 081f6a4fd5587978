"""Administrators' settings for jobs: default memory and cores, licences, groups, allocations."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime

import pytest
from canned import CannedCommands

from hopsd.model.ids import UserName
from hopsd.model.reading import SiteMemory
from hopsd.model.site import Association, Licence, ResourceKind, SiteRules
from hopsd.slurm.parse import licences as licences_of
from hopsd.slurm.parse import records, tres
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.site import (
    account_and_above,
    closed_groups,
    groups_of,
    licences,
    magnetic_now,
    partition_groups,
    partition_memory,
    site_memory,
)

CONFIG = """JobDefaults             = DefCpuPerGPU=4,DefMemPerGPU=1000
DefMemPerNode           = UNLIMITED
SelectTypeParameters    = CR_CORE_MEMORY
MaxMemPerNode           = 14000
"""
PARTITIONS = """PartitionName=main AllowGroups=ALL DefMemPerNode=UNLIMITED JobDefaults=(null)
PartitionName=big AllowGroups=lab,chem DefMemPerCPU=900 JobDefaults=DefMemPerGPU=5000 MaxMemPerCPU=1
PartitionName=small AllowGroups=ALL DefMemPerNode=300 JobDefaults=DefCpuPerGPU=2 MaxMemPerNode=900
"""


def test_a_partitions_own_defaults_override_the_sites() -> None:
    site = site_memory(CONFIG)
    assert site == SiteMemory(
        counted=True, mb_per_gpu=1000, cores_per_gpu=4, most_mb_per_node=14000
    )
    assert partition_memory(records(PARTITIONS), site) == {
        "big": SiteMemory(True, mb_per_gpu=5000, mb_per_cpu=900, cores_per_gpu=4),
        "small": SiteMemory(
            True, mb_per_gpu=1000, mb_per_node=300, cores_per_gpu=2, most_mb_per_node=900
        ),
    }


RESERVATION = (
    "ReservationName={} StartTime=2026-01-01T{}:00:00 EndTime=2026-01-02T00:00:00 Nodes=n0"
    " Flags=SPEC_NODES,{} Users={} Groups={} Accounts={} Licenses=(null) State=ACTIVE"
)


@pytest.mark.parametrize(
    ("users", "groups", "accounts", "is_open"),
    [
        ("(null)", "(null)", "lab", True),
        ("(null)", "(null)", "phys,chem", True),
        ("(null)", "(null)", "chem", False),
        ("(null)", "(null)", "-lab", False),
        ("(null)", "(null)", "-chem", True),
        ("bob,carol", "(null)", "(null)", True),
        ("bob", "(null)", "lab", False),
        ("-carol", "(null)", "(null)", False),
        ("(null)", "staff", "(null)", True),
        ("(null)", "wheel", "(null)", False),
    ],
)
def test_a_magnetic_reservation_admits_whom_slurm_would(
    users: str, groups: str, accounts: str, *, is_open: bool
) -> None:
    """Carol's account is phys, which is below lab."""
    now = datetime.fromisoformat("2026-01-01T12:00:00").astimezone().timestamp()
    lines = [
        RESERVATION.format("course", 10, "MAGNETIC", users, groups, accounts),
        RESERVATION.format("later", 13, "MAGNETIC", users, groups, accounts),
        RESERVATION.format("named", 10, "FLEX", users, groups, accounts),
    ]
    (reservation,) = magnetic_now(records("\n".join(lines)), now)
    assert reservation.name == "course"
    links = [Association("phys", UserName(""), parent="lab"), Association("lab", UserName(""))]
    rules = SiteRules(associations={(link.account, UserName(""), ""): link for link in links})
    accounts_above = account_and_above("phys", rules)
    assert accounts_above == ["phys", "lab"]
    assert reservation.admits("carol", accounts_above, lambda: frozenset({"staff"})) is is_open


def test_partitions_for_groups_are_closed_to_others() -> None:
    groups_by_partition = partition_groups(records(PARTITIONS))
    assert groups_by_partition == {"big": {"lab", "chem"}}
    reason = closed_groups("big", groups_by_partition, lambda: frozenset({"phys"}))
    assert reason == "partition big is for the groups chem, lab"
    assert closed_groups("big", groups_by_partition, lambda: frozenset({"lab"})) == ""
    assert closed_groups("big,main", groups_by_partition, frozenset) == ""
    assert "root" in groups_of("root")
    assert groups_of("nobody that is here") == set()


class GroupSite(CannedCommands):
    """A partition for a group, and a job in it."""

    def run(self, *arguments: str) -> str:
        if "partition" in arguments:
            return "PartitionName=main AllowGroups=lab State=UP"
        return super().run(*arguments)


def test_a_hanging_account_server_delays_no_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: each reading asked for the groups of each user, and waited while LDAP hung."""
    commands, answers = GroupSite(), threading.Event()
    fields = {
        "comment": "hops:reqs=1;workload=w",
        "job_state": "PENDING",
        "partition": "main",
        "user_id": 9,
    }
    jobs = [{"job_id": n, "user_name": f"user{n}", **fields} for n in range(1, 20)]
    object.__setattr__(commands, "jobs", json.dumps({"jobs": jobs}))

    def look_up(_user: str) -> frozenset[str]:
        answers.wait(60.0)
        return frozenset({"phys"})

    monkeypatch.setattr("hopsd.slurm.scontrol.groups_of", look_up)
    adapter = ScontrolAdapter(commands)
    start = time.monotonic()
    assert {job.bar for job in adapter.read().jobs} == {""}
    assert {job.bar for job in adapter.read().jobs} == {""}
    assert time.monotonic() - start < 10.0
    answers.set()
    while not all(job.bar for job in adapter.read().jobs):
        assert time.monotonic() - start < 30.0
    assert {job.bar for job in adapter.read().jobs} == {"partition main is for the groups lab"}


def test_licences_of_the_site_and_of_jobs_are_read() -> None:
    text = "LicenseName=matlab Total=10 Used=3 Free=7 Remote=no\nNo licenses\n"
    assert licences(records(text)) == {"matlab": Licence(10, 3)}
    assert licences_of("matlab:2,ansys") == {"matlab": 2, "ansys": 1}
    assert licences_of("a|b") == licences_of("") == {}


def test_resources_held_by_a_job_are_read_by_kind() -> None:
    usage = tres("cpu=4,mem=1.50G,node=1,billing=9,gres/gpu=2,gres/gpu:a100=2,license/x=1")
    assert usage == {
        ResourceKind.CPUS: 4,
        ResourceKind.MEMORY: 1536,
        ResourceKind.NODES: 1,
        ResourceKind.BILLING: 9,
        ResourceKind.GPUS: 2,
        "GPUs of type a100": 2,
    }
    assert tres("") == tres("cpu=x") == {}
