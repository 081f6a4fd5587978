"""The judge of faults does not blame hops for what slurmctld forgot, according to its log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.chaos import judge
from bench.chaos.__main__ import Gaps, longest_gaps
from bench.chaos.slurm_log import SlurmLog
from bench.chaos.world import SubmittedJob, Wait
from hopsd.model.allocation import Allocation

JOB = SubmittedJob("t", "36", 30.0, "6", "broken", 9)
START = "slurmctld version 22.05.8 started on cluster hops"
END_LINES = ("_job_complete: JobId=36 WEXITSTATUS 0", "_job_complete: JobId=36 done")


def slurm_log(folder: Path, *lines: tuple[float, str]) -> SlurmLog:
    """slurmctld's log with these lines at their times."""
    path = folder / "slurmctld.log"
    log_lines = [
        f"[{datetime.fromtimestamp(time, UTC).astimezone():%Y-%m-%dT%H:%M:%S.%f}] {text}"
        for time, text in lines
    ]
    path.write_text("\n".join([*log_lines, "no line of its own"]))
    return SlurmLog.read(path)


def run(start: float, last: float, end: float | None = None) -> judge.Run:
    return judge.Run("t", "36", 0, start, last, ("n0",), {"n0": (0, 1)}, end)


@pytest.mark.parametrize(
    ("forgot", "is_explained"), [((138.0, 147.0), True), ((200.0, 210.0), False)]
)
def test_a_job_whose_requeue_slurmctld_forgot_is_not_counted_as_lost(
    forgot: tuple[float, float], is_explained: bool
) -> None:
    """slurmctld restored a state in which the checkpoint signal had killed the job."""
    world: Any = SimpleNamespace(forgot=[forgot])
    log = {"t": [("FAILED", 128.0), ("PENDING", 141.0)]}
    (finding,) = judge.never_ended(world, JOB, [run(121.0, 128.0)], log, SlurmLog())
    assert bool(finding.explanation) is is_explained


@pytest.mark.parametrize(
    ("later", "is_explained"),
    [
        ("_slurm_rpc_submit_batch_job: JobId=36 InitPrio=0", True),
        ("Recovered JobId=36 Assoc=0", False),
    ],
)
def test_a_job_that_a_restarted_slurmctld_omits_is_not_counted_as_lost(
    tmp_path: Path, later: str, is_explained: bool
) -> None:
    world: Any = SimpleNamespace(forgot=[(28.0, 33.0)])
    slurm = slurm_log(tmp_path, (33.0, START), (34.0, later))
    (finding,) = judge.never_ended(world, JOB, [], {}, slurm)
    assert bool(finding.explanation) is is_explained


@pytest.mark.parametrize(
    ("lines", "requeues", "reason"),
    [
        ([], [], "never learnt"),
        ([(50.1, END_LINES[0]), (50.1, "_job_complete: JobId=36 cancelled")], [], "never learnt"),
        ([(50.1, END_LINES[0]), (50.1, END_LINES[1])], [], ""),
        ([(50.1, END_LINES[0]), (50.1, END_LINES[1]), (55.0, START)], [], "lost its state"),
        ([(58.0, END_LINES[0]), (58.0, END_LINES[1])], [], ""),
        ([(50.1, END_LINES[0]), (50.1, END_LINES[1])], [("t", 45.0)], "its owner"),
    ],
)
def test_the_log_tells_whether_slurmctld_knew_that_a_job_had_ended(
    tmp_path: Path, lines: list[tuple[float, str]], requeues: list[tuple[str, float]], reason: str
) -> None:
    world: Any = SimpleNamespace(forgot=[(49.0, 55.0)], requeues=requeues)
    runs = [run(40.0, 50.0, end=50.0), run(60.0, 70.0, end=70.0)]
    (finding,) = judge.ran_again(world, JOB, runs, slurm_log(tmp_path, *lines))
    assert reason in finding.explanation
    assert bool(reason) is bool(finding.explanation)


