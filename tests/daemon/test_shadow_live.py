"""A shadow beside a live Slurm changes nothing; its diary records what both do."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from daemon_site import BIN, Site
from fixtures_cluster import SLEEPER, running_cluster, submit
from fixtures_postgres import Databases

from examples.demo.cluster import NodeSpec
from hopsd.ctl.daemon_client import ask
from hopsd.model.ids import JobId

pytestmark = pytest.mark.live


@pytest.mark.long
def test_the_diary_records_what_slurm_does_and_what_hops_would_do(
    machine_postgres: Databases,
) -> None:
    with running_cluster(nodes=[NodeSpec("a100", gpus=4, cpus=8)]) as cluster:
        site = Site(Path(cluster.directory), machine_postgres.new(), cluster)
        config = site.hopsd.config.read_text()
        site.hopsd.config.write_text(config.replace("[slurm]", '[slurm]\nport = "shadow"'))
        try:
            began = time.time() - 60.0
            plain = submit(cluster, "--gres=gpu:2", script=SLEEPER, comment=None)
            managed_job = submit(cluster, script=SLEEPER, comment="hops:reqs=2")
            site.hopsd.start()

            def jobs() -> dict[JobId, Any]:
                period = {"since": began, "until": time.time() + 60.0, "most": 10}
                return {job["id"]: job for job in ask(site.hopsd.socket, "diary", **period)["jobs"]}

            site.hopsd.wait_for(lambda _: bool(jobs().get(managed_job, {}).get("planned")))
            site.hopsd.wait_for(lambda _: bool(jobs().get(plain, {}).get("runs")))
            shadow_jobs = jobs()
            queue = cluster.run("squeue", "--noheader", "--format=%i %T")
            states = dict(line.split() for line in queue.splitlines())
            report = subprocess.run(
                [BIN / "hopsctl", "shadow", "report", "--since", "1h", "--json",
                 "--socket", site.hopsd.socket, "--out", site.folder / "out"],
                env={**os.environ, **cluster.env}, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            site.close()
    ((_, end, gpus),) = shadow_jobs[plain]["runs"]
    assert (end, gpus, shadow_jobs[plain]["gpus"]) == (None, 2, 2)
    assert (shadow_jobs[managed_job]["nodes"], shadow_jobs[managed_job]["runs"]) == ({"n0": 2}, [])
    assert (states[plain], states[managed_job]) == ("RUNNING", "PENDING")
    assert report.returncode == 0, report.stderr
    assert [row["job"] for row in json.loads(report.stdout)["starts"]] == [plain]
