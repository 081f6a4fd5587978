"""Hostile submissions to a live slurmctld, which holds its locks while the plugin reads them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from fixtures_cluster import NOBODY, as_user
from submit_live import job_fields, queue

from examples.demo.cluster import PrivateCluster

pytestmark = pytest.mark.live

HONEST = NOBODY - 1
LONG = 120_000
"""Bytes; the kernel accepts no longer option."""

SCRIPTS = {
    "empty lines": "\n" * 20_000,
    "more empty lines": "\n" * 3_000_000,
    "blanks": "trap 1" + " " * 3_000_000 + "x",
    "launchers": "accelerate launch --num_processes $a\n" * 80_000,
    "ranks": ("--nproc_per_node" + " " * 20) * 80_000,
    "names": "A=$A" + "$A" * 1_000_000,
    "continued": "torchrun \\\n" * 300_000,
    "traps": "trap USR1 " * 300_000,
    "options": "#SBATCH --gres=gpu:1\n" * 100_000,
    "comments": "#SBATCH --comment=hops:reqs=1\n" * 1_000,
    "endpoints": "--rdzv_endpoint=x" * 200_000,
    "loops": "for a in 1;" * 300_000,
    "handlers": ("trap '" + "a " * 2000 + "' USR1\n") * 32 + "a() " * 500_000,
    "no text": "\x01\x1b[2J\xff\ufffd" * 200_000,
}
OPTIONS = {
    "nodes as a range": ("--nodelist=n[0-99999]",),
    "nodes in ranges": ("--nodelist=" + ",".join(["n[1-9999]"] * 9000),),
    "nodes by an empty range": ("--nodelist=n[1-999999999]x[5-1],n0",),
    "a node's long name": ("--nodelist=" + "n" * LONG,),
    "open brackets": ("--nodelist=" + "n[" * (LONG // 2),),
    "excluded": ("--exclude=" + "n0," * (LONG // 3),),
    "comment": ("--comment=hops:reqs=1;" + " ;" * (LONG // 2),),
    "counts": ("--comment=hops:reqs=" + "1," * (LONG // 2) + "1",),
    "comments in a comment": ("--comment=" + " hops:" * (LONG // 6),),
    "name": ("--job-name=" + "\x1b[2J\u202e" * 12_000,),
    "constraint": ("--constraint=" + "a&" * (LONG // 2) + "a",),
    "nested constraint": ("--constraint=" + "(" * 50_000 + "a" + ")" * 50_000,),
    "dependency": ("--dependency=" + ",".join(["afterany:1"] * 10_000),),
    "one dependency": ("--dependency=afterany" + ":1" * (LONG // 2),),
    "resources": ("--gres=" + ",".join(["gpu:1"] * 20_000),),
    "licences": ("--licenses=" + ",".join(["a:1"] * 30_000),),
    "tasks": ("--array=" + ",".join(map(str, range(1000))), "--ntasks=4294967293"),
    "times": ("--time=4294967294", "--begin=now+4294967294"),
    "reservation": ("--reservation=" + "r," * (LONG // 2),),
    "partitions": ("--partition=" + "main," * (LONG // 5) + "main",),
}


@pytest.fixture
def scripts(cluster: PrivateCluster) -> Iterator[dict[str, Path]]:
    """Scripts that the submitting account can read."""
    folder = cluster.directory / "hostile"
    folder.mkdir(mode=0o755, exist_ok=True)
    paths = {name: folder / name.replace(" ", "_") for name in SCRIPTS}
    for name, path in paths.items():
        path.write_text(f"#!/bin/bash\n{SCRIPTS[name]}\nsleep 600\n")
    yield paths
    for path in paths.values():
        path.unlink()


def test_no_submission_blocks_slurmctld_for_others(
    cluster: PrivateCluster, scripts: dict[str, Path]
) -> None:
    """The limit is Slurm's own: its commands give up after MessageTimeout (10 s)."""
    common = ("sbatch", "--output=/dev/null", "--chdir=/", "--comment=hops:reqs=1;shape=node")
    commands = {name: (*common, str(path)) for name, path in scripts.items()}
    commands |= {name: (*common, *words, "--wrap=true") for name, words in OPTIONS.items()}
    before, honest = cluster.pid("slurmctld"), []
    with ThreadPoolExecutor(4) as pool:
        hostile = {
            pool.submit(as_user, cluster, NOBODY, *words): name for name, words in commands.items()
        }
        pending_futures = set(hostile)
        while pending_futures:
            job = as_user(cluster, HONEST, *common, "--parsable", "--wrap=true")
            assert job.returncode == 0, job.stderr
            honest.append(job.stdout.strip())
            assert honest[-1] in queue(cluster)
            pending_futures = wait(pending_futures, timeout=0.5).not_done
    assert cluster.pid("slurmctld") == before
    error_by_submission = {name: future.result().stderr for future, name in hostile.items()}
    assert {name: text for name, text in error_by_submission.items() if "timed out" in text} == {}
    for job in honest:
        assert job_fields(cluster, job)["JobState"] == "PENDING"
