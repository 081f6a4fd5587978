"""Submission to a live slurmctld with job_submit.lua, by accounts without rights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fixtures_cluster import NOBODY, SLEEPER, as_user, submit, wait_until
from submit_live import (
    OWNER,
    by_owner,
    job_fields,
    queue,
    reading,
    sbatch,
    sbatch_script,
)

from examples.demo.cluster import PrivateCluster, slurm_release
from hopsd.model.reading import SlurmState

pytestmark = pytest.mark.live

SEGMENTS_SINCE, SEGMENT_FLAGS_SINCE = (24, 5), (26, 5)

CASES = json.loads((Path(__file__).parent / "comment_cases.json").read_text())


def test_a_hops_job_is_held_and_requests_only_its_smallest_count(
    cluster: PrivateCluster,
) -> None:
    requested_options = "--nodes=1 --ntasks=4 --cpus-per-task=2 --gres=gpu:rtx3090:4 --nodelist=n1"
    requested_options += " --ntasks-per-node=4 --mincpus=2 --no-requeue --time=60 --time-min=30"
    ignored_options = "--contiguous --threads-per-core=1 --spread-job --gres-flags=enforce-binding"
    ignored_options += " --use-min-nodes --oversubscribe"
    comment = "--comment=hops:reqs=2,6;preempt=yes"
    is_accepted, messages = sbatch(
        cluster, comment, *requested_options.split(), *ignored_options.split()
    )
    assert is_accepted
    for option in ignored_options.split():
        assert option.partition("=")[0] in messages.partition("accepted: ")[0]
    assert "--no-requeue is ignored" in messages
    assert "accepted: 2 or 6 GPUs, all on one node; held until its turn" in messages
    job = job_fields(cluster, queue(cluster)[0])
    word = "hops:asks|shape:node|counted:yes|tasks:1/1|cores:2/1|memory:default|preempt:yes"
    word += "|type:rtx3090|nodes:n1|traps:none|time_min:30"
    assert job["AdminComment"] == word
    assert (job["JobState"], job["Priority"], job["Requeue"]) == ("PENDING", "0", "1")
    sbatch(cluster, comment, "--time=60", "--time-min=30")
    plain = job_fields(cluster, max(queue(cluster), key=int))
    differ = {name for name in job.keys() | plain.keys() if job.get(name) != plain.get(name)}
    submit_line = {name for name in differ if name.startswith("--")}
    asked_for = {"TresPerJob", "NumCPUs", "TRES", "ReqTRES"}
    assert differ - submit_line - asked_for <= {
        *("JobId", "SubmitTime", "LastSchedEval", "AdminComment")
    }
    assert (job["NumCPUs"], plain["NumCPUs"]) == ("4", "1")
    assert re.fullmatch("gres[:/]gpu:rtx3090:2", job["TresPerJob"])
    assert re.fullmatch("gres[:/]gpu:2", plain["TresPerJob"])


def test_nothing_is_reported_as_ignored_if_nothing_was_requested(cluster: PrivateCluster) -> None:
    is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1", "--time=10", "--mem=1G")
    assert is_accepted
    assert "ignored" not in messages
    assert job_fields(cluster, queue(cluster)[0])["MinMemoryNode"] == "1G"


def test_options_do_not_prevent_another_placement(cluster: PrivateCluster) -> None:
    job = submit(cluster, "--nodes=1", "--ntasks=4", "--gres=gpu:8", "--nodelist=n0")
    shape = "reqnodelist=n4,n5 numnodes=2 tresPerJob= tresPerNode=gres:gpu:2 starttime=now"
    cluster.run("scontrol", "update", f"jobid={job}", *shape.split())
    cluster.run("scontrol", "release", job)
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING)
    assert reading(cluster, job).allocation.as_dict() == {"n4": 2, "n5": 2}


@pytest.mark.parametrize(
    ("preempt", "option", "requeue"),
    [
        ("", "--requeue", "1"),
        ("", "--no-requeue", "0"),
        (";preempt=yes", "--no-requeue", "1"),
        (";preempt=no", "--no-requeue", "0"),
        (";preempt=no", "--requeue", "1"),
    ],
)
def test_a_job_that_refuses_a_requeue_is_moved_only_if_its_comment_says_so(
    cluster: PrivateCluster, preempt: str, option: str, requeue: str
) -> None:
    is_accepted, messages = sbatch(cluster, f"--comment=hops:reqs=1{preempt}", option)
    assert is_accepted
    assert job_fields(cluster, queue(cluster)[0])["Requeue"] == requeue
    assert ("may restart on other nodes" in messages) == (
        requeue == "1" and preempt != ";preempt=no"
    )
    assert ("--no-requeue" in messages) == (option == "--no-requeue" and preempt != ";preempt=no")


def test_an_array_is_accepted_for_each_of_its_tasks(cluster: PrivateCluster) -> None:
    is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1", "--array=0-9%2")
    assert is_accepted
    assert "for each task of the array" in messages
    assert job_fields(cluster, queue(cluster)[0])["ArrayTaskId"] == "0-9%2"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (
            "--array=1-3 --dependency=singleton",
            "--dependency=singleton does not go with a job array",
        ),
        (
            "--constraint=rtx3090*2",
            "the number of nodes is hops' choice: leave '*N' out of --constraint",
        ),
        ("--gres=gpu:rtx3090:1,gpu:v100:1", "a hops job has GPUs of one type"),
        (
            "--gpus-per-node=rtx3090:1 --gpus-per-socket=v100:1 --sockets-per-node=1",
            "a hops job has GPUs of one type",
        ),
        ("--gpus-per-node=8 --nodes=2", "reqs=1 has no multiple of the 8 GPUs a node"),
        (
            "-N1 -n2 --gpus-per-task=2",
            "every count of reqs=1 must be a multiple of --gpus-per-task=2",
        ),
        ("--gres=gpu:2 --gpus-per-node=1", "the options ask for 1 and for 2 GPUs on a node"),
        ("-n4 --gpus-per-task=2", "GPUs per node must be a multiple of --gpus-per-task=2"),
    ],
)
def test_options_that_hops_cannot_plan_with_are_refused(
    cluster: PrivateCluster, options: str, word: str
) -> None:
    is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1", *options.split())
    assert not is_accepted
    assert (
        f"hops: {word}" in messages or "mutually exclusive" in messages
    )  # sbatch's own message in 26.05
    assert queue(cluster) == []


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--gpus=1", "shape:node|memory:default"),
        ("-N2 --gres=gpu:4 --gpus-per-node=4", "shape:even|per_node:4|memory:default"),
        ("-N2 --exclusive -c4", "shape:even|cores:2/1|memory:node|exclusive:yes"),
        ("--gres=gpu:4 --mem=0", "shape:node|memory:node"),
        ("--nodes=2 --gres=gpu:4 --mem=4G --exclusive", "shape:even|per_node:4|exclusive:yes"),
        (
            "-N2 --gpus-per-node=4 --ntasks-per-node=4",
            "shape:even|per_node:4|counted:yes|tasks:1/1|memory:default",
        ),
        (
            "-N2 --gpus-per-node=4 --ntasks-per-node=1 -c12",
            "shape:even|per_node:4|counted:yes|cores:3/1|memory:default",
        ),
        (
            "-N2 --ntasks-per-node=2 --gpus-per-task=2 -c6",
            "shape:even|per_node:4|counted:yes|tasks:1/2|cores:3/1|memory:default",
        ),
        ("--ntasks=4 --gpus-per-task=1", "shape:even|counted:yes|tasks:1/1|memory:default"),
        ("--ntasks=4 --gpus=4 --mem-per-cpu=1G", "shape:even|counted:yes|tasks:1/1|cores:1/1"),
        ("-n1 --gpus=2 --mem-per-cpu=1G", "shape:node|counted:yes|cores:1/2"),
        ("--gres=gpu:4 --mincpus=8", "shape:node|cores:2/1|memory:default"),
        ("--gres=gpu:4 --mincpus=8 -c12", "shape:node|cores:3/1|memory:default"),
        (
            "--gpus-per-socket=4 --sockets-per-node=1 --ntasks-per-node=1",
            "shape:node|counted:yes|memory:default",
        ),
        ("--gpus=4 --ntasks-per-gpu=1", "shape:even|counted:yes|tasks:1/1|memory:default"),
        ("-N1 --gpus=2 --mem-per-gpu=3G --cpus-per-gpu=4", "shape:node|cores:4/1|memory:3072"),
        (
            "-N1 --ntasks-per-node=3 --gres=gpu:4",
            "shape:node|counted:yes|tasks_each:3|memory:default",
        ),
        (
            "--ntasks=8 --ntasks-per-node=4 --gres=gpu:4",
            "shape:even|per_node:4|counted:yes|tasks:1/1|memory:default",
        ),
        ("--nodes=2 --gpus=8", "shape:even|memory:default"),
        (
            "--nodes=2 --gpus=8 --ntasks-per-node=4",
            "shape:even|per_node:4|counted:yes|tasks:1/1|memory:default",
        ),
        (
            "--nodes=2 --ntasks=2 --gpus-per-task=1",
            "shape:even|per_node:1|counted:yes|tasks:1/1|memory:default",
        ),
        ("-N1 -n1 --gpus-per-task=4", "shape:node|counted:yes|memory:default"),
        ("-N1 --gres=gpu:0", "shape:node|memory:default"),
        (
            "-N2 --exclusive --ntasks-per-node=8",
            "shape:even|counted:yes|tasks:1/1|memory:node|exclusive:yes",
        ),
        ("--time=5", "shape:any|memory:default"),
    ],
)
def test_options_are_passed_to_hopsd(cluster: PrivateCluster, options: str, word: str) -> None:
    is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=4,8", *options.split())
    if "mutually exclusive" in messages:
        pytest.skip(messages)  # sbatch itself refuses such a job
    assert is_accepted, messages
    assert "ignored" not in messages
    assert job_fields(cluster, queue(cluster)[0])["AdminComment"] == f"hops:asks|{word}|traps:none"


def test_whole_nodes_without_requested_gpus_have_all_memory(cluster: PrivateCluster) -> None:
    """Plain Slurm gives memory per core of these nodes; a job with GPUs gets memory per GPU."""
    assert sbatch(cluster, "--comment=hops:reqs=8", "--nodes=2", "--exclusive")[0]
    assert job_fields(cluster, queue(cluster)[0])["MinMemoryNode"] == "0"


@pytest.mark.parametrize(
    ("comment", "word"),
    [
        ("reqs=2,8;per_node=2", "shape:even|per_node:2|counted:yes|tasks:1/1|memory:default"),
        ("reqs=2,8;shape=even", "shape:even|counted:yes|tasks:1/1|memory:default"),
        ("reqs=2;shape=node", "shape:node|counted:yes|tasks:1/1|memory:default"),
    ],
)
def test_the_comment_overrides_the_options_shape(
    cluster: PrivateCluster, comment: str, word: str
) -> None:
    options = "--nodes=2 --gpus-per-node=4 --ntasks-per-node=4"
    is_accepted, messages = sbatch(cluster, f"--comment=hops:{comment}", *options.split())
    assert is_accepted, messages
    assert "ignored" not in messages
    assert job_fields(cluster, queue(cluster)[0])["AdminComment"] == f"hops:asks|{word}|traps:none"


@pytest.mark.parametrize(
    ("options", "reqs", "launch", "is_warned"),
    [
        ("--gres=gpu:4", "4", "torchrun --nproc_per_node=4", False),
        ("--gres=gpu:4", "2,4", "torchrun --nproc-per-node 4", True),
        ("--gres=gpu:4", "2,4", "# torchrun --nproc_per_node=4", False),
        ("--gres=gpu:4", "2,4", "torchrun --nproc_per_node=gpu", False),
        ("--gres=gpu:8 -N2", "8,16", "torchrun --nproc_per_node=8", False),
        ("--gres=gpu:8 -N2", "8,16", "torchrun --nproc_per_node=4", True),
        ("", "8", "torchrun --nproc_per_node=8", True),
        ("", "1", "torchrun --standalone --nproc_per_node=1", False),
        ("", "1,2", "torchrun --standalone --nproc_per_node=1", True),
        ("--gres=gpu:2", "1,2", "srun python t.py trainer.devices=2", True),
    ],
)
def test_a_hard_coded_count_is_reported(
    cluster: PrivateCluster, options: str, reqs: str, launch: str, is_warned: bool
) -> None:
    command = ("sbatch", "--output=/dev/null", "--chdir=/", f"--comment=hops:reqs={reqs}")
    result = as_user(cluster, OWNER, *command, *options.split(), f"--wrap={launch} train.py")
    assert result.returncode == 0
    assert ("the script fixes" in result.stderr) == is_warned


@pytest.mark.parametrize(
    ("reqs", "step", "is_warned"),
    [
        ("4,8", "srun -n 8 -c 2 python", True),
        ("4,8", "srun --label \\\n --ntasks=8 python", True),
        ("8", "srun -n8 python", False),
        ("4,8", "srun -n 2 -N2 hostname", False),
        ("4,8", "srun python t.py -n 8", False),
        ("4,8", "srun -n $SLURM_NTASKS python", False),
    ],
)
def test_a_step_with_a_hard_coded_number_of_tasks_is_reported(
    cluster: PrivateCluster, reqs: str, step: str, is_warned: bool
) -> None:
    options = "--output=/dev/null --chdir=/ --nodes=2 --gpus-per-node=4 --ntasks-per-node=4"
    wrap = (f"--comment=hops:reqs={reqs}", f"--wrap={step}")
    result = as_user(cluster, OWNER, "sbatch", *options.split(), *wrap)
    assert result.returncode == 0
    assert ("8 ranks (srun -n)" in result.stderr) == is_warned


@pytest.mark.parametrize(
    ("options", "is_warned"), [("--gpus=4 --nodes=1", True), ("--gpus-per-node=4 --nodes=2", False)]
)
def test_a_step_with_hard_coded_tasks_per_node_is_reported(
    cluster: PrivateCluster, options: str, is_warned: bool
) -> None:
    command = ("sbatch", "--output=/dev/null", "--chdir=/", "--comment=hops:reqs=4,8")
    wrap = "--wrap=srun -n$((SLURM_NNODES*4)) --ntasks-per-node=4 python"
    result = as_user(cluster, OWNER, *command, *options.split(), "--ntasks-per-node=4", wrap)
    assert result.returncode == 0
    assert ("4 ranks (srun --ntasks-per-node)" in result.stderr) == is_warned


@pytest.mark.parametrize(
    ("options", "reqs", "is_warned"),
    [
        ("--ntasks=4", "1", True),
        ("--nodes=1 --ntasks-per-node=4", "1,2", True),
        ("--ntasks=4", "1,2,4", False),
        ("--ntasks=4", "1-8", False),
        ("--ntasks=4 --gpus=1", "1", False),
        ("--nodes=2 --ntasks=2", "8", False),
    ],
)
def test_tasks_that_become_fewer_for_want_of_gpus_are_reported(
    cluster: PrivateCluster, options: str, reqs: str, is_warned: bool
) -> None:
    """Plain Slurm starts them all, on whatever GPUs there are."""
    is_accepted, messages = sbatch(cluster, f"--comment=hops:reqs={reqs}", *options.split())
    assert is_accepted, messages
    assert ("asks for 4 tasks and for no GPUs" in messages) == is_warned


def test_uneven_nodes_get_no_tasks_with_several_gpus(cluster: PrivateCluster) -> None:
    """Slurm assigns tasks by cores: nodes with 5 and 6 GPUs got 6 and 5 tasks."""
    comment = "--comment=hops:reqs=4,8;shape=any"
    options = "--nodes=2 --gpus-per-node=4"
    is_accepted, messages = sbatch(cluster, comment, *options.split(), "--ntasks-per-node=2")
    assert not is_accepted
    assert "shape=any goes with one task for each GPU" in messages
    for tasks_per_node in (1, 4):
        is_accepted, _ = sbatch(
            cluster, comment, *options.split(), f"--ntasks-per-node={tasks_per_node}"
        )
        assert is_accepted


@pytest.mark.parametrize(("option", "word"), [("2@10:00", "2@600"), ("1", "1")])
def test_switches_are_passed_on_with_their_time(
    cluster: PrivateCluster, option: str, word: str
) -> None:
    is_accepted, messages = sbatch(
        cluster, "--comment=hops:reqs=8", "--gpus=8", "-N2", f"--switches={option}"
    )
    assert is_accepted, messages
    fields = job_fields(cluster, queue(cluster)[0])
    assert fields["AdminComment"].endswith(f"|switches:{word}")
    assert "ReqSwitch" not in fields


def test_counts_excluded_by_the_options_are_named(cluster: PrivateCluster) -> None:
    options = "--nodes=2 --gpus-per-node=4"
    is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1,2,4,8", *options.split())
    assert is_accepted
    assert "accepted: 4 or 8 GPUs, 4 on each node (not 1,2, being no multiple of it" in messages


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_srun_and_salloc_are_accepted_for_sessions_only(
    cluster: PrivateCluster, command: str
) -> None:
    result = as_user(cluster, OWNER, command, "--chdir=/", "--comment=hops:reqs=1", "true")
    assert result.returncode != 0
    assert "for a session by srun or salloc, write hops:reqs=1;interactive" in result.stderr
    assert queue(cluster) == []


@pytest.mark.parametrize("options", ["", "--gres=gpu:2 --nodes=1 --ntasks=1"])
def test_a_session_is_held_without_a_shape_of_its_own(
    cluster: PrivateCluster, options: str
) -> None:
    asks = ("salloc", "--chdir=/", "--comment=hops:reqs=2;interactive", *options.split(), "true")
    result = as_user(cluster, OWNER, "timeout", "--signal=INT", "3", *asks)
    assert result.returncode != 0, "nobody places it here"
    assert "GPUs, all on one node" in result.stderr
    assert "as a session that nothing moves" in result.stderr


@pytest.mark.long
def test_slurmctld_accepts_and_refuses_as_the_table_says(cluster: PrivateCluster) -> None:
    def can_be_sent(text: str) -> bool:
        return "\0" not in text and len(text.encode()) <= 1024  # Slurm's own limit

    wrong = []
    for outcome, texts in CASES.items():
        for text in filter(can_be_sent, texts):
            is_accepted, messages = sbatch(cluster, f"--comment={text}", "--hold")
            ours = "hops: " in messages and "an ordinary job" not in messages
            expected = {"accepted": (True, True), "refused": (False, True)}
            if (is_accepted, ours) != expected.get(outcome, (True, False)):
                wrong.append((text, is_accepted, messages))
    assert wrong == []


def test_other_jobs_are_untouched(cluster: PrivateCluster) -> None:
    options = "--nodes=2 --ntasks=4 --gres=gpu:1 --nodelist=n1,n2 --no-requeue --nice=7"
    job = submit(cluster, *options.split(), script=SLEEPER, comment="not for hops", uid=OWNER)
    wait_until(lambda: job_fields(cluster, job)["JobState"] == "RUNNING")
    job_values = job_fields(cluster, job)
    assert (job_values["ReqNodeList"], job_values["NumNodes"], job_values["NumTasks"]) == (
        "n[1-2]",
        "2",
        "4",
    )
    assert (job_values["TresPerNode"][-5:], job_values["Requeue"], job_values["Nice"]) == (
        "gpu:1",
        "0",
        "7",
    )
    held_job = submit(cluster, "--hold", comment=None, uid=NOBODY)
    assert by_owner(cluster, "scontrol", "update", f"jobid={held_job}", "nice=3", "comment=x") == ""
    assert by_owner(cluster, "scontrol", "release", held_job) == ""
    wait_until(lambda: job_fields(cluster, held_job)["JobState"] == "RUNNING")


def test_a_segment_in_the_comment_is_passed_on(cluster: PrivateCluster) -> None:
    is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=8;segment=02", "--gpus=8", "-N2")
    assert is_accepted, messages
    assert "|segment:2" in job_fields(cluster, queue(cluster)[0])["AdminComment"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--segment=2", "segment:2"),
        ("--segment 2 --spread-segments", "segment:2|segments:spread"),
        (
            "--segment=1 --spread-segments --consolidate-segments",
            "segment:1|segments:spread,consolidate",
        ),
    ],
)
@pytest.mark.parametrize("option_source", ["script", "line"])
def test_segments_are_passed_on_and_slurm_does_not_group_nodes(
    cluster: PrivateCluster, options: str, words: str, option_source: str
) -> None:
    release = slurm_release()
    if release < SEGMENTS_SINCE or ("segments:" in words and release < SEGMENT_FLAGS_SINCE):
        pytest.skip(f"Slurm {release} has no such option")
    if option_source == "line" and release < SEGMENT_FLAGS_SINCE:
        pytest.skip("this Slurm does not tell job_submit.lua of --segment on sbatch's line")
    plain = ["--comment=hops:reqs=8", "--gpus=8", "-N2"]
    if option_source == "script":
        is_accepted, messages = sbatch_script(
            cluster, f"#!/bin/bash\n#SBATCH {options}\ntrue\n", *plain
        )
    else:
        is_accepted, messages = sbatch(cluster, *plain, *options.split())
    assert is_accepted, messages
    assert "ignored" not in messages
    assert ("in the comment in place of it" in messages) == (release < SEGMENT_FLAGS_SINCE)
    fields = job_fields(cluster, queue(cluster)[0])
    assert fields["AdminComment"].endswith(f"|{words}")
    assert release < SEGMENT_FLAGS_SINCE or fields["SegmentSize"] == "1"
