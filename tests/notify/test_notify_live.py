"""A real hopsd tells a chat of jobs that end, fail and shrink."""

from __future__ import annotations

from contextlib import closing

import pytest
from chat_server import chat
from daemon_site import Site
from fixtures_cluster import running_cluster, wait_until

from examples.demo.cluster import NodeSpec

pytestmark = pytest.mark.live


def test_ends_and_failures_are_posted(database: str) -> None:
    nodes = [NodeSpec("a100", gpus=4, cpus=8)]
    with (
        chat() as server,
        running_cluster(nodes=nodes) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        kinds = 'kinds = ["done", "failed", "fewer", "stuck"]'
        site.hopsd.configure(more=f'[notify]\nwebhook = "{server.url}"\n{kinds}\n')
        site.hopsd.start()
        good = site.submit("hops:reqs=1", 2.0, "--job-name=good")
        bad = site.submit("hops:reqs=1", 600.0, "--job-name=bad", "--time=1")
        site.hopsd.wait_for(lambda status: len(status["running"]) == 2)
        cancelled = site.submit("hops:reqs=2", 600.0, "--job-name=unwanted")
        site.hopsd.wait_for(lambda status: len(status["running"]) == 3)
        cluster.run("scancel", cancelled)
        site.hopsd.wait_for(lambda status: good not in {job["id"] for job in status["running"]})

        def posted() -> str:
            return "\n".join(message["text"] for message in server.posted)

        wait_until(lambda: f"job {good} of root: good is done: it ran" in posted())
        pid = cluster.run("scontrol", "update", f"jobid={bad}", "timelimit=0")
        assert pid == ""
        wait_until(lambda: f"job {bad} of root: bad failed (TIMEOUT)" in posted())
        assert "unwanted" not in posted()
        assert "secret" not in site.hopsd.log.read_text()
