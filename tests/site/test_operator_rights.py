"""hopsd as a Slurm operator that is neither root nor SlurmUser, with slurmdbd, by docs/admin.md."""

from __future__ import annotations

import pytest
from daemon_site import Site
from fixtures_accounting import (
    ALICE,
    BOB,
    OPERATOR,
    python_of,
    uid_of,
)
from fixtures_cluster import SAVER, as_user, submit, wait_until

from hopsd.model.reading import Hold, JobReading, SlurmState

pytestmark = pytest.mark.live


def job_of(site: Site, job: str) -> JobReading:
    [found] = [j for j in site.cluster.read_jobs() if j.id == job]
    return found


def ran(site: Site, job: str) -> bool:
    return job_of(site, job).state is SlurmState.RUNNING


def test_it_profiles_places_moves_and_gives_back(site: Site) -> None:
    cluster = site.cluster
    site.hopsd.configure(profiling=True, more="time_limit_seconds = 2")
    site.hopsd.start()
    job = submit(cluster, script=SAVER, comment="hops:reqs=1,2,4", uid=uid_of(ALICE))
    site.hopsd.wait_for(lambda s: any(row["profiling"] for row in s["running"]), 40.0)
    assert job_of(site, job).profiling
    assert job_of(site, job).comment == "hops:reqs=1,2,4"
    wait_until(lambda: not job_of(site, job).profiling and job_of(site, job).allocation.gpus > 1)
    for other in ("1,4", "4", "4"):
        submit(cluster, script=SAVER, comment=f"hops:reqs={other}", uid=uid_of(BOB))
    waiting = submit(cluster, script=SAVER, comment="hops:reqs=4", uid=uid_of(BOB))
    site.hopsd.wait_for(lambda s: any(row["id"] == waiting for row in s["waiting"]))
    hopsctl(site, "release", waiting)
    wait_until(lambda: job_of(site, waiting).released)
    assert not site.hopsd.status()["error"]


def hopsctl(site: Site, *words: str) -> str:
    uid = uid_of(OPERATOR)
    program = "from hopsd.ctl import main; main()"
    command = [*python_of(OPERATOR), "-c", program, *words]
    done = as_user(site.cluster, uid, *command, "--socket", str(site.hopsd.socket))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_operator_keeps_a_job_back(site: Site) -> None:
    """Not named in hops_site.lua: Slurm knows it for an operator, and so does the job's owner."""
    cluster = site.cluster
    cluster.run("sacctmgr", "--immediate", "modify", "user", BOB, "set", "adminlevel=operator")
    job = submit(cluster, uid=uid_of(ALICE))
    wait_until(lambda: as_user(cluster, uid_of(BOB), "scontrol", "hold", job).returncode == 0)
    assert job_of(site, job).hold is Hold.USER
    assert as_user(cluster, uid_of(ALICE), "scontrol", "release", job).returncode != 0
    assert job_of(site, job).hold is Hold.USER
    assert as_user(cluster, uid_of(BOB), "scontrol", "release", job).returncode == 0
    assert job_of(site, job).hold is Hold.HOPS