@pytest.mark.parametrize(
    ("comments", "is_explained"),
    [
        (["hops:reqs=2 #hops-released"], True),
        (["hops:reqs=2 #hops-released", "hops:reqs=2"], False),
        ([], False),
    ],
)
def test_the_store_need_not_have_runs_of_plain_slurm(
    tmp_path: Path, comments: list[str], is_explained: bool
) -> None:
    world: Any = SimpleNamespace(forgot=[])
    job = SubmittedJob("t", "36", 30.0, "2", "plain", 9)
    lines = [
        (40.0 + number, f"_update_job: setting comment to {text} for JobId=36")
        for number, text in enumerate(comments)
    ]
    (finding,) = judge.counts(world, job, [run(50.0, 55.0)], {}, slurm_log(tmp_path, *lines))
    assert finding.kind == "not in the store"
    assert bool(finding.explanation) is is_explained


@pytest.mark.parametrize(("forgot", "is_explained"), [((41.0, 44.0), True), ((45.0, 48.0), False)])
def test_a_start_by_a_slurmctld_that_forgot_a_hold_is_not_blamed_on_hops(
    tmp_path: Path, forgot: tuple[float, float], is_explained: bool
) -> None:
    world: Any = SimpleNamespace(forgot=[forgot])
    line = (41.5, "sched: _hold_job_rec: hold on JobId=36 by uid 0")
    job = SubmittedJob("t", "36", 30.0, "2", "plain", 9)
    (finding,) = judge.counts(world, job, [run(60.0, 65.0)], {}, slurm_log(tmp_path, line))
    assert bool(finding.explanation) is is_explained


def test_a_run_recorded_in_the_store_is_not_missing() -> None:
    job = SubmittedJob("t", "36", 30.0, "2", "plain", 9)
    placement: Any = SimpleNamespace(start=50.0, allocation=Allocation.of({"n0": 2}))
    world: Any = SimpleNamespace(forgot=[])
    assert judge.counts(world, job, [run(50.0, 55.0)], {"36": [placement]}, SlurmLog()) == []


def test_gaps_count_the_leaders_ticks_and_between_plans_only_good_ones(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    ticks = [(3.0, "active", "info"), (21.0, "active", "info"), (24.0, "active", "error")]
    ticks += [(25.0, "standby", "info"), (30.0, "active", "info"), (48.0, "active", "error")]
    lines = [
        json.dumps({"timestamp": f"{datetime.fromtimestamp(t, UTC).isoformat()}", "event": "tick",
                    "mode": mode, "level": level})
        for t, mode, level in ticks
    ]  # fmt: skip
    log.write_text("no JSON\n" + "\n".join(lines))
    gaps = longest_gaps([Wait(0.0, 20.0, 40.0, 50.0)], [log])
    assert gaps == Gaps(ticks=18.0, plans=10.0, quiet_ticks=17.0, quiet_plans=17.0)


@pytest.mark.parametrize(
    ("log_lines", "is_stuck"),
    [
        ([(5.0, START), (9.0, "REFUSED"), (80.0, "REFUSED")], True),
        ([(5.0, START), (9.0, "REFUSED"), (40.0, "REFUSED")], False),
        ([(9.0, "REFUSED"), (80.0, "REFUSED")], False),
        ([(5.0, START), (9.0, "REFUSED"), (50.0, "UPDATED"), (80.0, "REFUSED")], False),
    ],
)
def test_a_job_that_slurmctld_no_longer_updates_is_not_blamed_on_hops(
    tmp_path: Path, log_lines: list[tuple[float, str]], is_stuck: bool
) -> None:
    words = {
        "REFUSED": "_slurm_rpc_update_job: JobId=36 uid=0: Job update not available right now,"
        " the DB index is being set, try again in a bit",
        "UPDATED": "_slurm_rpc_update_job: complete JobId=36 uid=0 usec=347",
    }
    lines = [(time, words.get(text, text)) for time, text in log_lines]
    assert slurm_log(tmp_path, *lines).refuses_updates("36") is is_stuck
