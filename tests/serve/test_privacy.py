"""PrivateData: no answer tells users about others; operators see everything."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from memory_store import MemoryStore

from hopsd.config import load
from hopsd.errors import ConfigError, SlurmUnavailableError
from hopsd.learning.learnt import known_workloads
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.knowledge import Knowledge, ThroughputRecord
from hopsd.model.privacy import UNKNOWN, Privacy, Private, Viewer
from hopsd.model.reading import SlurmState
from hopsd.serve.privacy import history_for, knowledge_for, status_for, throughput_for, viewer
from hopsd.slurm.ask import KEEP_SECONDS, PrivacyReader
from hopsd.slurm.command import SlurmCommands

ANN, BOB, HOPS, OPERATOR = 1001, 1002, 990, 1003
SECRET = "secret-of-bob"  # noqa: S105 - what a test looks for


def row(number: int, uid: int, text: str) -> dict[str, Any]:
    return {"id": str(number), "uid": uid, "user": text, "name": text, "reason": text}


def document() -> dict[str, Any]:
    return {
        "mode": "active",
        "sentence": f"first plan, job 99 {SECRET}",
        "error": f"job 99 of {SECRET}",
        "raqlr": 1.5,
        "running": [row(7, ANN, "ann"), row(99, BOB, SECRET)],
        "waiting": [row(98, BOB, SECRET), row(8, ANN, "ann")],
        "nodes": [{"name": "n0", "idle": 0, "jobs": {"7": 2, "99": 6}}],
        "round": {
            "start": 0.0,
            "window": ["99", "8"],
            "adjusted": ["98"],
            "steps": [{"job": "99", "error": SECRET}, {"job": "7", "error": ""}],
        },
    }


def ann(*private: Private) -> Viewer:
    return Viewer(ANN, "ann", frozenset(private))


def test_a_site_without_private_data_shows_everything() -> None:
    assert status_for(ann(), document()) == {**document(), "private": []}


def test_the_document_omits_others_jobs() -> None:
    status = status_for(ann(Private.JOBS), document())
    assert [job["id"] for job in status["running"] + status["waiting"]] == ["7", "8"]
    assert status["nodes"][0]["jobs"] == {"7": 2}
    assert status["private"] == ["jobs"]
    words = json.dumps(status)
    for word in (SECRET, "99", "98"):
        assert word not in words
    assert status["error"]  # that something is wrong is not secret


def test_a_reason_omits_others_jobs() -> None:
    text = (
        "QOS a: 6 of 8 GPUs in use by 99, 7, 98; 2 of 8 GPUs asked for by 97;"
        " 3 of 4 jobs running: 99, 98, 96, 95, 94 and 3 more; it asks for 4 or more"
    )
    doc = document()
    doc["waiting"][1]["reason"] = text
    [row] = status_for(ann(Private.JOBS), doc)["waiting"]
    assert row["reason"] == (
        "QOS a: 6 of 8 GPUs in use by 7, others; 2 of 8 GPUs asked for by others;"
        " 3 of 4 jobs running: others; it asks for 4 or more"
    )
    assert status_for(ann(), doc)["waiting"][1]["reason"] == text
    history = {"record": {"user": "ann"}, "reasons": [{"reason": text}], "events": []}
    [row] = history_for(ann(Private.JOBS), history)["reasons"]
    assert not {"99", "98", "97", "7,"} & set(row["reason"].split())


@pytest.mark.parametrize(
    "use", ["4 GPUs in use outside hops by 99, 98_4", "running outside hops: 99, 98 and 3 more"]
)
def test_a_limit_omits_others_jobs_outside_hops(use: str) -> None:
    """The reason has the wording of hopsd/core/site/limits.py."""
    doc = document()
    doc["waiting"][1]["reason"] = f"QOS a (8 GPUs, {use}): 8 GPUs at most"
    [row] = status_for(ann(Private.JOBS), doc)["waiting"]
    assert row["reason"].endswith(" others): 8 GPUs at most")
    assert not {"99", "98", "98_4"} & set(re.findall("[0-9_]+", row["reason"]))


def test_an_event_omits_others_sessions() -> None:
    text = "hops stopped it on n0:2 to make room for session 99; it waits for its next turn"
    history: dict[str, Any] = {"record": {"user": "ann"}, "reasons": [], "events": [{"text": text}]}
    assert history_for(ann(), history) == history
    [row] = history_for(ann(Private.JOBS), history)["events"]
    assert row["text"] == text.replace("99", "others")


def test_nodes_and_usage_are_hidden_separately() -> None:
    status = status_for(ann(Private.NODES), document())
    assert status["nodes"] == []
    assert len(status["running"]) == 2
    assert status_for(ann(Private.USAGE), document())["raqlr"] is None


@pytest.mark.parametrize(("uid", "user"), [(0, "root"), (HOPS, "hops"), (OPERATOR, "olga")])
def test_operators_see_everything(uid: int, user: str) -> None:
    privacy = Privacy(frozenset(Private), frozenset({0}), frozenset({"olga"}))
    operator = viewer(uid, user, HOPS, privacy, tuple(Private))
    assert status_for(operator, document())["running"] == document()["running"]


def test_the_configuration_can_hide_more() -> None:
    private_viewer = viewer(ANN, "ann", HOPS, Privacy(frozenset({Private.NODES})), (Private.JOBS,))
    assert private_viewer.secrets == {Private.NODES, Private.JOBS}


def test_a_jobs_history_is_for_its_owner() -> None:
    history = {
        "record": {"user": "bob"},
        "placements": [{"nodes": {"n0": 1}}],
        "reasons": [],
        "events": [],
    }
    assert history_for(Viewer(BOB, "bob", frozenset(Private)), history) == history
    assert history_for(ann(), history) == history
    assert history_for(ann(Private.JOBS), history) == {
        "record": None,
        "placements": [],
        "reasons": [],
        "events": [],
    }


def record(workload: str) -> ThroughputRecord:
    return ThroughputRecord(WorkloadName(workload), GpuType("a100"), NodeName("n0"), 1, 1, 9.0, 1.0)


def test_speeds_are_shown_for_ones_own_workloads() -> None:
    store = MemoryStore()
    store.save_jobs(
        [
            JobRecord(
                id=JobId("7"),
                user=UserName(user),
                name="x",
                comment="hops:reqs=1",
                workload=WorkloadName(workload),
                submit=time,
                seen=time,
                state=SlurmState.COMPLETED,
                end=time,
            )
            for user, workload, time in (("ann", "bert", 1.0), ("bob", SECRET, 2.0))
        ]
    )
    user_workloads = store.workloads_of(UserName("ann"))
    names = ("bert", SECRET, "ann/train/a.sh", f"bob/{SECRET}", "annie/x")
    knowledge = Knowledge(records=tuple(map(record, names)))
    knowledge_of_user = knowledge_for(ann(Private.JOBS), knowledge, user_workloads)
    assert [workload["workload"] for workload in known_workloads(knowledge_of_user)] == [
        "ann/train/a.sh",
        "bert",
    ]
    assert knowledge_for(ann(), knowledge, user_workloads) is knowledge


def test_private_nodes_are_omitted_from_speeds() -> None:
    answer = {"types": [{"shapes": [{"count": 1, "entity": {"n0": 1}}]}], "servers": [{"node": 1}]}
    reply = throughput_for(ann(Private.NODES), answer)
    assert reply == {"types": [{"shapes": [{"count": 1, "entity": {}}]}], "servers": []}


CONFIG = """\
AccountingStorageType   = accounting_storage/slurmdbd
PrivateData             = jobs,usage,users
SlurmUser               = slurm(64030)
"""


class CannedSlurm(SlurmCommands):
    """Slurm's commands with canned answers, None if Slurm does not answer."""

    answers: Mapping[str, str | None]
    calls = 0

    def run(self, *arguments: str) -> str:
        type(self).calls += 1
        answer = type(self).answers[arguments[0]]
        if answer is None:
            raise SlurmUnavailableError("away")
        return answer


