"""Prolog, task prolog and epilog, called as slurmd calls them, but without slurmd."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import resource
import shutil
import signal
import stat
import string
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from hopsd.core.submission.comment import learning_rate, parse

pytestmark = pytest.mark.slow  # each case starts shells and awks

PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
CASES = json.loads((Path(__file__).parent / "comment_cases.json").read_text())
AWKS = [name for name in ("mawk", "gawk", "original-awk") if shutil.which(name)]


@dataclass(frozen=True)
class Node:
    """One node's copy of the plugin, with its own site.sh."""

    folder: Path

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def call(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Call a script like slurmd: absolute path, no arguments, and only Slurm's environment."""
        return subprocess.run(
            [str(self.folder / script)],
            env={"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def start(self, comment: str, gpus: str = "0", **environment: str) -> dict[str, str]:
        """Return the variables that the tasks of a job with this comment get."""
        result = self.call(
            "prolog.sh", SLURM_JOB_COMMENT=comment, SLURM_JOB_GPUS=gpus, **environment
        )
        assert (result.returncode, result.stdout) == (0, ""), result.stderr
        return exports(self.call("task_prolog.sh", SLURM_STEP_ID="0"))


def exports(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if not line.startswith("unset ")]
    assert all(line.startswith("export ") for line in lines), lines
    pairs = [line.removeprefix("export ").partition("=") for line in lines]
    return {name: value for name, _, value in pairs}


def cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.fixture
def node(tmp_path: Path) -> Node:
    folder = tmp_path / "hops"
    shutil.copytree(PLUGIN, folder)
    (folder / "site.sh").write_text(
        f"HOPS_RUN_DIR={tmp_path}/hops/run\nHOPS_REPORT_DIR=/shared/reports\n"
        f"HOPS_PROFILER_PATH=/opt/profiler\nHOPS_SCONTROL={tmp_path}/hops/scontrol\n"
    )
    return Node(folder)


def fake_scontrol(node: Node, says: str, *, seconds: float = 0) -> None:
    script = node.folder / "scontrol"
    script.write_text(f"#!/bin/sh\nsleep {seconds}\necho '{says}'\n")
    script.chmod(0o755)


def test_tasks_get_the_values_of_the_comment_and_the_allocation(node: Node) -> None:
    variables = node.start(
        "hops:reqs=1,4;lr=0.1;lr_rule=linear;batch=64;workload=bert.base",
        gpus="0-2,5",
        SLURM_JOB_RESTART_COUNT="3",
    )
    assert variables == {
        "HOPS_JOB": "1",
        "HOPS_JOB_ID": "7",
        "HOPS_REQS": "1,4",
        "HOPS_GPUS": "4",
        "HOPS_NODES": "1",
        "HOPS_RESTART_COUNT": "3",
        "HOPS_LR": "0.4",
        "HOPS_BATCH": "64",
        "HOPS_WORKLOAD": "bert.base",
        "HOPS_REQUEUE_EXIT_CODE": "85",
        "HOPS_REPORT_DIR": "/shared/reports",
        "PYTHONPATH": "/opt/profiler",
    }


@pytest.mark.parametrize(
    ("says", "gpus"),
    [
        ("JobId=7 X=1 JOB_GRES=gpu:a100:6 Nodes=n0 GRES=gpu:a100:2(IDX:6-7)", "6"),
        ("JOB_GRES=gpu:6", "6"),
        ("JOB_GRES=gpu:a100:4,gpu:v100:2,license:9 TRES=cpu=8", "6"),
        ("JOB_GRES=gpu:a100:6(S:0-1) TRES=cpu=8", "6"),
        ("JobId=7 JobState=RUNNING", None),
        ("", None),
    ],
)
def test_gpus_of_several_nodes_come_from_slurmctld(node: Node, says: str, gpus: str | None) -> None:
    fake_scontrol(node, says)
    variables = node.start("hops:reqs=6;lr=0.1;lr_rule=linear", gpus="6,7", SLURM_JOB_NUM_NODES="2")
    assert variables.get("HOPS_GPUS") == gpus
    assert variables["HOPS_NODES"] == "2"
    assert ("HOPS_LR" in variables) is (gpus is not None)


@pytest.mark.slow
def test_a_job_on_several_nodes_waits_for_a_silent_slurmctld(node: Node) -> None:
    """Otherwise an uneven job would have one task per node and leave its other GPUs idle."""
    asks = "shape:any|counted:yes|tasks:1/1|memory:default"
    refusal = "Unable to contact slurm controller (connect failure)"
    answer = (
        "JobId=7 Restarts=0 NumNodes=2 JOB_GRES=gpu:a:6 Nodes=n1 GRES=gpu:a:2(IDX:0-1) Nodes=n2"
        " GRES=gpu:a:4(IDX:0-3) Comment=hops:reqs=6 "
    )
    times = node.folder / "times"
    (node.folder / "scontrol").write_text(
        f"#!/bin/sh\n[ $2 = job ] || {{ echo $3; exit; }}\necho >> {times}\n"
        f"case $(wc -l < {times}) in\n1) exec sleep 60 ;;\n2) echo '{refusal}' >&2; exit 1 ;;\n"
        f"*) echo '{answer}' ;;\nesac\n"
    )
    (node.folder / "scontrol").chmod(0o755)
    start_time = time.monotonic()
    result = node.call("prolog.sh", SLURM_JOB_COMMENT="hops:reqs=6", SLURM_JOB_NUM_NODES="2")
    assert (result.returncode, result.stdout) == (0, "")
    assert 4 < time.monotonic() - start_time < 15
    sleeps = node.folder / "sleeps"
    (node.folder / "sleep").write_text(f"#!/bin/sh\necho $1 >> {sleeps}\n")
    (node.folder / "sleep").chmod(0o755)
    task_environment = {
        "HOPS_ASKS": asks, "TMPDIR": str(node.folder), "SLURM_TASKS_PER_NODE": "1(x2)",
        "PATH": f"{node.folder}:/usr/bin:/bin",
    }  # fmt: skip
    variables = exports(node.call("task_prolog.sh", **task_environment))
    assert (variables["HOPS_GPUS"], variables["HOPS_GPUS_BY_NODE"]) == ("6", "n1:2;n2:4")
    assert len(times.read_text()) == 3
    wait_lengths = {sleeps.read_text()}
    for task in range(1, 11):  # all tasks ask, but not at the same time
        sleeps.unlink()
        times.write_text("\n")
        exports(node.call("task_prolog.sh", **task_environment, SLURM_PROCID=str(task)))
        wait_lengths.add(sleeps.read_text())
    assert sorted(int(seconds) for seconds in wait_lengths) == list(range(5, 16))


@pytest.mark.parametrize(
    "refusal",
    [
        "slurm_load_jobs error: Zero Bytes were transmitted or received",
        "slurm_load_jobs error: Message receive failure",
        "fatal: Could not establish a configuration source",
        "",
    ],
)
def test_no_failure_to_reach_slurmctld_is_mistaken_for_an_answer(node: Node, refusal: str) -> None:
    (node.folder / "scontrol").write_text(f"#!/bin/sh\necho '{refusal}' >&2\nexit 1\n")
    (node.folder / "scontrol").chmod(0o755)
    node.call("prolog.sh", SLURM_JOB_COMMENT="hops:reqs=6", SLURM_JOB_NUM_NODES="2")
    fake_scontrol(node, "JobId=7 Restarts=0 NumNodes=2 JOB_GRES=gpu:6 Comment=hops:reqs=6 ")
    assert exports(node.call("task_prolog.sh"))["HOPS_GPUS"] == "6"


@pytest.mark.parametrize(
    ("error", "requests"),
    [("Unable to contact slurm controller (connect failure)", 7), ("error: no such plugin", 3)],
)
def test_faults_of_the_node_itself_are_retried_for_a_shorter_time(
    node: Node, error: str, requests: int
) -> None:
    """The clock advances by 100 s each time it is read."""
    times, clock = node.folder / "times", node.folder / "clock"
    programs = {
        "scontrol": f"echo >> {times}; echo '{error}' >&2; exit 1",
        "sleep": "exit 0",
        "date": f"echo >> {clock}; echo $(($(wc -l < {clock}) * 100))",
    }
    for name, body in programs.items():
        (node.folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (node.folder / name).chmod(0o755)
    node.call("prolog.sh", SLURM_JOB_COMMENT="hops:reqs=6", SLURM_JOB_NUM_NODES="2")
    times.unlink()
    node.call("task_prolog.sh", PATH=f"{node.folder}:/usr/bin:/bin")
    assert len(times.read_text()) == requests - 1


@pytest.mark.parametrize("silent", [True, False], ids=["silent slurmctld", "no Prolog"])
def test_a_step_that_starts_hours_later_also_asks(node: Node, silent: bool) -> None:
    """Other jobs may have ended on the node in between."""
    job_environment = {"SLURM_JOB_COMMENT": "hops:reqs=6", "SLURM_JOB_NUM_NODES": "2"}
    if silent:
        (node.folder / "scontrol").write_text("#!/bin/sh\nexit 1\n")
        (node.folder / "scontrol").chmod(0o755)
    node.call("prolog.sh", **job_environment)
    if not silent:
        node.call("epilog.sh", **job_environment)
    for file in node.run_dir.iterdir():
        os.utime(file, (time.time() - 9000,) * 2)
    node.call("epilog.sh", **job_environment, SLURM_JOB_ID="9")
    fake_scontrol(node, "JobId=7 Restarts=0 NumNodes=2 JOB_GRES=gpu:6 Comment=hops:reqs=6 ")
    assert exports(node.call("task_prolog.sh"))["HOPS_GPUS"] == "6"


def test_srun_starts_nothing_on_gpus_that_slurmctld_does_not_name(node: Node) -> None:
    node.start("hops:reqs=6")
    node.call("epilog.sh", SLURM_JOB_COMMENT="hops:reqs=6")
    (node.folder / "scontrol").write_text("#!/bin/sh\necho Invalid job id >&2\nexit 1\n")
    (node.folder / "scontrol").chmod(0o755)
    result = node.call("task_prolog.sh", HOPS_ASKS="shape:any|counted:yes|tasks:1/1|memory:default")
    assert "print hops: srun starts nothing" in result.stdout
    assert "export SLURM_HOSTFILE=" in result.stdout
    assert node.call("task_prolog.sh", HOPS_ASKS="shape:node|tasks:1/1").stdout == ""


def test_a_step_asks_or_fails_with_the_nodes_name_if_the_prolog_cannot_write(
    node: Node,
) -> None:
    """With a full or read-only HOPS_RUN_DIR, 4 GPUs silently had one task."""
    asks = {"HOPS_ASKS": "shape:any|counted:yes|tasks:1/1", "HOPS_JOB_ID": "new"}
    node.start("hops:reqs=6")
    for file in node.run_dir.iterdir():
        file.unlink()
    fake_scontrol(node, "JobId=7 Restarts=0 NumNodes=2 JOB_GRES=gpu:6 Comment=hops:reqs=6 ")
    assert exports(node.call("task_prolog.sh", **asks))["HOPS_GPUS"] == "6"
    (node.folder / "scontrol").write_text("#!/bin/sh\necho Invalid job id >&2\nexit 1\n")
    output = node.call("task_prolog.sh", **asks).stdout
    assert "print hops: srun starts nothing on n1, since slurmctld does not say" in output
    assert "export SLURM_HOSTFILE=" in output


@pytest.mark.parametrize(
    ("mark", "iterations"),
    [
        (" #hops-profile=20", "20"),
        (" #hops-other #hops-profile", "50"),
        (" #hops-profiled", None),
        (" #hops-profile=x", None),
        ("", None),
    ],
)
def test_a_profiled_job_on_one_gpu_learns_about_it(
    node: Node, mark: str, iterations: str | None
) -> None:
    fake_scontrol(node, "", seconds=60)  # nothing should be asked
    variables = node.start(f"hops:reqs=2{mark}", gpus="3")
    assert (variables.get("HOPS_PROFILE"), variables["HOPS_REQS"]) == (iterations, "2")


@pytest.mark.parametrize(
    ("comment", "restarts", "line"),
    [
        ("hops:reqs=1,2 #hops-moved=n0:2,n4:4", "1", "hops: moved from n0:2,n4:4 to n1:1 at "),
        ("hops:reqs=1,2", "2", "hops: started again on n1:1 at "),
        ("hops:reqs=1,2 #hops-moved=$(date)", "1", "hops: started again on n1:1 at "),
        ("hops:reqs=1,2", "0", ""),
    ],
)
def test_a_moved_job_is_told_in_its_own_output(
    node: Node, comment: str, restarts: str, line: str
) -> None:
    variables = node.start(comment, gpus="3", SLURM_JOB_RESTART_COUNT=restarts)
    assert variables.get("HOPS_MOVED_FROM") == ("n0:2,n4:4" if "moved from" in line else None)
    lines = node.call("task_prolog.sh").stdout.splitlines()
    printed_lines = [text.removeprefix("print ") for text in lines if text.startswith("print ")]
    assert [text[:-5] for text in printed_lines] == [line] * bool(line)
    step = node.call("task_prolog.sh", SLURM_STEP_ID="0").stdout
    assert "print " not in step


PARENT = {
    "HOPS_JOB": "1", "HOPS_JOB_ID": "6", "HOPS_PROFILE": "20", "HOPS_GPUS": "8", "HOPS_LR": "0.8",
    "HOPS_STATE_DIR": "/memory/hops/6.n1", "HOPS_TRAINS": "1", "HOPS_CPUS_PER_TASK": "4",
    "HOPS_ASKS": "shape:any|signal:steps:USR1:60",
}  # fmt: skip
"""What job 7 inherits if job 6 submitted it."""


def unset(result: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the names that stay unset; a later export sets a name again."""
    lines = [line.split(" ", 1) for line in result.stdout.splitlines()]
    names: set[str] = set()
    for word, variable in lines:
        names = names | {variable} if word == "unset" else names - {variable.partition("=")[0]}
    return names


def test_a_plain_job_loses_the_variables_of_the_hops_job_that_submitted_it(node: Node) -> None:
    """Regression: such a job requeued and held itself after 20 iterations, and stayed held."""
    result = node.call("task_prolog.sh", **PARENT)
    assert exports(result) == {}
    assert set(PARENT) <= unset(result)


def test_a_hops_job_keeps_no_variable_of_the_one_that_submitted_it(node: Node) -> None:
    node.start("hops:reqs=2", gpus="0,1")
    result = node.call("task_prolog.sh", **PARENT)
    assert exports(result)["HOPS_GPUS"] == "2"
    assert {"HOPS_PROFILE", "HOPS_LR", "HOPS_STATE_DIR", "HOPS_TRAINS"} <= unset(result)


def test_a_step_keeps_what_its_script_exports(node: Node) -> None:
    node.start("hops:reqs=2", gpus="0,1")
    result = node.call("task_prolog.sh", SLURM_STEP_ID="0", HOPS_JOB_ID="7", HOPS_TRIAL="3")
    assert unset(result) == set()


@pytest.mark.parametrize("awk", AWKS)
@pytest.mark.parametrize("gpus", [1, 3, 16])
def test_awk_parses_comments_like_python(awk: str, gpus: int) -> None:
    for text in CASES["accepted"]:
        comment = parse(text)
        environment = {"COMMENT": text, "GPUS": str(gpus), "NODES": "1", "RESTARTS": "0"}
        result = subprocess.run(
            [awk, "-f", str(PLUGIN / "comment.awk")],
            env={**environment, "RANGE": "8", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        variables = dict(line.split("=", 1) for line in result.stdout.splitlines())
        assert variables["HOPS_REQS"] == ",".join(map(str, comment.reqs)), text
        assert variables.get("HOPS_BATCH") == (comment.batch_size and str(comment.batch_size)), text
        assert variables.get("HOPS_WORKLOAD") == comment.workload, text
        rate = learning_rate(comment, gpus)
        if rate is None or rate < 1e-300 or rate == math.inf:  # no usable learning rate
            continue
        assert float(variables["HOPS_LR"]) == pytest.approx(rate, rel=1e-9), text


def test_a_bad_comment_gives_tasks_only_plain_values(node: Node) -> None:
    # An administrator may put any comment on a job; job_submit.lua only checks those of users.
    plain = set(string.ascii_letters + string.digits + ".,_-/+:")
    for text in CASES["refused"][::7]:
        if "\0" in text:  # no environment can contain it
            continue
        result = node.call("prolog.sh", SLURM_JOB_COMMENT=text, SLURM_JOB_GPUS="0")
        assert result.returncode == 0, text
        for name, value in exports(node.call("task_prolog.sh", SLURM_STEP_ID="0")).items():
            assert name.startswith("HOPS_") or name == "PYTHONPATH", text
            assert set(value) <= plain, (text, value)


def test_the_widest_range_neither_stalls_the_prolog_nor_fills_the_environment(node: Node) -> None:
    before = cpu_seconds_of_children()
    variables = node.start("hops:reqs=1-65536;num=65536;lr=0.1")
    assert cpu_seconds_of_children() - before < 1
    assert variables["HOPS_LR"] == "0.1"
    assert "HOPS_REQS" not in variables


@pytest.mark.parametrize("comment", [{}, {"SLURM_JOB_COMMENT": "my job"}])
def test_other_jobs_are_hardly_delayed(node: Node, comment: Mapping[str, str]) -> None:
    """Each script takes less than 20 ms; on a busy machine, the best of 50 calls counts."""
    for script in ("prolog.sh", "task_prolog.sh", "epilog.sh"):
        seconds = math.inf
        for _ in range(50):
            start_time = time.monotonic()
            result = node.call(script, **comment)
            seconds = min(seconds, time.monotonic() - start_time)
            assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
            if seconds < 0.02:
                break
        assert seconds < 0.02, script
    assert not node.run_dir.exists()


def test_the_epilog_removes_only_this_nodes_file(node: Node) -> None:
    node.start("hops:reqs=1")
    file_of_other_node, old = node.run_dir / "7.n2", node.run_dir / "5.n1.left"
    file_of_other_node.touch()
    old.touch()
    os.utime(old, (0, 0))
    assert node.call("epilog.sh", SLURM_JOB_COMMENT="hops:reqs=1").returncode == 0
    assert set(node.run_dir.iterdir()) == {file_of_other_node, node.run_dir / "7.n1.left"}


def test_files_of_many_short_jobs_do_not_fill_the_nodes_run(node: Node) -> None:
    """One job per second made 800,000 files in nine days, which filled /run for every service."""
    an_hour_ago = time.time() - 3_700
    node.start("hops:reqs=1")
    for number in range(100, 10_100):
        note = node.run_dir / f"{number}.n1.left"
        note.touch()
        os.utime(note, (an_hour_ago, an_hour_ago))
    recent = node.run_dir / "20000.n1.left"
    recent.touch()
    assert node.call("epilog.sh", SLURM_JOB_COMMENT="hops:reqs=1").returncode == 0
    assert set(node.run_dir.iterdir()) == {recent, node.run_dir / "7.n1.left"}


def test_a_returning_job_without_a_prolog_asks_slurmctld(node: Node) -> None:
    node.start("hops:reqs=1,4;lr=0.1;lr_rule=linear")
    node.call("epilog.sh", SLURM_JOB_COMMENT="hops:reqs=1,4;lr=0.1;lr_rule=linear")
    fake_scontrol(
        node,
        "JobId=7 JobName=x JobState=RUNNING Requeue=1 Restarts=2 NumNodes=2 NumCPUs=4 NumTasks=2"
        " JOB_GRES=gpu:a100:4 Nodes=n1 GRES=gpu:a100:1(IDX:0) Nodes=n2 GRES=gpu:a100:3(IDX:0-2)"
        " AdminComment=mine Comment=hops:reqs=1, 4;lr=0.1;lr_rule=linear #hops-profile=20 "
        " TresPerJob=gres:gpu:4",
    )
    variables = exports(node.call("task_prolog.sh", SLURM_STEP_ID="0"))
    assert (variables["HOPS_GPUS"], variables["HOPS_NODES"], variables["HOPS_LR"]) == (
        "4",
        "2",
        "0.4",
    )
    assert (variables["HOPS_RESTART_COUNT"], variables["HOPS_PROFILE"]) == ("2", "20")
    assert variables["HOPS_REPORT_DIR"] == "/shared/reports"
    (node.folder / "scontrol").write_text("#!/bin/sh\necho Invalid job id specified\nexit 1\n")
    assert exports(node.call("task_prolog.sh", SLURM_STEP_ID="0")) == {}


def test_only_root_can_write_what_tasks_are_given(node: Node) -> None:
    node.start("hops:reqs=1")
    file = node.run_dir / "7.n1"
    assert stat.S_IMODE(node.run_dir.stat().st_mode) == 0o755
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


OTHER_UID = 4242
NOBODY_UID = 65534  # an existing account, since its groups are looked up


@pytest.fixture
def open_node(tmp_path: Path) -> Iterator[Node]:
    """A node whose folders another account may enter, unlike those of pytest."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give folders to another account")
    folder = Path(tempfile.mkdtemp(prefix="hops-test-"))
    folder.chmod(0o755)
    shutil.copytree(PLUGIN, folder / "hops")
    (folder / "hops" / "site.sh").write_text(f"HOPS_RUN_DIR={folder}/hops/run\n")
    yield Node(folder / "hops")
    shutil.rmtree(folder)


def test_root_writes_into_no_folder_that_another_account_could_change(open_node: Node) -> None:
    """If hopsd owns /run/hops on a site of one host, links in it could lead to any file."""
    run, victim = open_node.run_dir, open_node.folder / "victim"
    victim.write_text("precious")
    spoils: list[Callable[[], None]] = [
        lambda: os.chown(run, OTHER_UID, OTHER_UID),
        lambda: run.chmod(0o777),
        lambda: run.chmod(0o775),
        lambda: run.chmod(0o1777),
        lambda: os.chown(open_node.folder, OTHER_UID, OTHER_UID),
        lambda: open_node.folder.chmod(0o777),
    ]
    for spoil in spoils:
        run.mkdir(mode=0o755)
        spoil()
        for name in ("7.n1", "7.n1.new", "7.n1.left"):
            (run / name).symlink_to(victim)
        for script in ("prolog.sh", "epilog.sh"):
            result = open_node.call(script, SLURM_JOB_COMMENT="hops:reqs=1", SLURM_JOB_GPUS="0")
            assert result.returncode == 0
        assert victim.read_text() == "precious"
        assert sorted(path.name for path in run.iterdir()) == ["7.n1", "7.n1.left", "7.n1.new"]
        shutil.rmtree(run)
        os.chown(open_node.folder, 0, 0)
        open_node.folder.chmod(0o755)
    assert open_node.start("hops:reqs=1")["HOPS_JOB"] == "1"


def test_a_task_gets_nothing_from_a_folder_of_another_account(open_node: Node) -> None:
    open_node.start("hops:reqs=1")
    os.chown(open_node.run_dir, OTHER_UID, OTHER_UID)
    assert exports(open_node.call("task_prolog.sh", SLURM_STEP_ID="0")) == {}


def test_a_task_gets_only_variables_of_hops(node: Node) -> None:
    node.start("hops:reqs=1")
    with (node.run_dir / "7.n1").open("a") as file:
        file.write("LD_PRELOAD=/tmp/evil.so\n")
    variables = exports(node.call("task_prolog.sh", SLURM_STEP_ID="0"))
    assert variables["HOPS_JOB"] == "1"
    assert "LD_PRELOAD" not in variables


@pytest.mark.parametrize("name", ["prolog", "task_prolog", "epilog"])
def test_every_call_that_may_hang_has_a_time_limit(name: str) -> None:
    """srun's tasks and the node's next job wait for these scripts."""
    text = (PLUGIN / f"{name}.sh").read_text()
    commands = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    asks = [line for line in commands if re.search(r'"\$HOPS_SCONTROL" |\blogger |setpriv ', line)]
    limited_lines = [line for line in asks if re.search(r"timeout (-k 10 )?\S+ ", line)]
    if name == "epilog":  # as() runs its command with timeout
        limited_lines += [line for line in asks if line.strip().startswith("set -- setpriv")]
    assert asks
    assert limited_lines == asks


def test_a_node_with_an_unwritable_folder_asks_slurmctld(node: Node) -> None:
    """Jobs there ran without the Prolog's variables: 4 GPUs with one task."""
    node.run_dir.write_text("a file where the folder should be")
    fake_scontrol(node, "JobId=7 Restarts=0 NumNodes=1 JOB_GRES=gpu:4 Comment=hops:reqs=4 ")
    node.call("prolog.sh", SLURM_JOB_COMMENT="hops:reqs=4", SLURM_JOB_GPUS="0-3")
    submit_environment = {"HOPS_ASKS": "shape:node|tasks:1/1", "HOPS_JOB_ID": "new"}
    task_environment = {**submit_environment, "SLURM_TASKS_PER_NODE": "4", "SLURM_NTASKS": "1"}
    variables = exports(node.call("task_prolog.sh", **task_environment))
    assert (variables["HOPS_GPUS"], variables["HOPS_JOB_ID"]) == ("4", "7")
    parent = {**submit_environment, "HOPS_JOB_ID": "6"}  # a plain job that hops job 6 submitted
    assert exports(node.call("task_prolog.sh", **parent)) == {}
    (node.folder / "scontrol").write_text("#!/bin/sh\necho Invalid job id >&2\nexit 1\n")
    output = node.call("task_prolog.sh", HOPS_ASKS="shape:any|tasks:1/1|", HOPS_JOB_ID="new").stdout
    assert "print hops: srun starts nothing on n1, since slurmctld does not say" in output


def test_no_failure_drains_a_node(node: Node) -> None:
    (node.folder / "run").write_text("a file where the folder should be")
    for script in ("prolog.sh", "epilog.sh", "task_prolog.sh"):
        assert node.call(script, SLURM_JOB_COMMENT="hops:reqs=1").returncode == 0
    (node.folder / "comment.awk").unlink()
    (node.folder / "site.sh").unlink()
    for script in ("prolog.sh", "epilog.sh", "task_prolog.sh"):
        result = node.call(script, SLURM_JOB_COMMENT="hops:reqs=1", SLURM_JOB_ID="no/such/folder")
        assert result.returncode == 0


@pytest.mark.parametrize(
    ("asks", "before", "after"),
    [
        ("starts:apptainer", None, "{}/profiler,{}/reports"),
        ("shape:node|starts:apptainer,docker|traps:none", "/data", "/data,{}/profiler,{}/reports"),
        ("starts:apptainer", "{}/profiler,{}/reports", "{}/profiler,{}/reports"),
        ("starts:apptainer,writable", "/data", None),
        ("starts:docker", None, None),
        ("shape:node", None, None),
    ],
)
def test_apptainer_is_given_our_bind_mounts(
    node: Node, asks: str, before: str | None, after: str | None
) -> None:
    bind_folder = bindable(node)
    node.start("hops:reqs=1")
    bind_environment = (
        {} if before is None else {"SINGULARITY_BINDPATH": before.format(bind_folder, bind_folder)}
    )
    variables = exports(node.call("task_prolog.sh", HOPS_ASKS=asks, **bind_environment))
    assert variables.get("SINGULARITY_BINDPATH") == (
        after and after.format(bind_folder, bind_folder)
    )


def bindable(node: Node) -> Path:
    """Create a profiler and a report folder for the prolog to name; return their parent."""
    bind_folder = node.folder.parent
    for name in ("profiler/site", "reports"):
        (bind_folder / name).mkdir(parents=True)
    with (node.folder / "site.sh").open("a") as site:
        site.write(
            f"HOPS_PROFILER_PATH={bind_folder}/profiler/site\nHOPS_REPORT_DIR={bind_folder}/reports\n"
        )
    return bind_folder


@pytest.mark.parametrize(
    ("singularity", "after"),
    [(None, None), ("{0}/profiler,{0}/reports", None), ("/s", "/s,{0}/profiler,{0}/reports")],
)
def test_the_variable_that_apptainer_prefers_is_extended_where_set(
    node: Node, singularity: str | None, after: str | None
) -> None:
    """apptainer reads one of the two and warns if they differ; the batch script's is unset."""
    bind_folder = bindable(node)
    node.start("hops:reqs=1")
    bind_environment = {"APPTAINER_BINDPATH": "/data:/mnt"}
    if singularity is not None:
        bind_environment["SINGULARITY_BINDPATH"] = singularity.format(bind_folder)
    result = node.call("task_prolog.sh", HOPS_ASKS="starts:apptainer", **bind_environment)
    variables = exports(result)
    assert (
        variables["APPTAINER_BINDPATH"]
        == f"/data:/mnt,{bind_folder}/profiler,{bind_folder}/reports"
    )
    assert variables.get("SINGULARITY_BINDPATH") == (after and after.format(bind_folder))
    assert ("unset SINGULARITY_BINDPATH" in result.stdout) == (
        singularity is not None and not after
    )


@pytest.mark.parametrize(("underlay", "bound"), [("yes", True), ("no", False)])
def test_nothing_is_bound_if_the_site_lets_apptainer_make_no_folders(
    node: Node, underlay: str, bound: bool
) -> None:
    conf = bindable(node) / "apptainer.conf"
    conf.write_text(f"enable overlay = no\nenable underlay = {underlay}\n")
    with (node.folder / "site.sh").open("a") as site:
        site.write(f"HOPS_APPTAINER_CONF='/no/such {conf}'\n")
    node.start("hops:reqs=1")
    variables = exports(node.call("task_prolog.sh", HOPS_ASKS="starts:apptainer"))
    assert ("SINGULARITY_BINDPATH" in variables) == bound


@pytest.mark.parametrize("base", ["/etc", "/usr/local/etc"])
@pytest.mark.parametrize("program", ["apptainer", "singularity"])
def test_apptainers_settings_are_read_from_the_usual_places(
    node: Node, base: str, program: str
) -> None:
    conf = bindable(node) / "there.conf"
    conf.write_text("enable overlay = no\nenable underlay = no\n")
    script = node.folder / "task_prolog.sh"
    usual = re.compile(rf"(?<![\w/]){base}/{program}/{program}\.conf")
    text, substitutions = usual.subn(str(conf), script.read_text())
    script.write_text(text)
    assert substitutions == 1
    node.start("hops:reqs=1")
    variables = exports(node.call("task_prolog.sh", HOPS_ASKS="starts:apptainer"))
    assert "SINGULARITY_BINDPATH" not in variables


@pytest.mark.parametrize("name", ["APPTAINER_WRITABLE", "SINGULARITY_WRITABLE"])
def test_nothing_is_bound_into_a_writable_container(node: Node, name: str) -> None:
    bindable(node)
    node.start("hops:reqs=1")
    variables = exports(node.call("task_prolog.sh", HOPS_ASKS="starts:apptainer", **{name: "1"}))
    assert not [key for key in variables if key.endswith("BINDPATH")]


def test_the_users_python_path_comes_after_ours_once(node: Node) -> None:
    node.start("hops:reqs=1")
    variables = exports(node.call("task_prolog.sh", PYTHONPATH="/home/me/lib"))
    assert variables["PYTHONPATH"] == "/opt/profiler:/home/me/lib"
    second_export = exports(node.call("task_prolog.sh", PYTHONPATH=variables["PYTHONPATH"]))
    assert "PYTHONPATH" not in second_export


@pytest.mark.parametrize(
    ("request_environment", "core_variables"),
    [
        ({"SLURM_TRES_PER_TASK": "cpu=1"}, {"SLURM_TRES_PER_TASK": "cpu=6"}),
        ({"SLURM_TRES_PER_TASK": "cpu:1,gres/a:1"}, {"SLURM_TRES_PER_TASK": "cpu=6,gres/a:1"}),
        ({"SLURM_TRES_PER_TASK": "gres/a:1,cpu=1"}, {"SLURM_TRES_PER_TASK": "gres/a:1,cpu=6"}),
        ({"SLURM_TRES_PER_TASK": "gres/gpu=1"}, {}),
        ({}, {}),
    ],
)
def test_a_task_has_the_requested_cores(
    node: Node, request_environment: Mapping[str, str], core_variables: Mapping[str, str]
) -> None:
    """Slurm reports the one core that hops requested, and srun fails if its variables differ."""
    node.start("hops:reqs=1")
    task_environment = {
        "SLURM_CPUS_PER_TASK": "1",
        "HOPS_CPUS_PER_TASK": "6",
        **request_environment,
    }
    variables = exports(node.call("task_prolog.sh", **task_environment))
    cores = {name: variables[name] for name in variables if name.endswith("_PER_TASK")}
    assert cores == {"SLURM_CPUS_PER_TASK": "6", **core_variables}
    of_node = {"SLURM_CPUS_ON_NODE": "8", "SLURM_TASKS_PER_NODE": "2(x2)"}
    variables = exports(node.call("task_prolog.sh", **task_environment, **of_node))
    assert variables["SLURM_CPUS_PER_TASK"] == "4"  # all cores in the share of its GPUs
    task_environment["HOPS_CPUS_PER_TASK"] = "6;"
    assert "SLURM_CPUS_PER_TASK" not in exports(node.call("task_prolog.sh", **task_environment))


@pytest.mark.parametrize("step", [{}, {"SLURM_STEP_ID": "-5"}, {"SLURM_STEP_ID": "4294967291"}])
def test_the_batch_script_sees_the_shape_that_it_was_given(
    node: Node, step: Mapping[str, str]
) -> None:
    node.start("hops:reqs=1", gpus="0-5")
    request_environment = {
        "SLURM_NTASKS": "16",
        "SLURM_NPROCS": "16",
        "SLURM_NTASKS_PER_NODE": "8",
        "SLURM_GPUS": "a100:16",
        "SLURM_GPUS_PER_NODE": "8",
        "SLURM_GPUS_PER_TASK": "1",
    }
    task_environment = {"SLURM_TASKS_PER_NODE": "6(x2),3", "SLURM_GPUS_ON_NODE": "6"}
    batch = node.call("task_prolog.sh", **request_environment, **task_environment, **step)
    variables = exports(batch)
    assert {name: variables[name] for name in request_environment if name in variables} == {
        "SLURM_NTASKS": "15",
        "SLURM_NPROCS": "15",
        "SLURM_NTASKS_PER_NODE": "6",
        "SLURM_GPUS": "a100:6",
        "SLURM_GPUS_PER_NODE": "6",
    }
    silent = exports(node.call("task_prolog.sh", **task_environment, **step))
    assert not [name for name in silent if name.startswith("SLURM_")]
    task = node.call("task_prolog.sh", **request_environment, **task_environment, SLURM_STEP_ID="0")
    assert not [name for name in exports(task) if name.startswith("SLURM_")]


@pytest.mark.parametrize(
    ("asks", "gpus", "exported_values"),
    [
        ("shape:node|counted:yes", "0-5", {"PER_TASK": "a100:6", "TRES": "cpu=2,gres/gpu:a100=6"}),
        ("shape:even|counted:yes|tasks:1/4", "0-5", {}),
        ("shape:node|tasks_each:3", "0-5", {}),
        ("shape:any", "0-2", {"TRES": "cpu=2"}),  # another number of GPUs on another node
    ],
)
def test_a_nodes_only_task_gets_all_gpus_there(
    node: Node, asks: str, gpus: str, exported_values: Mapping[str, str]
) -> None:
    node.start("hops:reqs=1", gpus=gpus)
    tres = "cpu=2,gres/gpu:a100=4"
    request_environment = {
        "SLURM_GPUS_PER_TASK": "a100:4",
        "SLURM_TRES_PER_TASK": tres,
        "HOPS_ASKS": asks,
    }
    result = node.call("task_prolog.sh", SLURM_GPUS_ON_NODE="6", **request_environment)
    variables = exports(result)
    names = {"PER_TASK": "SLURM_GPUS_PER_TASK", "TRES": "SLURM_TRES_PER_TASK"}
    assert {
        key: variables[name] for key, name in names.items() if name in variables
    } == exported_values
    assert ("unset SLURM_GPUS_PER_TASK" in result.stdout) == ("any" in asks)


DETAILS = (
    "JobId=7 Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:v100:0(IDX:)"
    " Nodes=n4 CPU_IDs=0-5 Mem=0 GRES=gpu:a100:1(IDX:3),nvme:9(CNT:9) JOB_GRES=gpu:a100:5 Network="
)


@pytest.mark.parametrize("memory", ["", "/no/such"])
def test_srun_starts_a_task_for_each_gpu_of_uneven_nodes(
    node: Node, tmp_path: Path, memory: str
) -> None:
    """This includes jobs without a state folder in memory."""
    with (node.folder / "site.sh").open("a") as site:
        site.write(f"HOPS_STATE_DIR={memory}\n")
    (temporary := tmp_path / "temporary").mkdir()
    (temporary / "hops-hosts.7.earlier").touch()
    (foreign_file := temporary / "hops-hosts.70.a").touch()
    fake_scontrol(node, DETAILS)
    variables = node.start("hops:reqs=5;shape=any", gpus="", SLURM_JOB_NUM_NODES="3")
    assert variables["HOPS_GPUS_BY_NODE"] == "n[1-2]:2;n4:1"
    names = "case $3 in n4) echo n4 ;; *) echo n1; echo n2 ;; esac"
    (node.folder / "scontrol").write_text(f"#!/bin/sh\n{names}\n")
    task_environment = {
        "SLURM_TASKS_PER_NODE": "1(x3)",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_NTASKS": "8",
    }
    task_environment |= {
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_GPUS_PER_NODE": "4",
        "TMPDIR": str(temporary),
    }
    asks = "shape:any|counted:yes|tasks:1/1|memory:default"
    result = node.call("task_prolog.sh", HOPS_ASKS=asks, **task_environment)
    exported_by_step = exports(result)
    (hosts,) = set(temporary.glob("hops-hosts.7.*")) - {temporary / "hops-hosts.7.earlier"}
    assert hosts.read_text().split() == ["n1", "n1", "n2", "n2", "n4"]
    assert stat.S_IMODE(hosts.stat().st_mode) == 0o600
    assert {name: text for name, text in exported_by_step.items() if name.startswith("SLURM_")} == {
        "SLURM_HOSTFILE": str(hosts),
        "SLURM_DISTRIBUTION": "arbitrary",
        "SLURM_NTASKS": "5",
        "SLURM_NPROCS": "5",
        "SLURM_TASKS_PER_NODE": "2,2,1",
        "SLURM_GPUS": "5",
    }
    assert {"unset SLURM_NTASKS_PER_NODE", "unset SLURM_GPUS_PER_NODE"} <= set(
        result.stdout.splitlines()
    )
    for changed_asks in (asks.replace("any", "even"), asks.replace("1/1", "1/2")):
        assert "SLURM_HOSTFILE" not in exports(
            node.call("task_prolog.sh", HOPS_ASKS=changed_asks, **task_environment)
        )
    (temporary / "hops-training.7.0.a").touch()
    end = {"SLURM_JOB_COMMENT": "hops:reqs=5", "SLURM_JOB_UID": str(os.getuid())}
    node.call("epilog.sh", **end, TMPDIR=str(temporary))
    wait_for(lambda: list(temporary.iterdir()) == [foreign_file])


def test_neither_root_nor_a_task_lists_users_files_in_tmp(node: Node, tmp_path: Path) -> None:
    """300,000 files of a job held up its node's epilog for six seconds and were not removed."""
    (temporary := tmp_path / "temporary").mkdir()
    for number in range(3000):
        (temporary / f"hops-hosts.7.{number}").touch()
    end = {"SLURM_JOB_COMMENT": "hops:reqs=5", "SLURM_JOB_UID": str(os.getuid())}
    start_time = time.monotonic()
    node.start("hops:reqs=5")
    node.call("epilog.sh", **end, TMPDIR=str(temporary))
    assert time.monotonic() - start_time < 5
    wait_for(lambda: not list(temporary.iterdir()))
    for script in ("epilog.sh", "task_prolog.sh"):
        text = (PLUGIN / script).read_text()
        assert not re.search(r"\brm\b.*\.\*", text), f"{script}: the shell keeps every name"


def test_files_made_after_the_end_remain(node: Node, tmp_path: Path) -> None:
    """The job's next run may make files here while those of the previous run are removed."""
    node.start("hops:reqs=5")
    node.call("epilog.sh", SLURM_JOB_COMMENT="hops:reqs=5")
    (temporary := tmp_path / "temporary").mkdir()
    (old := temporary / "hops-hosts.7.old").touch()
    os.utime(old, (0, 0))
    (new := temporary / "hops-hosts.7.new").touch()
    os.utime(new, (time.time() + 60,) * 2)
    node.start("hops:reqs=5")
    end = {"SLURM_JOB_COMMENT": "hops:reqs=5", "SLURM_JOB_UID": str(os.getuid())}
    node.call("epilog.sh", **end, TMPDIR=str(temporary))
    wait_for(lambda: list(temporary.iterdir()) == [new])


def test_the_process_that_saves_for_a_user_cannot_be_traced_by_them(
    memory_node: MemoryNode,
) -> None:
    """It runs outside the job's limits, as would code that the user could write into its memory."""
    if (
        "wake_alarm"
        not in subprocess.run(
            ["setpriv", "--list-caps"], capture_output=True, text=True, check=True
        ).stdout
    ):
        pytest.skip("no such capability here")
    memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(NOBODY_UID))
    trace = memory_node.folder / "trace"
    trace.mkdir()
    trace.chmod(0o777)
    (memory_node.folder / "save.sh").write_text(
        f"sleep 60 & echo $$ $! > {trace}/new; mv {trace}/new {trace}/pids; wait\n"
    )
    memory_node.end(NOBODY_UID)
    wait_for((trace / "pids").exists)
    pids = [int(pid) for pid in (trace / "pids").read_text().split()]
    user = ["setpriv", f"--reuid={NOBODY_UID}", f"--regid={NOBODY_UID}", "--clear-groups"]
    user_process = subprocess.Popen([*user, "sleep", "60"])
    wait_for(
        lambda: Path(f"/proc/{user_process.pid}/comm").read_text() == "sleep\n"
    )  # setpriv has become sleep
    try:
        are_writable = [
            subprocess.run(
                [*user, "sh", "-c", ": 1<> /proc/$0/mem", str(pid)],
                capture_output=True,
                check=False,
            ).returncode
            == 0
            for pid in (user_process.pid, *pids)
        ]
    finally:
        user_process.kill()
        user_process.wait()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert are_writable == [True, False, False]


@pytest.mark.parametrize("lacks", ["folder", "scontrol"])
def test_without_its_file_srun_fails_and_the_user_is_told(
    node: Node, tmp_path: Path, lacks: str
) -> None:
    """GPUs without a task would stay idle for the whole run."""
    fake_scontrol(node, DETAILS)
    node.start("hops:reqs=5;shape=any", gpus="", SLURM_JOB_NUM_NODES="3")
    fake_scontrol(node, "n1")
    folder = tmp_path / ("no such" if lacks == "folder" else "")
    task_environment = {"SLURM_TASKS_PER_NODE": "1(x3)", "SLURM_NTASKS": "8", "TMPDIR": str(folder)}
    asks = "shape:any|counted:yes|tasks:1/1|memory:default"
    output_before, _, output_after = node.call(
        "task_prolog.sh", HOPS_ASKS=asks, **task_environment
    ).stdout.partition("export")
    assert output_before == ""
    (message,) = [line for line in output_after.splitlines() if line.startswith("print ")]
    assert "cannot start a task for each of 5 GPUs on n[1-2]:2;n4:1" in message
    assert f"export SLURM_HOSTFILE={folder}/hops-hosts.7.missing" in output_after.splitlines()
    assert not list(tmp_path.glob("hops-hosts*"))


@pytest.mark.parametrize(
    ("cpus", "cores"),
    [
        ({"SLURM_CPUS_ON_NODE": "8"}, "4"),
        ({"SLURM_JOB_CPUS_PER_NODE": "8,24"}, "4"),
        ({"SLURM_JOB_CPUS_PER_NODE": "8,18"}, "3"),
        ({"SLURM_JOB_CPUS_PER_NODE": "4(x2)"}, "1"),  # as in 22.05
        ({}, "4"),
    ],
)
def test_tasks_of_uneven_nodes_have_the_cores_that_every_node_has(
    node: Node, tmp_path: Path, cpus: Mapping[str, str], cores: str
) -> None:
    details = "Nodes=n1 GRES=gpu:a:2(IDX:0-1) Nodes=n2 GRES=gpu:a:6(IDX:0-5) JOB_GRES=gpu:a:8"
    fake_scontrol(node, details)
    node.start("hops:reqs=8;shape=any", gpus="", SLURM_JOB_NUM_NODES="2")
    (node.folder / "scontrol").write_text('#!/bin/sh\necho "$3"\n')
    task_environment = {
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "HOPS_CPUS_PER_TASK": "4",
        "TMPDIR": str(tmp_path),
    }
    asks = "shape:any|counted:yes|tasks:1/1|memory:default"
    variables = exports(node.call("task_prolog.sh", HOPS_ASKS=asks, **task_environment, **cpus))
    assert (variables["SLURM_NTASKS"], variables["SLURM_CPUS_PER_TASK"]) == ("8", cores)


@dataclass(frozen=True)
class MemoryNode(Node):
    """A node whose jobs may keep their state in ``memory``, whose parent is like /dev/shm."""

    memory: Path

    def end(self, account: int, *, job: str = "7", path: str = "") -> None:
        """Run the epilog of a job and end its process group, as slurmd does."""
        epilog = subprocess.Popen(
            [self.folder / "epilog.sh"],
            env={"SLURM_JOB_ID": job, "SLURMD_NODENAME": "n1", "SLURM_JOB_COMMENT": "hops:reqs=1",
                 "SLURM_JOB_UID": str(account), "PATH": path},
            process_group=0,
        )  # fmt: skip
        assert epilog.wait(10) == 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(epilog.pid, signal.SIGKILL)

    def files(self) -> set[str]:
        return {str(file.relative_to(self.memory)) for file in self.memory.rglob("*")}


@pytest.fixture
def memory_node(open_node: Node) -> Iterator[MemoryNode]:
    folder = Path(tempfile.mkdtemp(prefix="hops-test-", dir="/dev/shm"))
    folder.chmod(0o1777)
    with (open_node.folder / "site.sh").open("a") as site:
        site.write(f"HOPS_STATE_DIR={folder}/hops\n")
    yield MemoryNode(open_node.folder, folder / "hops")
    shutil.rmtree(folder)


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_state_in_memory_is_saved_by_its_owner(memory_node: MemoryNode) -> None:
    memory, shared_folder = memory_node.memory / "7.n1", memory_node.folder / "shared"
    variables = memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(NOBODY_UID))
    assert variables["HOPS_STATE_DIR"] == str(memory)
    status = memory.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (NOBODY_UID, 0o700)
    assert (memory / "mounts").read_text().strip() == str(Path("/proc/self/ns/mnt").readlink())
    shared_folder.mkdir()
    os.chown(shared_folder, NOBODY_UID, NOBODY_UID)
    precious = memory_node.folder / "precious"
    precious.write_text("root's")
    for token, final in (("00000001-a", shared_folder / "run.pt"), ("00000002-b", precious)):
        (memory / f"{token}.state").write_text(f"state of {token}")
        (memory / f"{token}.to").write_text(f"{final}\n")
        incomplete_file = final.with_name(f".{final.name}.{token}.coming")
        incomplete_file.touch()
        for file in (memory / f"{token}.state", memory / f"{token}.to"):
            os.chown(file, NOBODY_UID, NOBODY_UID)
    os.chown(shared_folder / ".run.pt.00000001-a.coming", NOBODY_UID, NOBODY_UID)
    (memory / "a.spare").touch()
    memory_node.end(NOBODY_UID)
    wait_for(lambda: not (memory / "a.spare").exists())  # it is removed last
    assert (shared_folder / "run.pt").read_text() == "state of 00000001-a"
    assert (shared_folder / "run.pt").stat().st_uid == NOBODY_UID
    assert precious.read_text() == "root's"
    assert {file.name for file in memory.iterdir()} == {
        "mounts", "00000002-b.state", "00000002-b.to",
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["a folder", "a link", "a link on the way", "open to all"])
def test_memory_that_another_account_could_change_is_not_used(
    memory_node: MemoryNode, fault: str
) -> None:
    """In /dev/shm, anyone may create a link or a folder of this name before root does."""
    memory, target = memory_node.memory, memory_node.folder / "target"
    for precious in (target, target / "hops"):
        (precious / "5.n1").mkdir(parents=True)
        (precious / "5.n1" / "file").write_text("precious")
    if fault in {"a folder", "open to all"}:
        memory.mkdir()
        (memory / "7.n1").mkdir(mode=0o777)
        (memory / "7.n1").chmod(0o777)  # there, the other account could read what the job saves
        memory.chmod(0o777 if fault == "open to all" else 0o755)
        os.chown(memory, *((0, 0) if fault == "open to all" else (OTHER_UID, OTHER_UID)))
    elif fault == "a link":
        memory.symlink_to(target)  # root's link: some kernels do not follow another's
    else:
        (memory.parent / "link").symlink_to(target)
        os.chown(memory.parent / "link", OTHER_UID, OTHER_UID, follow_symlinks=False)
        with (memory_node.folder / "site.sh").open("a") as site:
            site.write(f"HOPS_STATE_DIR={memory.parent}/link/hops\n")
    before = sorted(target.rglob("*")), sorted(memory.parent.rglob("*"))
    variables = memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(OTHER_UID))
    assert "HOPS_STATE_DIR" not in variables
    memory_node.end(OTHER_UID, path=a_day_later(memory_node))
    time.sleep(0.3)  # by then, it would have started to sweep
    assert (sorted(target.rglob("*")), sorted(memory.parent.rglob("*"))) == before


def test_memory_is_not_used_by_default_and_nothing_is_logged(open_node: Node) -> None:
    log = open_node.folder / "said"
    logger = open_node.folder / "bin" / "logger"
    logger.parent.mkdir()
    logger.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    logger.chmod(0o755)
    shutil.copy(PLUGIN / "site.sh", open_node.folder)
    with (open_node.folder / "site.sh").open("a") as site:
        site.write(f"HOPS_RUN_DIR={open_node.run_dir}\n")
    variables = open_node.start(
        "hops:reqs=1", SLURM_JOB_UID=str(OTHER_UID), PATH=str(logger.parent)
    )
    assert "HOPS_STATE_DIR" not in variables
    assert not log.exists()
    with (open_node.folder / "site.sh").open("a") as site:
        site.write("HOPS_STATE_DIR=/no/such/folder\n")
    open_node.start("hops:reqs=1", SLURM_JOB_UID=str(OTHER_UID), PATH=str(logger.parent))
    assert "HOPS_STATE_DIR=/no/such/folder is not root's own" in log.read_text()


def a_day_later(node: Node) -> str:
    """Return a PATH whose `find` takes new files for a day old: nobody can set these times."""
    find = node.folder / "later" / "find"
    find.parent.mkdir(exist_ok=True)
    find.write_text(
        '#!/bin/sh\nfor word; do shift; [ "$word" = +1440 ] && word=-1440;'
        ' set -- "$@" "$word"; done\nexec /usr/bin/find "$@"\n'
    )
    find.chmod(0o755)
    return str(find.parent)


def test_memory_of_a_long_gone_job_is_freed(memory_node: MemoryNode) -> None:
    """It is freed as its owner; future timestamps do not keep it, and links are not followed."""
    memory, precious = memory_node.memory, memory_node.folder / "precious"
    precious.mkdir()
    (precious / "file").touch()
    memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(OTHER_UID))  # still present
    for name, owner in (("5.n1", OTHER_UID), ("6.n1", NOBODY_UID), ("not a job", OTHER_UID)):
        (memory / name / "deep").mkdir(parents=True)
        (memory / name / "deep" / "old").touch()
        (memory / name / "link").symlink_to(precious)
        os.utime(memory / name, (4e9, 4e9))
        for path in (memory / name, *(memory / name).rglob("*")):
            os.chown(path, owner, owner, follow_symlinks=False)
    (memory / "4.n1").symlink_to(precious)
    (memory / "3.n1").mkdir()  # its owner may not delete root's files, so they stay
    (memory / "3.n1" / "kept").mkdir()
    (memory / "3.n1" / "kept" / "file").touch()
    os.chown(memory / "3.n1", OTHER_UID, OTHER_UID)
    before = memory_node.files()
    memory_node.end(OTHER_UID, job="8")
    time.sleep(0.3)  # by then, it would have started
    assert memory_node.files() == before
    memory_node.end(OTHER_UID, job="8", path=a_day_later(memory_node))
    wait_for(lambda: not any((memory / name).exists() for name in ("5.n1", "6.n1")))
    remaining_files = {name for name in before if name.partition("/")[0] not in ("5.n1", "6.n1")}
    assert memory_node.files() == remaining_files
    assert (precious / "file").exists()


