"""What plain Slurm refuses at submission is refused for a hops job, in Slurm's words."""

from __future__ import annotations

import pytest
from daemon_site import Site
from fixtures_accounting import ALICE, uid_of
from fixtures_cluster import SAVER, as_user, submit, wait_until

from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState

pytestmark = pytest.mark.live


def refusal(site: Site, *options: str) -> str:
    """What sbatch says of its own; "": it takes the job."""
    command = ("sbatch", "--output=/dev/null", "--chdir=/", *options, f"--wrap={SAVER}")
    done = as_user(site.cluster, uid_of(ALICE), *command)
    lines = [line for line in done.stderr.splitlines() if "hops:" not in line]
    assert (done.returncode == 0) == (not lines), done
    return "\n".join(lines)


def gpus(site: Site, job: JobId) -> int:
    """That it runs on; 0 while it waits."""
    [found] = [j for j in site.cluster.read_jobs() if j.id == job]
    return found.allocation.gpus if found.state is SlurmState.RUNNING else 0


def test_a_qos_that_denies_refuses_what_it_refuses_of_a_plain_job(site: Site) -> None:
    cluster = site.cluster
    cluster.sacctmgr("add", "qos", "most", "MaxTRESPerJob=gres/gpu=2", "flags=DenyOnLimit")
    cluster.sacctmgr("add", "qos", "least", "MinTRESPerJob=gres/gpu=2", "flags=DenyOnLimit")
    cluster.sacctmgr("modify", "user", ALICE, "set", "qos=normal,most,least", "defaultqos=normal")
    wait_until(lambda: "least" in cluster.run("scontrol", "show", "assoc_mgr", "flags=qos"))
    for qos, gpus_asked in (("most", 4), ("least", 1)):
        plain = refusal(site, f"--qos={qos}", f"--gpus={gpus_asked}")
        assert "violates accounting/QOS policy" in plain
        assert refusal(site, f"--qos={qos}", f"--comment=hops:reqs={gpus_asked}") == plain
        # Only counts that the options allow: 4 here.
        options = ("--nodes=2", "--gpus-per-node=2", "--comment=hops:reqs=1,4")
        assert bool(refusal(site, f"--qos={qos}", *options)) == (qos == "most")
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
