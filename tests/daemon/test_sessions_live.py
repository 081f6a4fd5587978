"""Sessions on a full cluster: salloc and srun get GPUs within seconds, from trainings that save."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from daemon_site import LONG, Site
from fixtures_cluster import running_cluster

from examples.demo.cluster import NodeSpec

pytestmark = pytest.mark.live

SECONDS = 30.0
"""What a session may wait on a full cluster."""

SAVES = """#!/bin/bash
# An elastic training that saves on the signal and has Slurm start it again.
trap 'echo "saved $SLURM_JOB_ID" >> $LOG; scontrol requeue $SLURM_JOB_ID; sleep 600' USR1
echo "run $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $SLURM_GPUS_ON_NODE" >> $LOG
while [ ! -e $FOLDER/go ]; do sleep 0.2; done
"""


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    nodes = [NodeSpec("a100", gpus=4, cpus=8)] * 2
    with (
        running_cluster(nodes=nodes) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        text = site.hopsd.config.read_text().replace("refresh_seconds = 1\n", "")
        site.hopsd.config.write_text(text.replace("round_seconds = 8.0", "round_seconds = 3600"))
        site.worker.write_text(SAVES)
        yield site


def environment(site: Site) -> dict[str, str]:
    return {**os.environ, **site.cluster.env}


def fill(site: Site) -> list[str]:
    """Start hopsd and a cluster full of elastic trainings."""
    site.hopsd.start()
    jobs = [site.submit("hops:reqs=1,2,4", LONG) for _ in range(2)]
    site.hopsd.wait_for(lambda status: {j["id"] for j in status["running"]} == set(jobs))
    status = site.hopsd.status()
    assert sum(node["idle"] for node in status["nodes"]) == 0
    return jobs


@contextmanager
def session(site: Site, *command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=environment(site),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """The first line of its output that has ``word``; ends with the process's output."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return line
    raise AssertionError(f"no {word!r} in {''.join(lines)}")


def test_salloc_gets_a_gpu_of_a_training_that_saves_first(site: Site) -> None:
    trainings = fill(site)
    begin = time.monotonic()
    shell = ("salloc", "--chdir=/", "--comment=hops:reqs=1;interactive", "bash", "-c")
    with session(site, *shell, "echo here $SLURM_JOB_ID $SLURM_JOB_NODELIST; read") as asked:
        _, job, node = read_until(asked, "here ").split()
        waited = time.monotonic() - begin
        assert waited < SECONDS
        status = site.hopsd.wait_for(
            lambda status: {j["id"] for j in status["running"]} == {*trainings, job}
        )
        rows = {row["id"]: row for row in status["running"]}
        assert rows[job]["placement"] == {node: 1}
        shrunk = [t for t in trainings if sum(rows[t]["placement"].values()) < 4]
        assert len(shrunk) == 1
        log = site.worker_log.read_text()
        assert f"saved {shrunk[0]}" in log, "it saves before it makes room"
        assert asked.stdin is not None
        asked.stdin.write("\n")
        asked.stdin.flush()
        asked.wait(timeout=60)
    print(f"waited {waited:.1f} s")


def test_srun_runs_in_a_session_and_moves_nobody_where_a_gpu_is_idle(site: Site) -> None:
    site.hopsd.start()
    training = site.submit("hops:reqs=4", LONG)
    site.hopsd.wait_for(lambda status: [j["id"] for j in status["running"]] == [training])
    done = subprocess.run(
        ["srun", "--chdir=/", "--comment=hops:reqs=2;interactive",
         "bash", "-c", "echo $SLURM_GPUS_ON_NODE $HOPS_GPUS $CUDA_VISIBLE_DEVICES"],
        env=environment(site), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "2", (done.stdout, done.stderr)
    assert "as a session that nothing moves" in done.stderr
    assert site.worker_log.read_text().count("run ") == 1
