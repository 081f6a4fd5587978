"""hopsd as a Slurm operator, neither root nor SlurmUser, with slurmdbd, set up by docs/admin.md."""

from __future__ import annotations

import pytest
from daemon_site import Site
from fixtures_accounting import (
    ALICE,
    BOB,
    CAROL,
    OPERATOR,
    python_of,
    uid_of,
)
from fixtures_cluster import SAVER, as_user, submit, wait_until

from hopsd.model.reading import Hold, JobReading
from hopsd.slurm.accounting.rights import missing_rights

pytestmark = pytest.mark.live


def job_of(site: Site, job: str) -> JobReading:
    [job_reading] = [j for j in site.cluster.read_jobs() if j.id == job]
    return job_reading


@pytest.mark.long
def test_hopsd_profiles_places_moves_and_releases_as_an_operator(site: Site) -> None:
    cluster = site.cluster
    site.hopsd.configure(profiling=True, tables="time_limit_seconds = 2")
    site.hopsd.start()
    job = submit(cluster, script=SAVER, comment="hops:reqs=1,2,4", uid=uid_of(ALICE))
    site.hopsd.wait_for(lambda s: any(row["profiling"] for row in s["running"]), 40.0)
    assert job_of(site, job).profiling
    assert job_of(site, job).comment == "hops:reqs=1,2,4"
    wait_until(lambda: not job_of(site, job).profiling and job_of(site, job).allocation.gpus > 1)
    waiting = submit(cluster, "--hold", script=SAVER, comment="hops:reqs=4", uid=uid_of(BOB))
    site.hopsd.wait_for(lambda s: any(row["id"] == waiting for row in s["waiting"]))
    assert hopsctl(site, "release", waiting) == f"job {waiting}: given to plain Slurm\n"
    assert job_of(site, waiting).released
    assert not site.hopsd.status()["error"]


def hopsctl(
    site: Site, *words: str, user: str = OPERATOR, code: int = 0, socket: bool = True
) -> str:
    """Run hopsctl and return its standard output or error, depending on the exit code."""
    program = "from hopsd.ctl import main; main()"
    command = [*python_of(user), "-c", program, *words]
    socket_option = ["--socket", str(site.hopsd.socket)] if socket else []
    result = as_user(site.cluster, uid_of(user), *command, *socket_option)
    assert result.returncode == code, result.stderr
    return result.stderr if code else result.stdout


@pytest.mark.long
def test_another_operator_can_hold_a_job_back(site: Site) -> None:
    """hops_site.lua does not name this operator, whose hold only an operator can lift."""
    cluster = site.cluster
    cluster.run("sacctmgr", "--immediate", "modify", "user", BOB, "set", "adminlevel=operator")
    job = submit(cluster, uid=uid_of(ALICE))
    wait_until(lambda: as_user(cluster, uid_of(BOB), "scontrol", "hold", job).returncode == 0)
    assert job_of(site, job).hold is Hold.USER
    assert as_user(cluster, uid_of(ALICE), "scontrol", "release", job).returncode != 0
    assert job_of(site, job).hold is Hold.USER
    assert as_user(cluster, uid_of(BOB), "scontrol", "release", job).returncode == 0
    assert job_of(site, job).hold is Hold.HOPS


@pytest.mark.long
def test_missing_rights_are_named(site: Site) -> None:
    commands = site.cluster.commands()
    assert missing_rights(commands, uid_of(OPERATOR), OPERATOR) == []
    assert missing_rights(commands, 0, "root") == []
    operator, advice = missing_rights(commands, uid_of(ALICE), ALICE)
    assert f"sacctmgr add user {ALICE} account=root adminlevel=operator" in operator
    assert f"operators = {{ {uid_of(ALICE)} }}" in advice
    assert "may do in Slurm all" in hopsctl(
        site, "config", "check", str(site.hopsd.config), "--account", OPERATOR, socket=False
    )


@pytest.mark.long
def test_coordinators_may_release_jobs_of_their_accounts_if_the_site_allows_it(site: Site) -> None:
    cluster = site.cluster
    cluster.run("sacctmgr", "-i", "add", "coordinator", "account=phys", f"names={BOB}")
    site.hopsd.configure()
    text = site.hopsd.config.read_text()
    site.hopsd.config.write_text(
        text.replace("[daemon]\n", '[daemon]\ncontrollers = ["coordinators"]\n')
    )
    site.hopsd.start()
    held_job = submit(cluster, "--hold", comment="hops:reqs=1", uid=uid_of(CAROL))
    foreign_job = submit(cluster, "--hold", comment="hops:reqs=1", uid=uid_of(ALICE))
    site.hopsd.wait_for(lambda s: len(s["waiting"]) == 2)
    assert "is for root" in hopsctl(site, "release", foreign_job, user=BOB, code=1)
    assert "is for root" in hopsctl(site, "pause", user=BOB, code=1)
    assert "is for root" in hopsctl(site, "release", held_job, user=CAROL, code=1)
    output = hopsctl(site, "release", held_job, user=BOB)
    assert output == f"job {held_job}: given to plain Slurm\n"
    assert job_of(site, held_job).released
