"""PrivateData on a live site: `hopsctl status` shows each account the same jobs as squeue."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from daemon_site import Site
from fixtures_accounting import ALICE, BOB, CAROL, OPERATOR, accounting_cluster, python_of, uid_of
from fixtures_cluster import as_user, submit

from examples.demo.cluster import NodeSpec

pytestmark = pytest.mark.live

ASKER = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    s.sendall(sys.argv[2].encode() + b"\\n")
    print(s.makefile().readline())
"""


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with (
        accounting_cluster([NodeSpec("a100", gpus=4, cpus=8)], ["PrivateData=jobs"]) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        yield site


def ask_as(user: str, site: Site, command: str, **arguments: str) -> Any:
    result = subprocess.run(
        [*python_of(user), "-c", ASKER, str(site.hopsd.socket),
         json.dumps({"command": command, **arguments})],
        user=uid_of(user), group=65534, extra_groups=[], env=dict(os.environ),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer = json.loads(result.stdout)
    assert "error" not in answer, answer
    return answer["data"]


@pytest.mark.long
def test_each_account_is_shown_what_squeue_shows_it(site: Site) -> None:
    cluster = site.cluster
    jobs = {
        user: submit(
            cluster,
            f"--job-name=of-{user}",
            script="sleep 600",
            comment=f"hops:reqs=3;workload=of-{user}",
            uid=uid_of(user),
        )
        for user in (ALICE, BOB)
    }
    site.hopsd.start()
    site.hopsd.wait_for(lambda s: len(s["running"]) == len(s["waiting"]) == 1)
    for user in (ALICE, BOB, CAROL, OPERATOR):
        status = ask_as(user, site, "status")
        visible_jobs = {row["id"] for row in status["running"] + status["waiting"]}
        squeue_output = as_user(cluster, uid_of(user), "squeue", "--noheader", "--format=%A").stdout
        assert visible_jobs == set(squeue_output.split()), user
        expected = set(jobs.values()) if user == OPERATOR else {jobs.get(user)} - {None}
        assert visible_jobs == expected
        jobs_on_nodes = {job for node in status["nodes"] for job in node["jobs"]}
        assert jobs_on_nodes <= visible_jobs
        for owner, job in jobs.items():
            is_visible = user in (owner, OPERATOR)
            assert (f"of-{owner}" in json.dumps(status)) is is_visible
            reply = ask_as(user, site, "explain", job=job)
            assert (reply["job"] is not None) is is_visible
            assert (reply["history"]["record"] is not None) is is_visible
