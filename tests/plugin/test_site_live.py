"""The submit plugin of a site: its choices, its own script, and what defects do."""

from __future__ import annotations

import pytest
from fixtures_cluster import NOBODY, SLEEPER, running_cluster, submit, wait_until
from submit_live import (
    PLUGIN,
    by_owner,
    installed,
    plugin_text,
    queue,
    reading,
    sbatch,
    shown,
)

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.reading import Hold, SlurmState

pytestmark = pytest.mark.live


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


@pytest.mark.parametrize("broken", ["this is not lua", 'error("at load")', ""])
def test_a_script_that_does_not_load_leaves_the_last_one_in_force(
    cluster: PrivateCluster, broken: str
) -> None:
    assert sbatch(cluster, "--comment=hops:reqs=1")[0]
    with installed(cluster, broken):
        assert not sbatch(cluster, "--comment=hops:reqs=0")[0]
        assert "accepted: 1 GPU" in sbatch(cluster, "--comment=hops:reqs=1")[1]


def test_an_administrator_chooses_the_partitions(cluster: PrivateCluster) -> None:
    cluster.run("scontrol", "create", "partition=hops", "nodes=ALL", "state=UP")
    try:
        with installed(cluster, plugin_text(), 'return { partitions = { "hops" } }'):
            made, told = sbatch(cluster, "--comment=hops:reqs=1", "--partition=main")
            assert not made
            assert "partition 'main' takes no hops jobs: choose from hops" in told
            assert not sbatch(cluster, "--comment=hops:reqs=1", "--partition=hops,main")[0]
            job = submit(cluster, uid=NOBODY)
            assert shown(cluster, job)["Partition"] == "hops"
            moved = by_owner(cluster, "scontrol", "update", f"jobid={job}", "partition=main")
            assert "denied" in moved
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
        ('return { partition = { "main" } }', "the keys are partitions and operators"),
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


def test_the_reference_settings_start_a_cluster_that_shares_its_nodes() -> None:
    lines = (PLUGIN / "slurm.conf.hops").read_text().splitlines()
    settings = [line for line in lines if line and not line.startswith("#")]
    extra = [line for line in settings if "/etc/hops/" not in line]
    assert len(settings) - len(extra) == 2, "prolog and epilog"
    node = NodeSpec("a100", gpus=4)  # 64,000 MB: 16,000 a GPU
    with running_cluster(nodes=(node,), extra_conf=extra) as cluster:
        jobs = [submit(cluster, script=SLEEPER) for _ in range(2)]
        for job in jobs:
            shape = "reqnodelist=n0 numnodes=1 tresPerJob= tresPerNode=gres:gpu:2 starttime=now"
            cluster.run("scontrol", "update", f"jobid={job}", *shape.split())
            cluster.run("scontrol", "release", job)
        wait_until(lambda: all(reading(cluster, job).state is SlurmState.RUNNING for job in jobs))
