"""The whole controller against anything that a hostile user, a job or Slurm may report.

Reader, learner and planner are the real ones; port and store are in memory. Hostile jobs have their
own partition, so honest jobs must be placed as if the hostile ones did not exist.

`python -m bench.hostile` draws examples for as long as requested.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from controller_rig import A100, NOW, UID, Rig, job
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import hopsd.round.decide
import hopsd.round.set_aside
from hopsd.core.snapshot.build import SnapshotBuild, build_snapshot
from hopsd.core.submission.options_text import read_script_options
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, Tasks, UserName
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState

EXAMPLES = int(os.environ.get("HOPS_HOSTILE_EXAMPLES", "40"))
MALLORY = UID + 1 if os.geteuid() == 0 else UID
TICKS = 4
HONEST_NODES = tuple(
    NodeReading(NodeName(f"h{i}"), A100, 8, 32, partitions=("main",)) for i in range(2)
)
HOSTILE_NODE = NodeReading(NodeName("x0"), A100, 64, 64, partitions=("other",))

number = st.one_of(
    st.sampled_from(
        ["0", "-1", "1", "1e-3", "9.99e-4", "1e18", "1e19", "1e-320", "3e307", "nan", "0x10"]
    ),
    st.floats(allow_nan=True).map(repr),
    st.integers(-(10**20), 10**20).map(str),
)
reqs = st.one_of(
    st.sampled_from(["1", "1,2", "8", "1-8", "65536", "1-65536", "1,65536", "2-3", "0", "", "9-1"]),
    st.lists(st.integers(1, 8), min_size=1, max_size=5).map(lambda c: ",".join(map(str, c))),
)
pair = st.one_of(
    st.tuples(st.sampled_from(["samples", "num", "batch", "lr"]), number).map("=".join),
    st.sampled_from(
        ["lr=1:0.1,8:1e-20", "lr_rule=sqrt", "preempt=no", "workload=shared", "workload=mine",
         "app=a", "app=a:2", "cpu=yes", "reqs=2", "", "x", ";"]
    ),
)  # fmt: skip
comment = st.one_of(
    st.tuples(reqs, st.lists(pair, max_size=4)).map(
        lambda parts: ";".join([f"hops:reqs={parts[0]}", *parts[1]])
    ),
    st.text(max_size=30).map(lambda text: "hops:" + text),
)
any_time = st.one_of(
    st.sampled_from([0.0, 1.0, NOW, NOW - 5.0, NOW + 1e6, 4_102_444_800.0, -1.0, 1e300]),
    st.floats(),
)
SAFE_TEXT = st.text(max_size=12)


# As the submit plugin passes options on, and as a Slurm without the plugin would.
OPTIONS = [
    "shape:even|per_node", "tasks_each", "memory", "ranks", "cores", "tasks", "gres", "type",
    "nodes", "signal", "traps", "exclusive",
]  # fmt: skip
VALUES = (
    "1 0 99999999999 1/1 99999999999/1 1/99999999999 node default yes USR1 batch:USR1:0 none"
    f" steps:TERM:99999999999 vram:{'9' * 30} nvme:1 gpu:gpu:gpu x[1-9999999] x0 a[0-9]b[0-9] [ @x"
).split()
asks = st.one_of(
    st.tuples(
        st.sampled_from(OPTIONS),
        st.one_of(st.sampled_from(VALUES), st.text("0159/:,[]-.axGK", max_size=8)),
    ).map(":".join),
    st.text(max_size=12),
)
number_or_none = st.one_of(st.none(), st.sampled_from([0, 1, -1, 2**63, 10**40]))


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of a reading that sbatch's options may set."""
    options: dict[str, Any] = {
        "options": read_script_options("|".join(["hops:asks", *draw(st.lists(asks, max_size=3))])),
        "requeue": draw(st.booleans()),
        "exit_code": draw(st.sampled_from([0, 138, -1, 10**20])),
        "exit_signal": draw(st.sampled_from([0, 10, -1, 10**20])),
    }
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "features": st.one_of(st.sampled_from(["a|b", "[a|b]", "a&b", "((", "a*2"]), SAFE_TEXT),
        "excluded_nodes": st.just(frozenset({NodeName("x0")})),
        "reservation": SAFE_TEXT,
        "memory_mb_per_node": number_or_none,
        "memory_mb_per_cpu": number_or_none,
        "licences": st.dictionaries(SAFE_TEXT, st.sampled_from([0, 1, -1, 10**30]), max_size=2),
        "account": SAFE_TEXT,
        "qos": SAFE_TEXT,
        "reason": SAFE_TEXT,
        "waits_for": SAFE_TEXT,
        "array": st.just(JobId("100")),
        "task_limit": st.sampled_from([0, 1, -1, 10**20]),
        "is_throttled": st.booleans(),
        "is_stranded": st.booleans(),
        "rest": st.sampled_from([Tasks.parse("0-999999"), Tasks.parse("")]),
    }
    for name in draw(st.sets(st.sampled_from(sorted(strategies)), max_size=3)):
        options[name] = draw(strategies[name])
    return options


