"""A real hopsd notifies a chat and users about jobs that end, fail and shrink."""

from __future__ import annotations

from contextlib import closing

import pytest
from chat_server import chat
from daemon_site import Site
from fixtures_cluster import running_cluster, wait_until

from examples.demo.cluster import NodeSpec
from hopsd.ctl.daemon_client import ask

pytestmark = pytest.mark.live


@pytest.mark.long
def test_ends_and_failures_are_posted(database: str) -> None:
    nodes = [NodeSpec("a100", gpus=4, cpus=8)]
    with (
        chat() as server,
        running_cluster(nodes=nodes) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        kinds = 'kinds = ["done", "failed", "fewer", "stuck"]'
        program, mails = cluster.directory / "mail", cluster.directory / "mails"
        program.write_text(f'#!/bin/sh\necho "to $3: $2" >> {mails}\ncat >> {mails}\n')
        program.chmod(0o755)
        site.hopsd.configure(
            tables=f'[notify]\nwebhook = "{server.url}"\n{kinds}\nmail = "{program}"\n'
        )
        site.hopsd.start()
        good = site.submit(
            "hops:reqs=1", 2.0, "--job-name=good", "--mail-type=END", "--mail-user=ann@x.org"
        )
        bad = site.submit("hops:reqs=1", 600.0, "--job-name=bad", "--time=1")
        site.hopsd.wait_for(lambda status: bad in {job["id"] for job in status["running"]})
        cancelled_job = site.submit("hops:reqs=2", 600.0, "--job-name=unwanted")
        site.hopsd.wait_for(
            lambda status: cancelled_job in {job["id"] for job in status["running"]}
        )
        cluster.run("scancel", cancelled_job)
        site.hopsd.wait_for(lambda status: good not in {job["id"] for job in status["running"]})

        def chat_text() -> str:
            return "\n".join(message["text"] for message in server.posts)

        wait_until(lambda: f"job {good} of root: good is done: it ran" in chat_text())
        wait_until(lambda: mails.exists() and "hopsctl explain" in mails.read_text())
        assert f"to ann@x.org: hops: Job {good}: good is done: it ran" in mails.read_text()
        assert "ran on n0:1 from " in mails.read_text()
        # A user whose sbatch requests no mails gets none until changing the setting.
        assert ask(site.hopsd.socket, "notify") == {"kinds": None, "mails": True}
        reply = ask(site.hopsd.socket, "set_notify", kinds=["failed"])
        assert reply == {"kinds": ["failed"], "mails": True}
        pid = cluster.run("scontrol", "update", f"jobid={bad}", "timelimit=0")
        assert pid == ""
        wait_until(lambda: f"job {bad} of root: bad failed (TIMEOUT)" in chat_text())
        wait_until(lambda: f"to root: hops: Job {bad}: bad failed (TIMEOUT)" in mails.read_text())
        assert "unwanted" not in chat_text()
        assert "unwanted" not in mails.read_text()
        assert "secret" not in site.hopsd.log.read_text()
