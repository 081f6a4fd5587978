"""Answers of every supported release become the same readings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hopsd.errors import SlurmError
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import USER_HOLD_BEGIN, Hold, SlurmState
from hopsd.model.script_options import ScriptOptions
from hopsd.slurm import parse
from hopsd.slurm.parse import (
    glance_readings,
    gpus_in,
    is_hops_job,
    isolated_reading,
    job_reading,
    known_jobs,
    node_readings,
    records,
    slurm_state,
)
from hopsd.slurm.site import reserved_from, reserved_until

NONE_KNOWN = known_jobs([])
ORDER = {NodeName(name): index for index, name in enumerate(["n2", "n10", "n1"])}

OLD: dict[str, Any] = {
    "job_id": 7,
    "user_name": "alice",
    "user_id": 1000,
    "name": "train",
    "comment": "hops:reqs=2",
    "partition": "main",
    "job_state": "RUNNING",
    "priority": 17,
    "submit_time": 1000,
    "eligible_time": 1000,
    "start_time": 1010,
    "end_time": 0,
    "time_limit": 90,
    "deadline": 9000,
    "restart_cnt": 2,
    "requeue": True,
    "exit_code": 0,
    "dependency": "",
    "nodes": "n[1-2,10]",
    "gres_detail": ["gpu:a100:4(IDX:0-2,7)", "gpu:a100:1(IDX:5)", "gpu:a100:2(IDX:0-1)"],
    "tres_per_job": "gres:gpu:7",
    "required_nodes": "n[1-2,10]",
    "array_job_id": 0,
    "het_job_id": 0,
}


def plain(number: float) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


NEW = {
    **OLD,
    "job_state": ["RUNNING"],
    **{
        key: plain(OLD[key])
        for key in ("priority", "submit_time", "eligible_time", "start_time", "end_time")
    },
    "time_limit": plain(90),
    "deadline": plain(9000),
    "array_job_id": plain(0),
    "het_job_id": plain(0),
    "exit_code": {
        "status": ["SUCCESS"],
        "return_code": plain(0),
        "signal": {"id": {"set": False, "infinite": False, "number": 0}, "name": ""},
    },
    "tres_per_job": "gres/gpu:7",
}


@pytest.mark.parametrize("job", [OLD, NEW], ids=["22.05", "24.11"])
def test_a_running_job_is_parsed(job: dict[str, Any]) -> None:
    read = job_reading(job, ORDER, NONE_KNOWN)
    assert read.state is SlurmState.RUNNING
    assert read.allocation.as_dict() == {"n1": 2, "n10": 1, "n2": 4}
    assert read.gpu_indices == {"n2": (0, 1, 2, 7), "n10": (5,), "n1": (0, 1)}
    assert (read.time_limit_seconds, read.submit, read.start) == (5400, 1000, 1010)
    assert read.deadline == 9000
    assert (read.restarts, read.requeue, read.per_job_gpus) == (2, True, True)


def test_the_total_requested_by_the_submit_plugin_does_not_limit_placements() -> None:
    pending_record = {**OLD, "job_state": "PENDING", "required_nodes": "", "nodes": ""}
    assert not job_reading(pending_record, ORDER, NONE_KNOWN).per_job_gpus


def test_a_job_placed_in_one_of_its_partitions_still_requests_all() -> None:
    def partition(now: str, state: str = "PENDING") -> str:
        comment = "hops:reqs=1 #hops-partitions=short,main>main"
        job = {**OLD, "job_state": state, "comment": comment, "partition": now}
        return job_reading(job, ORDER, NONE_KNOWN).partition

    assert partition("main") == "short,main"
    assert partition("main", "RUNNING") == "main"
    assert partition("other") == "other"  # the owner has changed it since


def test_a_job_placed_with_a_shorter_time_limit_still_requests_its_own() -> None:
    def limit(minutes: int, comment: str, state: str = "PENDING") -> float | None:
        job = {**OLD, "job_state": state, "comment": comment, "time_limit": minutes}
        return job_reading(job, ORDER, NONE_KNOWN).time_limit_seconds

    comment = "hops:reqs=1 #hops-time=120>45"
    assert limit(45, comment) == 7200
    assert limit(45, comment, "RUNNING") == 2700
    assert limit(60, comment) == 3600  # the owner has changed it since
    assert limit(45, "hops:reqs=1 #hops-time=0>45") is None
    assert limit(45, "hops:reqs=1 #hops-time=many>45") == 2700


@pytest.mark.parametrize(
    ("exit_code", "code_and_signal"),
    [
        (85 << 8, (85, 0)),
        (10, (0, 10)),
        ({"return_code": plain(85), "signal": {"id": plain(0)}}, (85, 0)),
        ({"return_code": plain(0), "signal": {"id": plain(10), "name": "SIGUSR1"}}, (0, 10)),
        ({"return_code": plain(0), "signal": {"signal_id": 9}}, (0, 9)),
    ],
)
def test_exit_codes_are_parsed(exit_code: object, code_and_signal: tuple[int, int]) -> None:
    read = job_reading({**OLD, "job_state": "FAILED", "exit_code": exit_code}, ORDER, NONE_KNOWN)
    assert (read.exit_code, read.exit_signal) == code_and_signal


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["PENDING"], SlurmState.PENDING),
        (["SPECIAL_EXIT"], SlurmState.PENDING),
        (["PENDING", "SPECIAL_EXIT"], SlurmState.PENDING),
        (["COMPLETED", "COMPLETING"], SlurmState.COMPLETING),
        (["PENDING", "COMPLETING"], SlurmState.COMPLETING),
        (["RUNNING", "CONFIGURING"], SlurmState.RUNNING),
        (["COMPLETED", "REQUEUED"], SlurmState.PENDING),
        (["OUT_OF_MEMORY"], SlurmState.FAILED),
        (["DEADLINE"], SlurmState.TIMEOUT),
        (["NODE_FAIL"], SlurmState.NODE_FAIL),
        (["A_STATE_TO_COME"], SlurmState.OTHER),
        ([], SlurmState.OTHER),
    ],
)
def test_states_are_parsed(words: list[str], state: SlurmState) -> None:
    assert slurm_state(tuple(words)) is state


@pytest.mark.parametrize(
    ("changes", "hold", "begin"),
    [
        ({"priority": 0}, Hold.HOPS, 0.0),
        ({"priority": 5}, Hold.NONE, 0.0),
        ({"priority": 0, "eligible_time": USER_HOLD_BEGIN}, Hold.USER, USER_HOLD_BEGIN),
        ({"priority": 0, "eligible_time": 1121}, Hold.HOPS, 0.0),
        ({"priority": 0, "eligible_time": 1121, "restart_cnt": 0}, Hold.HOPS, 1121.0),
        ({"priority": 0, "eligible_time": 5000}, Hold.HOPS, 5000.0),
    ],
)
def test_holds_and_begin_times_are_parsed(
    changes: dict[str, Any], hold: Hold, begin: float
) -> None:
    """The two minutes after the requeue of a restarted job are set by Slurm, not by its owner."""
    read = job_reading({**OLD, "job_state": "PENDING", "nodes": "", **changes}, ORDER, NONE_KNOWN)
    assert (read.hold, read.begin) == (hold, begin)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:rtx3090:8(S:0-1)", [("rtx3090", 8, ())]),
        ("gpu:4", [("gpu", 4, ())]),
        ("gpu:a:2(IDX:0,3),gpu:b:1(IDX:5)", [("a", 2, (0, 3)), ("b", 1, (5,))]),
        ("shard:8,gpu:a:1", [("a", 1, ())]),
        ("gres/gpu:a=2", [("a", 2, ())]),
        ("gpu:a:2(CNT:2)", [("a", 2, ())]),
        ("mygpu:a:2", []),
        ("(null)", []),
        ("", []),
    ],
)
def test_gres_are_parsed(text: str, gpus: list[tuple[str, int, tuple[int, ...]]]) -> None:
    assert gpus_in(text) == gpus


def test_heterogeneous_jobs_are_ignored() -> None:
    assert is_hops_job(OLD)
    assert is_hops_job(NEW)
    assert not is_hops_job({**NEW, "het_job_id": plain(7)})
    assert not is_hops_job({**OLD, "comment": "see xhops:reqs=2"})


def test_a_job_whose_options_crash_the_parser_is_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raise_error(_: str) -> None:
        raise ValueError("planted")

    waits = {**OLD, "job_state": "PENDING", "priority": 0, "nodes": "", "gres_detail": []}
    for job in (OLD, waits):
        sound = isolated_reading(job, ORDER, NONE_KNOWN)
        assert sound == job_reading(job, ORDER, NONE_KNOWN)
        with monkeypatch.context() as context:
            context.setattr(
                parse,
                "read_script_options",
                lambda text: raise_error(text) if text else ScriptOptions(),
            )
            read = isolated_reading({**job, "admin_comment": "hops:asks|x"}, ORDER, NONE_KNOWN)
        assert read.allocation == sound.allocation
        assert (read.id, read.uid, read.state, read.hold) == (
            sound.id, sound.uid, sound.state, sound.hold,
        )  # fmt: skip
        assert "ValueError: planted" in read.bar


def test_an_answer_without_ids_is_an_error() -> None:
    with pytest.raises(SlurmError, match="job_id"):
        job_reading({"name": "x"}, ORDER, NONE_KNOWN)


def test_nodes_are_parsed() -> None:
    text = "\n".join(
        f"NodeName={name} CPUTot=64 {gres} State={state} Partitions=main,big {extra_fields}"
        for name, gres, state, extra_fields in [
            ("n2", "Gres=gpu:a100:4(S:0)", "IDLE", ""),
            ("n10", "Gres=gpu:a100:4", "MIXED+DRAIN", "Reason=State=IDLE"),
            ("cpu1", "Gres=(null)", "IDLE", ""),
            ("n3", "Gres=gpu:a100:4", "IDLE*", ""),
            ("n4", "Gres=gpu:a100:2,gpu:v100:2", "IDLE", ""),
            ("n5", "Gres=gpu:a100:4", "ALLOCATED+PLANNED", ""),
            ("n6", "Gres=gpu:a100:4", "IDLE+RESERVED", ""),
            ("cpu2", "Gres=gpu:cpu:2", "IDLE", "CPUEfctv=62 ThreadsPerCore=2"),
        ]
    )
    nodes, names = node_readings(records(text), [])
    assert names == ["n2", "n10", "cpu1", "n3", "n4", "n5", "n6", "cpu2"]
    usable = ["n2", "n4/a100", "n4/v100", "n5", "n6", "cpu2"]
    assert [n.name for n in nodes if n.usable] == usable
    assert [n.name for n in nodes if n.reservation] == ["n6"]
    assert {n.name for n in nodes} == {*usable, "n10", "n3"}
    cores = {n.name: n.cores for n in nodes}
    assert cores == dict.fromkeys(cores, 64) | {"n4/a100": 32, "n4/v100": 32, "cpu2": 62}
    assert [n.threads for n in nodes] == [1] * 7 + [2]
    assert (nodes[-1].gpu_type, nodes[-1].gpus) == ("cpu", 2)
    assert node_readings(records(text), ["other"])[0] == []
    assert len(node_readings(records(text), ["big"])[0]) == 8


def test_the_next_reservation_of_each_node_is_parsed() -> None:
    line = "ReservationName={} StartTime={} EndTime=2030-01-01T00:00:00 Nodes={} Flags=MAINT"
    text = "\n".join(
        [
            line.format("begun", "2026-01-01T00:00:00", "n0"),
            line.format("next", "2026-03-01T08:00:00", "n[0-1]"),
            line.format("later", "2026-04-01T08:00:00", "n1,n2"),
            line.format("licences", "2026-03-01T08:00:00", "(null)"),
        ]
    )
    midnight = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
    march, april = (datetime(2026, month, 1, 8).astimezone().timestamp() for month in (3, 4))
    assert reserved_from(records(text), midnight) == {"n0": march, "n1": march, "n2": april}
    assert reserved_from(records("No reservations in the system\n"), midnight) == {}
    end = datetime(2030, 1, 1).astimezone().timestamp()
    assert reserved_until(records(text), midnight) == {"n0": end, "n1": end, "n2": end}
    assert reserved_until(records(text), end) == {}
    with pytest.raises(SlurmError, match="'soon' is not a time"):
        reserved_from(records(line.format("odd", "soon", "n0")), midnight)


def test_a_poll_is_parsed() -> None:
    text = """\