@st.composite
def hostile_job(draw: st.DrawFn, index: int) -> JobReading:
    """A job of Mallory's with any fields that Slurm could report, and some that it could not."""
    runs = draw(st.booleans())
    changes: dict[str, Any] = {}
    for name in draw(st.sets(st.sampled_from(["submit", "begin", "start", "end"]), max_size=2)):
        changes[name] = draw(any_time)
    if draw(st.booleans()):
        changes["time_limit_seconds"] = draw(st.one_of(st.none(), any_time))
    if draw(st.integers(0, 3)) == 0:
        changes["restarts"] = draw(st.sampled_from([-1, 0, 1, 2**31, 10**18]))
    if runs:
        gpus = draw(st.sampled_from([1, 1, 2, 0, 8, -1, 10**9]))
        node = draw(st.sampled_from(["x0", "x0", "gone"]))
        changes["allocation"] = Allocation(((NodeName(node), gpus),) if gpus else ())
    return replace(
        job(100 + index, draw(comment)),
        user=UserName("mallory"),
        uid=MALLORY,
        name=draw(SAFE_TEXT),
        command=draw(SAFE_TEXT),
        marks=draw(st.sampled_from(["", "hops:released", "hops:profile", "hops:profile=x", "\0"])),
        partition=draw(st.sampled_from(["other", "other", "nowhere", "other,nowhere"])),
        state=draw(st.sampled_from(list(SlurmState))) if runs else SlurmState.PENDING,
        hold=draw(st.sampled_from([Hold.HOPS, Hold.HOPS, Hold.USER, Hold.NONE])),
        dependency=draw(st.booleans()),
        **changes,
        **(draw(options()) if draw(st.booleans()) else {}),
    )


json_number = st.one_of(
    st.sampled_from([0, 1, 10, 32.0, 1e-320, 1e-300, 1e15, 1e300, -1, NOW, 10.0, 10**400]),
    st.floats(),
    st.integers(0, 10**6),
)


@st.composite
def report(draw: st.DrawFn) -> dict[str, Any]:
    """A report with arbitrary values; often one that hopsd believes."""
    iterations = draw(st.sampled_from([0, 1, 10, 100, 10**15]))
    content: dict[str, Any] = {
        "version": 1, "run": 0, "node": "x0", "rank": 0, "world": 1, "pid": draw(st.integers(0, 3)),
        "first_step": NOW - 1000.0, "at": NOW, "iterations": iterations, "samples": 32 * iterations,
        "timed": {"iterations": iterations, "samples": 32 * iterations, "seconds": 50.0},
        "kind": draw(st.sampled_from(["training", "inference"])), "params": draw(json_number),
        "basics": {"clock": "cpu", "pattern": 2, "t_f": 0.01, "t_b": 0.02, "t_u": 0.0, "t_w": 0.0},
        "phases": {"data": {"mean": 0.002, "bins": {"75": iterations}}},
        "backward_by_data": {},
    }  # fmt: skip
    parts = [content, content["timed"], content["basics"], content["phases"]["data"]]
    for _ in range(draw(st.integers(0, 3))):
        part = draw(st.sampled_from(parts))
        key = draw(st.sampled_from(sorted(part)))
        part[key] = draw(st.one_of(json_number, json_number, st.none(), SAFE_TEXT, st.just({})))
    return content


