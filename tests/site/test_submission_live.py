"""What plain Slurm refuses at submission is refused for a hops job, with Slurm's message."""

from __future__ import annotations

import pytest
from daemon_site import Site
from fixtures_accounting import ALICE, uid_of
from fixtures_cluster import SAVER, as_user, submit, wait_until

from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState

pytestmark = pytest.mark.live


IN_PROPORTION = {
    "--qos=cores --gpus=4 --nodes=1 --cpus-per-task=5": True,
    "--qos=cores --gpus=4 --nodes=1 --ntasks=5": True,
    "--qos=cores --gpus-per-node=2 --nodes=2 --ntasks-per-node=2 --cpus-per-task=2": True,
    "--qos=cores --gpus-per-node=2 --nodes=2 --ntasks-per-node=2": False,
    "--qos=memory --gpus=4 --mem-per-gpu=250": True,
    "--qos=memory --gpus-per-node=2 --nodes=2 --mem-per-gpu=200": False,
    "--qos=memory --gpus-per-node=2 --nodes=2 --mem=500": True,
    "--qos=memory --gpus=4 --cpus-per-task=4 --mem-per-cpu=250": True,
}
"""Options of a job with 4 GPUs, and whether its QOS denies them."""


def refusal(site: Site, *options: str) -> str:
    """Slurm's own message from sbatch; "" if it accepts the job."""
    command = ("sbatch", "--output=/dev/null", "--chdir=/", *options, f"--wrap={SAVER}")
    result = as_user(site.cluster, uid_of(ALICE), *command)
    lines = [line for line in result.stderr.splitlines() if "hops:" not in line]
    assert (result.returncode == 0) == (not lines), result
    return "\n".join(lines)


def gpus(site: Site, job: JobId) -> int:
    """Number of GPUs that the job runs on; 0 while it waits."""
    [job_reading] = [j for j in site.cluster.read_jobs() if j.id == job]
    return job_reading.allocation.gpus if job_reading.state is SlurmState.RUNNING else 0


@pytest.mark.long
def test_a_qos_refuses_for_hops_jobs_what_it_refuses_for_plain_ones(site: Site) -> None:
    cluster = site.cluster
    cluster.sacctmgr("add", "qos", "most", "MaxTRESPerJob=gres/gpu=2", "flags=DenyOnLimit")
    cluster.sacctmgr("add", "qos", "least", "MinTRESPerJob=gres/gpu=2", "flags=DenyOnLimit")
    cluster.sacctmgr("modify", "user", ALICE, "set", "qos=normal,most,least", "defaultqos=normal")
    wait_until(lambda: "least" in cluster.run("scontrol", "show", "assoc_mgr", "flags=qos"))
    for qos, gpus_asked in (("most", 4), ("least", 1)):
        plain = refusal(site, f"--qos={qos}", f"--gpus={gpus_asked}")
        assert "violates accounting/QOS policy" in plain
        assert refusal(site, f"--qos={qos}", f"--comment=hops:reqs={gpus_asked}") == plain
        # The options allow only one of the counts: 4.
        options = ("--nodes=2", "--gpus-per-node=2", "--comment=hops:reqs=1,4")
        assert bool(refusal(site, f"--qos={qos}", *options)) == (qos == "most")
    cluster.sacctmgr("add", "qos", "cores", "MaxTRESPerJob=cpu=4", "flags=DenyOnLimit")
    cluster.sacctmgr("add", "qos", "memory", "MaxTRESPerJob=mem=900", "flags=DenyOnLimit")
    cluster.sacctmgr("modify", "user", ALICE, "set", "qos+=cores,memory")
    wait_until(lambda: "memory" in cluster.run("scontrol", "show", "assoc_mgr", "flags=qos"))
    for words, is_refused in IN_PROPORTION.items():
        plain = refusal(site, *words.split())
        assert bool(plain) == is_refused
        assert refusal(site, *words.split(), "--comment=hops:reqs=4") == plain, words
    # Slurm itself would let such a job wait for ever (22.05).
    assert refusal(site, "--qos=cores", "--gpus=4", "--cpus-per-gpu=2", "--comment=hops:reqs=4")
    cluster.run("scancel", f"--user={ALICE}")
    site.hopsd.configure()
    site.hopsd.start()
    jobs = {
        submit(cluster, f"--qos={qos}", script=SAVER, comment=comment, uid=uid_of(ALICE)): counts
        for qos, comment, counts in (
            ("most", "hops:reqs=2,4", {2}),
            ("least", "hops:reqs=2,4", {2, 4}),
            ("least", "hops:reqs=2", {2}),
        )
    }
    wait_until(lambda: all(gpus(site, job) in counts for job, counts in jobs.items()))