7|7|N/A|PENDING|4294901757|2|2026-11-23T10:00:00|2026-11-23T10:00:00|Resources|
8|8|N/A|PENDING|0|0|2026-11-23T10:00:00|N/A|JobHeldUser|
19|17|4|RUNNING|17|0|2026-11-23T10:00:00|2026-11-23T10:00:00|None|
17|17|5-9,12|PENDING|0|0|2026-11-23T10:00:00|N/A|JobHeldUser|
9|9|N/A|PENDING|17|0|2026-11-23T10:00:00|2026-11-23T10:00:00|Nodes required for job are DOWN, or|
10|10|N/A|COMPLETING|0|0|2026-11-23T10:00:00|2026-11-23T10:00:00|NonZeroExitCode|
"""
    states_by_job = glance_readings(text, [JobId(job) for job in ("7", "8", "9", "17_4", "11")])
    assert states_by_job.keys() == {"7", "8", "17_4"}
    assert {job.hold for job in states_by_job.values()} == {Hold.NONE, Hold.HOPS}
    job = states_by_job[JobId("7")]
    assert (job.state, job.reason, job.hold) == (SlurmState.PENDING, "Resources", Hold.NONE)
    assert (job.restarts, job.begin) == (2, 0.0)
    assert states_by_job[JobId("8")].hold is Hold.HOPS
    assert states_by_job[JobId("17_4")].state is SlurmState.RUNNING


def test_a_failed_launch_is_parsed() -> None:
    held_record = OLD | {"job_state": "PENDING", "priority": 0, "nodes": "", "gres_detail": []}
    for description, has_failed in [
        ("launch failed requeued held", True),
        ("", False),
        (None, False),
    ]:
        reading = job_reading(held_record | {"state_description": description}, ORDER, NONE_KNOWN)
        assert reading.launch_failed is has_failed


LEFT_BY_REQUEUEHOLD = {
    **OLD,
    "job_state": "PENDING",
    "nodes": "",
    "priority": 0,
    "state_reason": "JobHeldUser",
    "restart_cnt": 1,
    "submit_time": 1000,
    "eligible_time": 1120,
}
"""Slurm sets the begin time of a job that it requeues two minutes ahead."""


@pytest.mark.parametrize(
    ("changes", "requeued_held"),
    [
        ({}, True),
        ({"eligible_time": 1119}, True),
        ({"eligible_time": 1126}, False),
        ({"eligible_time": 1000}, False),
        ({"state_reason": "JobHeldAdmin"}, False),
        ({"priority": 5}, False),
        ({"restart_cnt": 0}, False),
        ({"job_state": "RUNNING"}, False),
        ({"job_state": "SPECIAL_EXIT"}, False),
    ],
)
def test_a_job_after_scontrol_requeuehold_is_held_by_a_person(
    changes: dict[str, Any], requeued_held: bool
) -> None:
    reading = job_reading({**LEFT_BY_REQUEUEHOLD, **changes}, ORDER, NONE_KNOWN)
    assert reading.requeued_held is requeued_held