@dataclass(frozen=True)
class Attack:
    """``reports`` with the job that each claims to be from. ``clock`` has the seconds by which the
    clock is set at each tick. ``junk`` has names left in the spool, and their kinds.
    """

    jobs: tuple[JobReading, ...]
    reports: tuple[tuple[int, dict[str, Any]], ...]
    clock: tuple[float, ...]
    junk: tuple[tuple[str, str], ...]
    nodes: tuple[NodeReading, ...]


junk_name = st.one_of(
    st.sampled_from(
        ["1.0.h0.0.1.json", "2.0.h1.0.9.json", "100.0.x0.0.1.json", "100.9.x0.0.1.json", ".hidden"]
    ),
    st.from_regex(r"[0-9]{1,3}\.[0-9]\.x0\.[0-9]\.[0-9]\.json", fullmatch=True),
)
bad_node = st.builds(
    NodeReading,
    name=st.just(NodeName("bad")),
    gpu_type=st.sampled_from([GpuType("a100"), GpuType("cpu"), GpuType("")]),
    gpus=st.sampled_from([0, -1, 10**9, 2]),
    cores=st.sampled_from([0, -1, 10**30]),
    foreign_gpus=st.sampled_from([0, -7, 10**9]),
    usable=st.booleans(),
    partitions=st.just(("other",)),
    reserved_from=st.one_of(st.none(), any_time),
)


@st.composite
def attack(draw: st.DrawFn) -> Attack:
    jobs = tuple(draw(hostile_job(index)) for index in range(draw(st.integers(1, 6))))
    job_number = st.integers(100, 99 + len(jobs))
    return Attack(
        jobs,
        tuple(draw(st.lists(st.tuples(job_number, report()), max_size=4))),
        tuple(
            draw(st.lists(st.sampled_from([30.0, 30.0, 600.0, 4000.0, -900.0, 0.0, 1e8]),
                          min_size=TICKS, max_size=TICKS))
        ),
        tuple(draw(st.lists(st.tuples(junk_name, st.sampled_from(KINDS)), max_size=4))),
        tuple(draw(st.lists(bad_node, max_size=1))),
    )  # fmt: skip


KINDS = ["folder", "fifo", "link", "bytes", "future", "hard link"]


@st.composite
def honest_jobs(draw: st.DrawFn) -> tuple[JobReading, ...]:
    return tuple(
        job(
            index,
            f"hops:reqs={draw(st.sampled_from(['1', '1,2', '2', '1,2,4', '4']))}"
            f";samples={draw(st.sampled_from(['1e3', '1e5']))}",
            submit=NOW - draw(st.integers(0, 1000)),
        )
        for index in range(1, 1 + draw(st.integers(1, 4)))
    )


def litter(folder: Path, junk: Sequence[tuple[str, str]]) -> None:
    for name, kind in junk:
        path = folder / name
        if path.exists() or path.is_symlink():
            continue
        if kind == "folder":
            path.mkdir()
            (path / "full").touch()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "link":
            # The link leads to no file of the machine: writing through it, as root, would do harm.
            secret = folder.parent / f"{folder.name}.secret"
            secret.write_text("{}")
            path.symlink_to(secret)
        elif kind == "hard link":
            path.touch()
            (folder / f"{name}.x").hardlink_to(path)
        else:
            path.write_bytes(b"\xff{" * 100)
        if kind == "future":
            os.utime(path, (NOW + 1e9, NOW + 1e9))
        os.chown(path, MALLORY, -1, follow_symlinks=False)