def test_state_in_memory_does_not_delay_the_epilog(memory_node: MemoryNode) -> None:
    """Root does not look into it either; a FIFO here stands for a link to a hanging server."""
    memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(NOBODY_UID))
    trace = memory_node.folder / "trace"
    trace.mkdir(mode=0o777)
    trace.chmod(0o777)
    (memory_node.folder / "save.sh").write_text(
        f"id -u > {trace}/by; sleep 60 & echo $! > {trace}/pid; wait\n"
    )
    os.mkfifo(memory_node.memory / "7.n1" / "a.to")
    start_time = time.monotonic()
    memory_node.end(NOBODY_UID)
    assert time.monotonic() - start_time < 8
    wait_for(lambda: (trace / "pid").exists() and (trace / "pid").read_text().strip() != "")
    os.kill(int((trace / "pid").read_text()), signal.SIGTERM)
    assert (trace / "by").read_text() == f"{NOBODY_UID}\n"


def test_an_earlier_jobs_folder_is_set_aside(memory_node: MemoryNode) -> None:
    """Slurm's job ids may start again from 1; root leaves the old folder's content alone."""
    memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(OTHER_UID))
    memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(NOBODY_UID))
    folders = [memory_node.memory / name for name in ("7.n1", "7.n1.old")]
    assert [folder.stat().st_uid for folder in folders] == [NOBODY_UID, OTHER_UID]


