"""The submit plugin on a site: its settings, its own script, and the effect of defects."""

from __future__ import annotations

import time

import pytest
from fixtures_cluster import NOBODY, SLEEPER, node_states, running_cluster, submit, wait_until
from submit_live import (
    PLUGIN,
    by_owner,
    job_fields,
    plugin_text,
    queue,
    reading,
    sbatch,
    submit_script,
)

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.reading import Hold, SlurmState
from hopsd.setup.site_script import with_call

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("line", "defect"),
    [
        ("  job.priority = 0\n", '  job.priority = 0; error("injected")\n'),
        ("  job.priority = 0\n", "  job.priority = 0; job.no_such.field = 1\n"),
        ("  clear_shape(job)\n", "  clear_shape(job); clear_shape(nil)\n"),
        ("values, asked, word)\n  return slurm.SUCCESS\nend", "values, asked, word)\nend"),
    ],
)
def test_a_defect_lets_no_hops_job_through(cluster: PrivateCluster, line: str, defect: str) -> None:
    text = plugin_text()
    assert text.count(line) == 1
    with submit_script(cluster, text.replace(line, defect)):
        is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1")
        assert not is_accepted
        assert "hops: refused, since the submit plugin failed" in messages
        assert queue(cluster) == []
        assert sbatch(cluster)[0], "jobs without a hops comment pass"
    assert sbatch(cluster, "--comment=hops:reqs=1")[0]


@pytest.mark.parametrize("broken_script", ["this is not lua", 'error("at load")', ""])
def test_a_script_that_does_not_load_keeps_the_previous_one_in_force(
    cluster: PrivateCluster, broken_script: str
) -> None:
    assert sbatch(cluster, "--comment=hops:reqs=1")[0]
    with submit_script(cluster, broken_script):
        assert not sbatch(cluster, "--comment=hops:reqs=0")[0]
        assert "accepted: 1 GPU" in sbatch(cluster, "--comment=hops:reqs=1")[1]


def test_an_administrator_chooses_the_partitions(cluster: PrivateCluster) -> None:
    cluster.run("scontrol", "create", "partition=hops", "nodes=ALL", "state=UP")
    try:
        with submit_script(cluster, plugin_text(), 'return { partitions = { "hops" } }'):
            is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1", "--partition=main")
            assert not is_accepted
            assert "partition 'main' takes no hops jobs: choose from hops" in messages
            assert not sbatch(cluster, "--comment=hops:reqs=1", "--partition=hops,main")[0]
            job = submit(cluster, uid=NOBODY)
            assert job_fields(cluster, job)["Partition"] == "hops"
            refusal = by_owner(cluster, "scontrol", "update", f"jobid={job}", "partition=main")
            assert "denied" in refusal
            assert sbatch(cluster, "--partition=main")[0], "other jobs go anywhere"
            cluster.run("scancel", *queue(cluster))
            wait_until(lambda: not queue(cluster))
    finally:
        cluster.run("scontrol", "delete", "partition=hops")


@pytest.mark.parametrize(
    ("site", "word"),
    [
        ("return {", "near '<eof>'"),
        ("return 1", "must return a table"),
        ('return { partition = { "main" } }', "the keys are partitions, operators and signal"),
        ('return { partitions = "main" }', "must be a list"),
        ('return { operators = { "hops" } }', "list of numbers"),
        ("return { signal = 10 }", "signal must be a name"),
        ('error("boom")', "boom"),
    ],
)
def test_a_broken_site_file_is_named_and_allows_nothing(
    cluster: PrivateCluster, site: str, word: str
) -> None:
    with submit_script(cluster, plugin_text(), site):
        is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1")
        assert not is_accepted
        assert "hops_site.lua" in messages
        assert word in messages
        assert sbatch(cluster)[0]


ROUTES = """
function slurm_job_submit(job, partitions, uid)
  local gres = job.tres_per_node or job.tres_per_job or ""
  if job.partition == nil and gres:find("gpu") then job.partition = "main" end
  if job.partition == "main" and not gres:find("gpu") then
    slurm.log_user("the partition main is for GPU jobs: add --gres=gpu:1")
    return 2072
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end

slurm.log_info("initialized")
return slurm.SUCCESS
"""
"""Chooses partitions by request; it would refuse all jobs with the options that hops leaves."""

DEFAULTS = """
local common = dofile("{folder}/common.lua")
slurm_job_submit = function(job, partitions, uid)
  if job.time_limit == slurm.NO_VAL then job.time_limit = common.limit end
  if job.name == "fails" then local nothing; return nothing.field end
end
slurm_job_modify = function(job, record)
  if job.time_limit ~= nil and job.time_limit ~= slurm.NO_VAL and job.time_limit > common.limit then
    return slurm.ERROR
  end
end
"""
"""Defaults and limits, in two files, with functions that return nothing."""

ACCOUNTING_SCRIPT = """
-- Rules of the centre. All changes are the centre's.
local function refuse(text) slurm.log_user(text) return slurm.ERROR end
function slurm_job_submit(job, partitions, uid)
  if job.name == "bad" then return refuse("no such project") end
  local comment = job.comment or job.name == "train" and "hops:reqs=1" or ""
  job.comment = "project=" .. job.user_name .. "; " .. comment
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  return refuse("jobs are not changed here")
end
return 0
"""
"""Writes comments for accounting and refuses all changes, even hopsd's: no job would start."""


def called_by(cluster: PrivateCluster, rules: str) -> str:
    return with_call(rules.replace("{folder}", str(cluster.directory)), PLUGIN / "job_submit.lua")