def write(rig: Rig, job_number: int, content: dict[str, Any]) -> None:
    """Write as a process of that job would; a job that runs nowhere has no process."""
    allocation = rig.port.jobs[JobId(str(job_number))].allocation
    node = content["node"] if allocation else "x0"
    partial = rig.folder / ".partial"
    try:
        partial.write_text(json.dumps(content | {"job": str(job_number)}))
        os.chown(partial, MALLORY, -1)
        partial.replace(rig.folder / f"{job_number}.0.{node}.0.{content['pid']}.json")
    except (OSError, ValueError):
        return  # a name that no folder accepts, or that a folder has


def run_attack(
    folder: Path, honest: Sequence[JobReading], attack: Attack, *, hostile: bool, profiling: bool
) -> list[dict[str, int]]:
    """GPUs of the honest jobs after every tick; no tick may fail."""
    folder = folder / "reports"
    folder.mkdir()
    rig = Rig(folder, *honest, *(attack.jobs if hostile else ()), profiling=profiling)
    rig.port.nodes = [*HONEST_NODES, HOSTILE_NODE, *(attack.nodes if hostile else ())]
    if hostile:
        litter(folder, attack.junk)
    running_jobs = []
    for seconds in attack.clock:
        if hostile:
            for job_number, content in attack.reports:
                write(rig, job_number, content)
        rig.port.now += seconds - 30.0
        rig.tick()
        running = {str(j.id): rig.port.jobs[j.id].allocation.gpus for j in honest}
        running_jobs.append(running)
    json.dumps(rig.controller.document)
    return running_jobs


def assert_harmless(honest: tuple[JobReading, ...], attack: Attack) -> None:
    """Check that honest jobs are placed as if the hostile ones did not exist."""
    with (
        tempfile.TemporaryDirectory() as honest_folder,
        tempfile.TemporaryDirectory() as hostile_folder,
    ):
        alone = run_attack(Path(honest_folder), honest, attack, hostile=False, profiling=False)
        with_hostile = run_attack(
            Path(hostile_folder), honest, attack, hostile=True, profiling=False
        )
    assert with_hostile == alone


# Explaining and shrinking a failure would take longer than finding it.
PHASES = [phase for phase in Phase if phase is not Phase.explain]
hostile = settings(max_examples=EXAMPLES, phases=PHASES, suppress_health_check=list(HealthCheck))


@pytest.mark.long
@pytest.mark.slow
@hostile
@given(honest_jobs(), attack())
def test_honest_jobs_are_placed_as_if_hostile_ones_did_not_exist(
    honest: tuple[JobReading, ...], attack: Attack
) -> None:
    assert_harmless(honest, attack)


@pytest.mark.slow
@pytest.mark.parametrize("is_isolated", [True, False])
def test_a_planted_defect_does_no_harm_and_is_found_if_nothing_isolates_it(
    monkeypatch: pytest.MonkeyPatch, is_isolated: bool
) -> None:
    """Any of Mallory's jobs that a plan is made for breaks a step of the round."""

    def fail_on_culprit(
        reading: Reading, records: Any, comments: Any, *arguments: Any
    ) -> SnapshotBuild:
        if any(job.id in comments and job.user == "mallory" for job in reading.jobs):
            raise ZeroDivisionError("planted")
        return build_snapshot(reading, records, comments, *arguments)

    monkeypatch.setattr(hopsd.round.decide, "build_snapshot", fail_on_culprit)
    if not is_isolated:
        monkeypatch.setattr(
            hopsd.round.set_aside, "find_failing_items", lambda items, attempt: (attempt(items), [])
        )
    bad = replace(job(100, "hops:reqs=1"), user=UserName("mallory"), uid=MALLORY, partition="other")
    attack = Attack((bad,), (), (30.0,) * TICKS, (), ())
    with nullcontext() if is_isolated else pytest.raises(AssertionError, match="planted"):
        assert_harmless((job(1, "hops:reqs=2"),), attack)


@pytest.mark.long
@pytest.mark.slow
@hostile
@given(honest_jobs(), attack())
def test_no_tick_fails_with_a_defect_while_workloads_are_profiled(
    honest: tuple[JobReading, ...], attack: Attack
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_attack(Path(folder), honest, attack, hostile=True, profiling=True)
