"""The users' table has every option of this release's sbatch; hops keeps those it does not need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from submit_live import job_fields, queue, sbatch

from examples.demo.cluster import PrivateCluster

pytestmark = pytest.mark.live

USERS = Path(__file__).parents[2] / "docs" / "users.md"

KEPT_OPTIONS = """
    --acctg-freq=30 --bb=x --cluster-constraint=x --container=/x --cpu-freq=low --delay-boot=5
    --deadline=2098-01-01 --distribution=cyclic --error=/dev/null --export=HOME --gpu-freq=low
    --input=/dev/null --job-name=x --kill-on-invalid-dep=yes --mail-type=END --mail-user=x
    --mcs-label=x --mem-bind=local --network=x --nice=10 --no-kill --ntasks-per-core=1
    --oom-kill-step=1 --open-mode=append --overcommit --profile=none --propagate=NONE --stepmgr
    --time=9 --time-min=5 --wait-all-nodes=1 --wckey=x
"""
FIELDS = (
    *("BurstBuffer", "ClusterFeatures", "Container", "CPU_max_freq", "Deadline", "DelayBoot"),
    *("JobName", "KillOInInvalidDependent", "MailType", "MailUser", "MCS_label", "Network"),
    *("Nice", "NtasksPerN:B:S:C", "StdErr", "StdIn", "TimeLimit", "TimeMin", "TresFreq"),
)
"""The fields of ``scontrol show job`` that these options set."""


def options_of(cluster: PrivateCluster) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]+", cluster.run("sbatch", "--help")))


def test_the_users_table_has_every_option(cluster: PrivateCluster) -> None:
    section = USERS.read_text().partition("## What hops does with your other options")[2]
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert "--gres" in options_of(cluster)
    assert options_of(cluster) - set(re.findall(r"--[a-z][a-z-]+", table)) == set()


def test_options_that_hops_does_not_need_are_kept(cluster: PrivateCluster) -> None:
    known_options = options_of(cluster)
    kept_options = [
        option for option in KEPT_OPTIONS.split() if option.partition("=")[0] in known_options
    ]

    def fields_of_job(*options: str) -> dict[str, str]:
        is_accepted, messages = sbatch(cluster, "--gpus-per-node=1", *options)
        assert is_accepted, messages
        assert "ignored" not in messages
        return job_fields(cluster, max(queue(cluster), key=int))

    plain, ours = (
        fields_of_job(*kept_options),
        fields_of_job(*kept_options, "--comment=hops:reqs=1"),
    )
    known_fields = [name for name in FIELDS if name in plain]
    assert len(known_fields) >= len(FIELDS) - 4  # some exist only in newer releases
    assert {name: ours.get(name) for name in known_fields} == {
        name: plain[name] for name in known_fields
    }
