"""docs/admin.md, command by command, on fresh Debian sites with slurmdbd: from the packages to the
first placed job, an upgrade and a way back with a job running, and the removal.

`make test-install`; HOPS_INSTALL names the Debian releases. Root, debootstrap, systemd-container.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from booted import SLURM_CONF, BootedSite, boot_site
from page import commands

RELEASES = os.environ.get("HOPS_INSTALL", "").split()
UNABLE = 3
OURS = "find / -xdev -iname '*hops*' -not -path '/root/*' -not -path '/proc/*' | sort"
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not RELEASES, reason="HOPS_INSTALL names no Debian release"),
]


@pytest.fixture(scope="module", params=RELEASES)
def site(request: pytest.FixtureRequest) -> Iterator[BootedSite]:
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("systemd-nspawn is not installed (systemd-container)")
    result = subprocess.run([Path(__file__).with_name("roots.sh"), request.param], check=False)
    if result.returncode == UNABLE:
        pytest.skip("this machine cannot build Debian roots")
    assert result.returncode == 0
    with boot_site(request.param) as site:
        yield site


def next_release(site: BootedSite) -> None:
    """Packages of a later hops, made of these: another version, and one migration more."""
    site.run(
        r"""
        mkdir /root/next && cd /root/next
        for deb in ../packages/*.deb; do
            rm -rf tree && dpkg-deb -R $deb tree
            sed -i 's/\b0\.1\.0~/0.2.0~/' tree/DEBIAN/control
            if [ -d tree/usr/lib/hops/share ]; then
                cd tree/usr/lib/hops/share/hops/migrations
                echo 'CREATE TABLE hops.later (x int);' > 9000.later.sql
                echo 'DROP TABLE hops.later;' > 9000.later.rollback.sql
                cd /root/next
            fi
            name=$(basename $deb | sed 's/0\.1\.0~/0.2.0~/')
            dpkg-deb -Znone -b tree $name > /dev/null
        done
        rm -rf tree
        """
    )


def start_of(site: BootedSite, job: str) -> str:
    """State and start of a job: a restart would change the latter."""
    return site.run(f"squeue -h -j {job} -o '%T %S %r'").strip()


def until_placed(site: BootedSite, job: str) -> None:
    site.wait_until(lambda: start_of(site, job).startswith("RUNNING"), f"job {job} is placed")


def job_number(output: str) -> str:
    """Return the number of the job that sbatch submitted, or ""."""
    match = re.search(r"Submitted batch job (\d+)", output)
    return match[1] if match else ""


def migrations(site: BootedSite) -> str:
    return site.run(
        "cd / && runuser -u postgres -- psql -XtA -d hops -c"
        " 'SELECT max(migration_id) FROM hops._yoyo_migration'"
    ).strip()


def assert_pages_work(site: BootedSite, job: str) -> None:
    """The web page and the metrics, with Debian's own Flask and prometheus-client."""
    site.run("apt-get install -y --no-install-recommends python3-flask python3-prometheus-client")
    web, metrics = "127.0.0.1:9818", "127.0.0.1:9817"
    for section, listen in (("web", web), ("metrics", metrics)):
        site.run(f"""sed -i '/^\\[{section}\\]/a listen = "{listen}"' /etc/hops/hopsd.toml""")
    site.run("hopsctl config check && systemctl restart hopsd")
    text_by_url = {
        f"{metrics}/metrics": "hops_last_tick_timestamp_seconds",
        f"{web}/": "a100",
        f"{web}/jobs": "</html>",
        f"{web}/plans": "</html>",
        f"{web}/what-if": "</html>",
        f"{web}/jobs/{job}": "<title>",
    }
    for url, text in text_by_url.items():
        ask = f"import urllib.request as r; print(r.urlopen('http://{url}').read().decode())"
        output = ""
        for _ in range(120):  # hopsd starts and reads once
            output = site.run(f'python3 -c "{ask}" 2>&1 || true')
            if text in output:
                break
            time.sleep(0.5)
        assert text in output, f"{url}: {output}"


def test_the_page_works_from_packages_to_removal(site: BootedSite) -> None:
    before = site.run(OURS)
    site.folder = "/root/packages"
    began = time.monotonic()
    install = commands("Install") + commands("Try it")
    job, seconds = "", 0.0
    for command in install:
        if "explain" in command.text:  # a different text before hopsd has read the job
            until_placed(site, job)
            seconds = time.monotonic() - began
            site.run(f"until hopsctl explain {job}; do sleep 1; done", seconds=120)
        output = site.follow(command, JOB=job)
        job = job_number(output) or job
    print(f"{len(install)} commands, {seconds:.0f} s to the first placed job")
    assert len(install) <= 10
    assert seconds < 15 * 60

    rerun_output = site.run("hopsctl setup --yes")
    assert all(
        line.endswith("in place") for line in rerun_output.splitlines() if "yours" not in line
    ), rerun_output
    conf = site.run("scontrol show config")
    assert re.search(r"KillWait\s+= 17 ", conf)
    assert re.search(r"JobSubmitPlugins\s+= all_partitions,lua", conf)

    output = site.run(
        # A profile run would end by itself meanwhile.
        "sbatch --no-requeue --comment=hops:reqs=1 --time=60"
        " --wrap='env > /tmp/told.$SLURM_JOB_ID; sleep 3600'",
        root=False,
    )
    long = job_number(output)
    until_placed(site, long)
    running = start_of(site, long)
    environment_file = f"/tmp/told.{long}"  # noqa: S108 - in the container
    site.wait_until(
        lambda: "HOPS_GPUS=1" in site.run(f"cat {environment_file} || true"),
        "the job is told its GPUs",
    )

    assert_pages_work(site, long)

    newest = migrations(site)
    next_release(site)
    site.folder = "/root/next"
    for command in commands("Upgrade"):
        site.follow(command)
    assert migrations(site) == "9000.later"
    assert site.run("hopsctl --version").strip() != ""
    assert "0.2.0" in site.run("dpkg-query -W hops")
    site.run("systemctl is-active hopsd")
    assert start_of(site, long) == running

    site.folder = "/root/packages"
    for command in commands("Go back to an older release"):
        site.follow(command)
    assert migrations(site) == newest
    assert "0.1.0" in site.run("dpkg-query -W hops")
    site.run("systemctl is-active hopsd")
    assert start_of(site, long) == running

    for package in ("hops-slurm", "hops-node"):  # in use
        apt_text = site.run(f"! apt purge {package}")
        assert "hopsctl setup --undo" in apt_text, apt_text
    for command in commands("Remove"):
        site.follow(command)
    assert start_of(site, long) == running
    assert (site.root / "etc/slurm/slurm.conf").read_text() == SLURM_CONF
    assert site.run(OURS) == before
    assert site.run("getent passwd hops || echo none").strip() == "none"
    assert "hops" not in site.run(
        "cd /; runuser -u postgres -- psql -XtA -l; sacctmgr -nP show user"
    )
    assert "COMPLETED" in site.run("srun --gres=gpu:1 true && echo COMPLETED", root=False)
