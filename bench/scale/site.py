"""A slurmctld with thousands of nodes, and a queue for it."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from examples.demo.cluster import NodeSpec, PrivateCluster

TYPES = ("rtx3090", "v100", "a100", "t4")
GPUS = ("1", "1,2", "2,4", "1,2,4,8", "4,8", "8,16")
WORKLOADS = 40
"""Half of the workloads are named in comments and have a table; hopsd reads the others' scripts."""
SUBMITTERS = 2
_SCHEDULER = (
    "bf_interval=600,default_queue_depth=20000,"
    "sched_interval=1,max_sched_time=10,sched_min_interval=1000000"
)
SETTINGS = (
    *("SlurmdTimeout=0", "TreeWidth=65533", "MaxJobCount=100000", "MessageTimeout=60"),
    *("MinJobAge=60", "OverTimeLimit=UNLIMITED"),
    f"SchedulerParameters={_SCHEDULER}",
)
"""slurmctld never pings slurmd, and contacts each one directly. It soon forgets ended jobs, so that
only hopsd's memory can grow, and enforces no time limits. The rest is what a site of this size
would set: the jobs that Slurm remembers, jobs per scheduling cycle, ten seconds per cycle, and a
second between cycles for requests. sched/builtin takes the first word that ends in ``interval=`` as
the time between estimates of start times: after sched_interval=5 these estimates would take half of
slurmctld's time."""


@contextmanager
def site(nodes: int) -> Iterator[PrivateCluster]:
    """A cluster whose nodes have not registered yet."""
    specs = [NodeSpec(TYPES[i * len(TYPES) // nodes], gpus=8, cpus=16) for i in range(nodes)]
    with (
        tempfile.TemporaryDirectory(prefix="hops-bench-") as folder,
        PrivateCluster(folder, nodes=specs, hollow=True, extra_conf=SETTINGS) as cluster,
    ):
        yield cluster


@contextmanager
def hollow_nodes(cluster: PrivateCluster) -> Iterator[None]:
    """Register all nodes."""
    words = [
        f"n:{spec.gpu_type}:{spec.gpus}:{spec.cpus}:{spec.memory_mb}:{len(list(group))}"
        for spec, group in itertools.groupby(cluster.nodes.values())
    ]
    ports = str(cluster.controller_port), str(cluster.node_port)
    munge = str(cluster.directory / "munge.sock")
    with subprocess.Popen(
        [sys.executable, "-m", "bench.scale.nodes", munge, *ports, *words], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("the nodes did not register")
            cluster.wait_for_nodes()
            yield
        finally:
            process.kill()


def comment_of(number: int) -> str:
    """The comment of the ``number``th job."""
    at = number % WORKLOADS
    return f"hops:reqs={GPUS[number % len(GPUS)]}" + (f";workload=w{at}" if at % 2 else "")


class Queue:
    """Jobs of 1 to 16 GPUs, submitted one by one."""

    def __init__(self, cluster: PrivateCluster) -> None:
        self._cluster = cluster
        self._numbers = itertools.count()
        for at in range(WORKLOADS):
            self._script(at).write_text(f"#!/bin/sh\n# training {at}\ntrap : USR1\nsleep 600\n")

    def _script(self, at: int) -> Path:
        return self._cluster.directory / f"train-{at}.sh"

    def submit(self, jobs: int) -> None:
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(self._submit, itertools.islice(self._numbers, jobs)))

    def _submit(self, number: int) -> None:
        comment = f"--comment={comment_of(number)}"
        script = str(self._script(number % WORKLOADS))
        self._cluster.run("sbatch", "--output=/dev/null", "--time=60", comment, script)

    def restore(self, folder: Path, jobs: int) -> None:
        """Restore slurmctld's state with ``jobs`` jobs from ``folder``; create it if missing."""
        state = self._cluster.directory / "state"
        if not folder.exists():
            self.submit(jobs)
            self._cluster.stop_slurmctld()
            shutil.copytree(state, folder)
        else:
            self._cluster.stop_slurmctld()
            for path in folder.glob("*"):
                if path.name.startswith(("hash.", "job_state", "last_config")):
                    copy = shutil.copytree if path.is_dir() else shutil.copy2
                    copy(path, state / path.name)
        self._cluster.start_slurmctld()
