"""job_submit.lua inside a live slurmctld, used by accounts without rights."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_cluster import NOBODY, SLEEPER, as_user, submit, wait_until

from examples.demo.cluster import PrivateCluster
from hopsd.model.reading import USER_HOLD_BEGIN, Hold, JobReading, SlurmState
from hopsd.slurm.adapter import RELEASED

pytestmark = pytest.mark.live

PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
CASES = json.loads((Path(__file__).parent / "comment_cases.json").read_text())
OWNER = NOBODY if os.geteuid() == 0 else None


def sbatch(cluster: PrivateCluster, *options: str) -> tuple[bool, str]:
    """Whether a job was made, and what its user was told."""
    command = ("sbatch", "--output=/dev/null", "--chdir=/", "--wrap=sleep 600")
    done = as_user(cluster, OWNER, *command, *options)
    return done.returncode == 0, done.stderr


def shown(cluster: PrivateCluster, job: str) -> dict[str, str]:
    text = cluster.run("scontrol", "show", "job", "--oneliner", job)
    return dict(re.findall(r"(\S+?)=(\S*)", text))


def reading(cluster: PrivateCluster, job: str) -> JobReading:
    return next(one for one in cluster.read_jobs() if one.id == job)


def queue(cluster: PrivateCluster) -> list[str]:
    return cluster.run("squeue", "--all", "--noheader", "--format=%A").split()


def by_owner(cluster: PrivateCluster, *command: str) -> str:
    """ "" or Slurm's refusal of the owner's command."""
    done = as_user(cluster, NOBODY, *command)
    return done.stderr.strip() or ("" if done.returncode == 0 else "refused")


@contextlib.contextmanager
def installed(cluster: PrivateCluster, script: str, site: str | None = None) -> Iterator[None]:
    """Another job_submit.lua for a while. Slurm loads it again where its mtime grew."""
    path, site_path = (cluster.directory / name for name in ("job_submit.lua", "hops_site.lua"))
    ours = path.read_text()

    def write(text: str) -> None:
        newer = path.stat().st_mtime + 2
        path.write_text(text)
        os.utime(path, (newer, newer))

    if site is not None:
        site_path.write_text(site)
    write(script)
    try:
        yield
    finally:
        site_path.unlink(missing_ok=True)
        write(ours)


def plugin_text() -> str:
    return (PLUGIN / "job_submit.lua").read_text()


def test_a_hops_job_is_held_and_free_of_any_shape(cluster: PrivateCluster) -> None:
    asked = "--nodes=1 --ntasks=4 --cpus-per-task=2 --gres=gpu:rtx3090:1 --nodelist=n1 --exclusive"
    asked += " --ntasks-per-node=4 --contiguous --no-requeue --threads-per-core=1 --spread-job"
    asked += " --gres-flags=enforce-binding --use-min-nodes --switches=1 --mincpus=2"
    made, told = sbatch(cluster, "--comment=hops:reqs=2,6", *asked.split())
    assert made
    for option in asked.split():
        assert option.partition("=")[0] in told
    assert "--no-requeue is ignored" in told
    assert "accepted with reqs=2,6" in told
    job = shown(cluster, queue(cluster)[0])
    assert (job["JobState"], job["Priority"], job["Requeue"]) == ("PENDING", "0", "1")
    sbatch(cluster, "--comment=hops:reqs=2,6")
    plain = shown(cluster, max(queue(cluster), key=int))
    differ = {name for name in job.keys() | plain.keys() if job.get(name) != plain.get(name)}
    submit_line = {name for name in differ if name.startswith("--")}
    assert differ - submit_line <= {"JobId", "SubmitTime", "LastSchedEval"}


def test_it_tells_nothing_to_ignore_where_nothing_was_asked(cluster: PrivateCluster) -> None:
    made, told = sbatch(cluster, "--comment=hops:reqs=1", "--time=10", "--mem=1G")
    assert made
    assert "ignored" not in told
    assert shown(cluster, queue(cluster)[0])["MinMemoryNode"] == "1G"


def test_what_was_asked_does_not_stand_in_the_way_of_a_placement(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--nodes=1", "--ntasks=4", "--gres=gpu:rtx3090:8", "--nodelist=n0")
    shape = "reqnodelist=n4,n5 numnodes=2 tresPerNode=gres:gpu:2 starttime=now"
    cluster.run("scontrol", "update", f"jobid={job}", *shape.split())
    cluster.run("scontrol", "release", job)
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING, 15)
    assert reading(cluster, job).allocation.as_dict() == {"n4": 2, "n5": 2}


@pytest.mark.parametrize(
    ("preempt", "option", "requeue"),
    [
        ("", "--requeue", "1"),
        ("", "--no-requeue", "1"),
        (";preempt=no", "--no-requeue", "0"),
        (";preempt=no", "--requeue", "1"),
    ],
)
def test_only_a_job_that_never_moves_may_refuse_a_requeue(
    cluster: PrivateCluster, preempt: str, option: str, requeue: str
) -> None:
    job = submit(cluster, option, comment=f"hops:reqs=1{preempt}")
    assert shown(cluster, job)["Requeue"] == requeue


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--constraint=v100", "--constraint is not accepted"),
        ("--exclude=n1", "--exclude is not accepted"),
        ("--licenses=matlab", "--licenses is not accepted"),
        ("--array=1-3", "job arrays are not accepted"),
        ("--mem=0", "--mem=0 takes a whole node"),
        ("--gpus=1 --mem-per-gpu=1G", "--mem-per-gpu is not accepted"),
    ],
)
def test_what_hops_cannot_plan_with_is_refused(
    cluster: PrivateCluster, options: str, word: str
) -> None:
    made, told = sbatch(cluster, "--comment=hops:reqs=1", *options.split())
    assert not made
    assert f"hops: {word}" in told
    assert queue(cluster) == []


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_interactive_jobs_are_refused(cluster: PrivateCluster, command: str) -> None:
    done = as_user(cluster, OWNER, command, "--chdir=/", "--comment=hops:reqs=1", "true")
    assert done.returncode != 0
    assert "hops: accepted are batch jobs" in done.stderr
    assert queue(cluster) == []


def test_slurmctld_accepts_and_refuses_as_the_table_says(cluster: PrivateCluster) -> None:
    def can_be_sent(text: str) -> bool:
        return "\0" not in text and len(text.encode()) <= 1024  # Slurm's own limit

    wrong = []
    for outcome, texts in CASES.items():
        for text in filter(can_be_sent, texts):
            made, told = sbatch(cluster, f"--comment={text}", "--hold")
            ours = "hops: " in told
            expected = {"accepted": (True, True), "refused": (False, True)}
            if (made, ours) != expected.get(outcome, (True, False)):
                wrong.append((text, made, told))
    assert wrong == []


def test_other_jobs_are_untouched(cluster: PrivateCluster) -> None:
    options = "--nodes=2 --ntasks=4 --gres=gpu:1 --nodelist=n1,n2 --no-requeue --nice=7"
    job = submit(cluster, *options.split(), script=SLEEPER, comment="not for hops", uid=OWNER)
    wait_until(lambda: shown(cluster, job)["JobState"] == "RUNNING", 15)
    got = shown(cluster, job)
    assert (got["ReqNodeList"], got["NumNodes"], got["NumTasks"]) == ("n[1-2]", "2", "4")
    assert (got["TresPerNode"][-5:], got["Requeue"], got["Nice"]) == ("gpu:1", "0", "7")
    held = submit(cluster, "--hold", comment=None, uid=NOBODY)
    assert by_owner(cluster, "scontrol", "update", f"jobid={held}", "nice=3", "comment=x") == ""
    assert by_owner(cluster, "scontrol", "release", held) == ""
    wait_until(lambda: shown(cluster, held)["JobState"] == "RUNNING", 15)


@pytest.mark.parametrize(
    "change",
    [
        "nice=5",
        "priority=100",
        "comment=",
        "comment=hops:reqs=8",
        "reqnodelist=n1",
        "reqnodelist=",
        "excnodelist=n1",
        "numnodes=2",
        "numcpus=4",
        "numtasks=2",
        "mincpusnode=2",
        "gres=gpu:1",
        "gres=",
        "features=v100",
        "requeue=0",
        "oversubscribe=yes",
        "contiguous=1",
        "name=innocent nice=5",
    ],
)
def test_the_owner_cannot_start_or_shape_the_job(cluster: PrivateCluster, change: str) -> None:
    job = submit(cluster, uid=NOBODY)
    before = shown(cluster, job)
    refusal = by_owner(cluster, "scontrol", "update", f"jobid={job}", *change.split())
    assert "denied" in refusal
    assert shown(cluster, job) == {**before, "RunTime": shown(cluster, job)["RunTime"]}


def test_the_trap_is_real_a_nice_value_starts_a_held_job(cluster: PrivateCluster) -> None:
    job = submit(cluster, script=SLEEPER)
    cluster.run("scontrol", "update", f"jobid={job}", "nice=5")
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING, 15)


def test_the_owner_may_change_what_leaves_hold_and_shape_alone(cluster: PrivateCluster) -> None:
    other = submit(cluster, uid=NOBODY)
    job = submit(cluster, "--time=60", uid=NOBODY)
    changes = f"name=mine timelimit=30 partition=main dependency=afterany:{other}"
    assert by_owner(cluster, "scontrol", "update", f"jobid={job}", *changes.split()) == ""
    got = shown(cluster, job)
    assert (got["JobName"], got["TimeLimit"], got["Priority"]) == ("mine", "00:30:00", "0")
    assert reading(cluster, job).dependency


def test_an_owner_holds_and_releases_what_stays_held_by_hops(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    assert reading(cluster, job).hold is Hold.HOPS
    for _ in range(2):
        assert by_owner(cluster, "scontrol", "hold", job) == ""
        assert reading(cluster, job).hold is Hold.USER
        assert reading(cluster, job).begin == USER_HOLD_BEGIN
        assert by_owner(cluster, "scontrol", "release", job) == ""
        assert reading(cluster, job).hold is Hold.HOPS
        assert reading(cluster, job).begin <= time.time()
    assert shown(cluster, job)["Priority"] == "0"


def test_a_job_submitted_with_hold_waits_for_its_owner(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--hold", uid=NOBODY)
    assert reading(cluster, job).hold is Hold.USER
    assert by_owner(cluster, "scontrol", "release", job) == ""
    assert reading(cluster, job).hold is Hold.HOPS


def test_an_owners_release_does_not_undo_an_administrators_hold(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    cluster.run("scontrol", "hold", job)
    by_owner(cluster, "scontrol", "release", job)
    assert shown(cluster, job)["Reason"] == "JobHeldAdmin"
    assert by_owner(cluster, "scontrol", "hold", job) == ""
    assert reading(cluster, job).hold is Hold.USER


def test_a_running_job_is_kept_back_by_requeue_and_hold(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    cluster.run("scontrol", "release", job)
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING, 15)
    assert "denied" in by_owner(cluster, "scontrol", "hold", job)
    assert by_owner(cluster, "scontrol", "requeue", job) == ""
    wait_until(lambda: reading(cluster, job).state is SlurmState.PENDING, 20)
    assert by_owner(cluster, "scontrol", "hold", job) == ""
    assert reading(cluster, job).hold is Hold.USER


def test_no_job_joins_hops_later(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--hold", comment="mine", uid=NOBODY)
    refusal = by_owner(cluster, "scontrol", "update", f"jobid={job}", "comment=hops:reqs=1")
    assert "denied" in refusal
    assert shown(cluster, job)["Comment"] == "mine"


def test_a_job_given_back_to_slurm_is_its_owners_again(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    cluster.run("scontrol", "update", f"jobid={job}", f"admincomment={RELEASED}")
    assert by_owner(cluster, "scontrol", "update", f"jobid={job}", "nice=5") == ""
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING, 15)


@pytest.mark.parametrize(
    ("line", "defect"),
    [
        ("  job.priority = 0\n", '  job.priority = 0; error("injected")\n'),
        ("  job.priority = 0\n", "  job.priority = 0; job.no_such.field = 1\n"),
        ("  clear_shape(job)\n", "  clear_shape(job); clear_shape(nil)\n"),
        ("  return slurm.SUCCESS\nend\n\nlocal function guarded", "end\nlocal function guarded"),
    ],
)
def test_a_defect_lets_no_hops_job_through(cluster: PrivateCluster, line: str, defect: str) -> None:
    text = plugin_text()
    assert text.count(line) == 1
    with installed(cluster, text.replace(line, defect)):
        made, told = sbatch(cluster, "--comment=hops:reqs=1")
        assert not made
        assert "hops: refused, since the submit plugin failed" in told
        assert queue(cluster) == []
        assert sbatch(cluster)[0], "jobs without a hops comment pass"
    assert sbatch(cluster, "--comment=hops:reqs=1")[0]


def test_a_defect_in_the_guard_lets_no_change_through(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    line = "local function modify(job, record)\n"
    with installed(cluster, plugin_text().replace(line, line + '  error("injected")\n')):
        for change in ("nice=5", "name=other"):
            assert "denied" in by_owner(cluster, "scontrol", "update", f"jobid={job}", change)
        cluster.run("scontrol", "update", f"jobid={job}", "name=by-root")
    assert shown(cluster, job)["JobName"] == "by-root"
    assert shown(cluster, job)["Priority"] == "0"


@pytest.mark.parametrize("broken", ["this is not lua", 'error("at load")', ""])
def test_a_script_that_does_not_load_leaves_the_last_one_in_force(
    cluster: PrivateCluster, broken: str
) -> None:
    assert sbatch(cluster, "--comment=hops:reqs=1")[0]
    with installed(cluster, broken):
        assert not sbatch(cluster, "--comment=hops:reqs=0")[0]
        assert "accepted with" in sbatch(cluster, "--comment=hops:reqs=1")[1]


def test_an_administrator_chooses_the_partitions(cluster: PrivateCluster) -> None:
    cluster.run("scontrol", "create", "partition=hops", "nodes=ALL", "state=UP")
    try:
        with installed(cluster, plugin_text(), 'return { partitions = { "hops" } }'):
            made, told = sbatch(cluster, "--comment=hops:reqs=1", "--partition=main")
            assert not made
            assert "partition 'main' takes no hops jobs; accepted are hops" in told
            assert not sbatch(cluster, "--comment=hops:reqs=1", "--partition=hops,main")[0]
            job = submit(cluster, uid=NOBODY)
            assert shown(cluster, job)["Partition"] == "hops"
            moved = by_owner(cluster, "scontrol", "update", f"jobid={job}", "partition=main")
            assert "denied" in moved
            assert sbatch(cluster, "--partition=main")[0], "other jobs go anywhere"
            cluster.run("scancel", *queue(cluster))
            wait_until(lambda: not queue(cluster), 20)
    finally:
        cluster.run("scontrol", "delete", "partition=hops")


@pytest.mark.parametrize(
    ("site", "word"),
    [
        ("return {", "near '<eof>'"),
        ("return 1", "must return a table"),
        ('return { partition = { "main" } }', "accepted are partitions and operators"),
        ('return { partitions = "main" }', "must be a list"),
        ('return { operators = { "hops" } }', "list of numbers"),
        ('error("boom")', "boom"),
    ],
)
def test_a_broken_site_file_is_named_and_opens_nothing(
    cluster: PrivateCluster, site: str, word: str
) -> None:
    with installed(cluster, plugin_text(), site):
        made, told = sbatch(cluster, "--comment=hops:reqs=1")
        assert not made
        assert "hops_site.lua" in told
        assert word in told
        assert sbatch(cluster)[0]


def test_operators_of_the_site_may_release(cluster: PrivateCluster) -> None:
    job = submit(cluster, uid=NOBODY)
    with installed(cluster, plugin_text(), f"return {{ operators = {{ {NOBODY} }} }}"):
        assert by_owner(cluster, "scontrol", "release", job) == ""
        wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING, 15)


def test_a_sites_own_script_may_call_ours(cluster: PrivateCluster) -> None:
    own = f"""
        dofile("{PLUGIN / "job_submit.lua"}")
        local hops_submit = slurm_job_submit
        function slurm_job_submit(job, partitions, uid)
          local answer = hops_submit(job, partitions, uid)
          if answer ~= slurm.SUCCESS then return answer end
          if job.name == "bad" then return slurm.ERROR end
          return slurm.SUCCESS
        end
        return slurm.SUCCESS
    """
    with installed(cluster, own):
        assert not sbatch(cluster, "--comment=hops:reqs=0")[0]
        assert not sbatch(cluster, "--comment=hops:reqs=1", "--job-name=bad")[0]
        assert not sbatch(cluster, "--job-name=bad")[0]
        job = submit(cluster)
        assert reading(cluster, job).hold is Hold.HOPS