@pytest.mark.parametrize(
    "fault", ["good", "a FIFO", "a link", "a device", "sparse", "memory", "dead"]
)
def test_no_more_is_saved_than_the_jobs_limit(memory_node: MemoryNode, fault: str) -> None:
    """The job's limits do not apply while it is written."""
    memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(NOBODY_UID))
    job_folder = memory_node.memory / "7.n1"
    shared_folder = job_folder.parent if fault == "memory" else memory_node.folder
    incomplete_file, state = shared_folder / ".run.pt.1-a.coming", job_folder / "1-a.state"
    incomplete_file.touch()
    if fault == "a FIFO":
        os.mkfifo(state)
    elif fault in {"a link", "a device"}:
        state.symlink_to("/dev/zero" if fault == "a device" else memory_node.folder / "site.sh")
    else:
        state.write_text("state")
    if fault == "sparse":
        os.truncate(state, 2**24)
    if fault == "dead":
        incomplete_file.unlink()
        os.mkfifo(incomplete_file)
    (job_folder / "1-a.to").write_text(f"{shared_folder}/run.pt\n")
    save = ["/bin/sh", str(memory_node.folder / "save.sh"), str(job_folder)]
    subprocess.run(save, check=False, timeout=10)
    assert (shared_folder / "run.pt").exists() is (fault == "good")
    assert fault == "dead" or incomplete_file.exists() is (fault != "good")


def test_space_that_the_next_run_needs_is_left_to_it(memory_node: MemoryNode) -> None:
    memory_node.start("hops:reqs=1", SLURM_JOB_UID=str(NOBODY_UID))
    job_folder = memory_node.memory / "7.n1"
    (job_folder / "old.spare").touch()
    (job_folder / "1-a.to").touch()
    (job_folder / "1-a.state").touch()
    flock = memory_node.folder / "bin" / "flock"
    flock.parent.mkdir()
    flock.write_text(f"#!/bin/sh\ntouch {job_folder}/new.spare\n")
    flock.chmod(0o755)
    path = f"{flock.parent}:{os.environ['PATH']}"
    save = ["/bin/sh", str(memory_node.folder / "save.sh"), str(job_folder)]
    subprocess.run(save, check=True, timeout=10, env={"PATH": path})
    assert [file.name for file in job_folder.glob("*.spare")] == ["new.spare"]
