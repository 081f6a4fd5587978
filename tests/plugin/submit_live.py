"""Shared by the live tests of job_submit.lua: commands as users run them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fixtures_cluster import NOBODY, as_user

from examples.demo.cluster import PrivateCluster
from hopsd.model.reading import JobReading

PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
OWNER = NOBODY if os.geteuid() == 0 else None


def sbatch(cluster: PrivateCluster, *options: str) -> tuple[bool, str]:
    """Run sbatch; return whether it created a job, and its messages to the user."""
    command = ("sbatch", "--output=/dev/null", "--chdir=/", "--wrap=sleep 600")
    result = as_user(cluster, OWNER, *command, *options)
    return result.returncode == 0, result.stderr


def sbatch_script(cluster: PrivateCluster, script: str, *options: str) -> tuple[bool, str]:
    """Run :func:`sbatch` with a script of these lines."""
    command = ("sbatch", "--output=/dev/null", "--chdir=/", *options)
    result = as_user(cluster, OWNER, *command, stdin=script)
    return result.returncode == 0, result.stderr


def job_fields(cluster: PrivateCluster, job: str) -> dict[str, str]:
    text = cluster.run("scontrol", "show", "job", "--oneliner", job)
    return dict(re.findall(r"(\S+?)=(\S*)", text))


def reading(cluster: PrivateCluster, job: str) -> JobReading:
    return next(job_reading for job_reading in cluster.read_jobs() if job_reading.id == job)


def queue(cluster: PrivateCluster) -> list[str]:
    return cluster.run("squeue", "--all", "--noheader", "--format=%A").split()


def by_owner(cluster: PrivateCluster, *command: str) -> str:
    """Run a command as the owner; return "" or Slurm's refusal."""
    result = as_user(cluster, NOBODY, *command)
    return result.stderr.strip() or ("" if result.returncode == 0 else "refused")


@contextlib.contextmanager
def submit_script(cluster: PrivateCluster, script: str, site: str | None = None) -> Iterator[None]:
    """Install another job_submit.lua temporarily. Slurm reloads it if its mtime has grown."""
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