def starts(cluster: PrivateCluster, job: str, node: str = "n1") -> None:
    shape = f"reqnodelist={node} numnodes=1 tresPerJob= tresPerNode=gres:gpu:1 starttime=now"
    cluster.run("scontrol", "update", f"jobid={job}", *shape.split())
    cluster.run("scontrol", "release", job)
    wait_until(lambda: reading(cluster, job).state is SlurmState.RUNNING)


def test_site_rules_see_the_options_of_hops_jobs(cluster: PrivateCluster) -> None:
    with submit_script(cluster, called_by(cluster, ROUTES)):
        is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1", "--partition=main")
        assert not is_accepted
        assert "is for GPU jobs" in messages
        assert not sbatch(cluster, "--partition=main")[0]
        assert not sbatch(cluster, "--comment=hops:reqs=0", "--gres=gpu:1")[0]
        is_accepted, messages = sbatch(cluster, "--comment=hop:reqs=1", "--gres=gpu:1")
        assert is_accepted
        assert (
            "an ordinary job: to have hops place it, begin the comment with hops:reqs=" in messages
        )
        job = submit(cluster, "--gres=gpu:1", script=SLEEPER)
        assert job_fields(cluster, job)["Partition"] == "main"
        assert reading(cluster, job).hold is Hold.HOPS
        starts(cluster, job)


def test_site_rules_that_set_defaults_apply_to_hops_jobs(cluster: PrivateCluster) -> None:
    (cluster.directory / "common.lua").write_text("return { limit = 30 }")
    with submit_script(cluster, called_by(cluster, DEFAULTS)):
        job = submit(cluster, "--gres=gpu:1", script=SLEEPER, uid=NOBODY)
        assert job_fields(cluster, job)["TimeLimit"] == "00:30:00"
        assert by_owner(cluster, "scontrol", "update", f"jobid={job}", "timelimit=60")
        assert by_owner(cluster, "scontrol", "update", f"jobid={job}", "timelimit=20") == ""
        is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1", "--job-name=fails")
        assert not is_accepted
        assert "the site's submit script failed" in messages
        starts(cluster, job)


def test_site_rules_that_write_comments_or_refuse_changes_block_no_start(
    cluster: PrivateCluster,
) -> None:
    with submit_script(
        cluster, called_by(cluster, ACCOUNTING_SCRIPT), "return { partitions = { 'main' } }"
    ):
        assert not sbatch(cluster, "--comment=hops:reqs=1", "--job-name=bad")[0]
        job = submit(cluster, script=SLEEPER, comment="hops:reqs=1", uid=NOBODY)
        assert "project=nobody; hops:reqs=1" in cluster.run("scontrol", "show", "job", "-o", job)
        assert by_owner(cluster, "scontrol", "update", f"jobid={job}", "name=x")
        starts(cluster, job)
        is_accepted, messages = sbatch(cluster, "--job-name=train")
        assert is_accepted
        assert "accepted: 1 GPU" in messages


def test_the_settings_beside_the_script_that_slurm_loads_are_used(cluster: PrivateCluster) -> None:
    """setup writes hopsd's uid into the file there; without it, every start was refused."""
    site = 'return { partitions = { "none" } }'
    with submit_script(cluster, called_by(cluster, ROUTES), site):
        is_accepted, messages = sbatch(cluster, "--comment=hops:reqs=1", "--gres=gpu:1")
        assert not is_accepted
        assert "takes no hops jobs: choose from none" in messages


def test_the_reference_settings_start_a_cluster_with_shared_nodes() -> None:
    lines = (PLUGIN / "slurm.conf.hops").read_text().splitlines()
    settings = [line for line in lines if line and not line.startswith("#")]
    extra = [line for line in settings if "/etc/hops/" not in line]
    assert len(settings) - len(extra) == 2, "prolog and epilog"
    node = NodeSpec("a100", gpus=4)  # 64,000 MB, which is 16,000 MB per GPU
    with running_cluster(nodes=(node,), extra_conf=extra) as cluster:
        jobs = [submit(cluster, script=SLEEPER) for _ in range(2)]
        for job in jobs:
            shape = "reqnodelist=n0 numnodes=1 tresPerJob= tresPerNode=gres:gpu:2 starttime=now"
            cluster.run("scontrol", "update", f"jobid={job}", *shape.split())
            cluster.run("scontrol", "release", job)
        wait_until(lambda: all(reading(cluster, job).state is SlurmState.RUNNING for job in jobs))


@pytest.mark.parametrize("lines", [[], ["JobFileAppend=1"]], ids=["as Slurm", "as setup offers"])
def test_a_restart_appends_to_the_output_by_default(lines: list[str]) -> None:
    with running_cluster(nodes=(NodeSpec("a100", gpus=1),), extra_conf=lines) as cluster:
        folder = cluster.directory / "outputs"
        folder.mkdir()
        folder.chmod(0o777)
        output, runs = folder / "output", folder / "runs"
        text = f"echo start; echo run >> {runs}; sleep 600"
        is_accepted, messages = sbatch(
            cluster, "--comment=hops:reqs=1", f"--output={output}", f"--wrap={text}"
        )
        assert is_accepted
        (job,) = queue(cluster)
        starts(cluster, job, "n0")
        wait_until(runs.exists)
        cluster.run("scontrol", "requeuehold", job)
        wait_until(lambda: reading(cluster, job).state is SlurmState.PENDING)
        wait_until(lambda: node_states(cluster)["n0"] == "idle")
        time.sleep(1.1)  # within a second of the job's kill, no credential is valid
        starts(cluster, job, "n0")
        wait_until(lambda: runs.read_text().count("run") == 2)
        keeps_output = output.read_text().splitlines().count("start") == 2
        assert (keeps_output, "empties its output file" not in messages) == (
            bool(lines),
            bool(lines),
        )