@pytest.fixture
def canned_slurm(monkeypatch: pytest.MonkeyPatch) -> type[CannedSlurm]:
    users = "ann|None\nolga|Operator\nroot|Administrator\n"
    monkeypatch.setattr(
        CannedSlurm, "answers", {"scontrol": CONFIG, "sacctmgr": users}, raising=False
    )
    monkeypatch.setattr(CannedSlurm, "calls", 0)
    return CannedSlurm


def test_private_data_and_operators_come_from_slurm(canned_slurm: type[CannedSlurm]) -> None:
    assert PrivacyReader(canned_slurm()).read() == Privacy(
        frozenset({Private.JOBS, Private.USAGE}), frozenset({0, 64030}), frozenset({"olga", "root"})
    )


def test_slurm_is_asked_at_most_once_a_minute(canned_slurm: type[CannedSlurm]) -> None:
    now = [0.0]
    reader = PrivacyReader(canned_slurm(), lambda: now[0])
    for _ in range(1000):
        reader.read()
    assert canned_slurm.calls == 2
    now[0] += KEEP_SECONDS
    reader.read()
    assert canned_slurm.calls == 4


def test_the_last_answer_of_slurm_is_kept_and_without_one_all_is_hidden(
    canned_slurm: type[CannedSlurm],
) -> None:
    now = [0.0]
    answers = canned_slurm.answers
    canned_slurm.answers = {"scontrol": None, "sacctmgr": None}
    reader = PrivacyReader(canned_slurm(), lambda: now[0])
    assert reader.read() == UNKNOWN
    assert reader.read().secrets == frozenset(Private)
    canned_slurm.answers = {**answers, "sacctmgr": None}
    now[0] += KEEP_SECONDS
    assert reader.read().privileged_users == frozenset()
    canned_slurm.answers = answers
    now[0] += KEEP_SECONDS
    reader.read()
    canned_slurm.answers = {"scontrol": CONFIG, "sacctmgr": None}
    now[0] += KEEP_SECONDS
    assert reader.read().privileged_users == {"olga", "root"}


def test_the_setting_accepts_known_kinds_only(tmp_path: Path) -> None:
    path = tmp_path / "hopsd.toml"
    path.write_text('[daemon]\nprivate_data = ["jobs", "nodes"]\n')
    assert load(path).daemon.private_data == ("jobs", "nodes")
    path.write_text('[daemon]\nprivate_data = ["job"]\n')
    with pytest.raises(ConfigError, match="a list of any of jobs, nodes, usage"):
        load(path)
