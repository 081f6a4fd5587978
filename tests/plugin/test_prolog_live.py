"""Prolog, task prolog and epilog with real slurmds: the environment of a job's tasks."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_cluster import clean, node_states, running_cluster, submit, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.reading import SlurmState

pytestmark = pytest.mark.live

PROFILER = Path("/opt/profiler-of-this-test")
REPORTS = Path("/shared/reports-of-this-test")


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[PrivateCluster]:
    nodes = (NodeSpec("a100", gpus=4),) * 3
    with running_cluster(nodes=nodes, profiler_path=PROFILER, report_dir=REPORTS) as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: PrivateCluster) -> Iterator[PrivateCluster]:
    yield module_cluster
    assert set(node_states(module_cluster).values()) <= {"idle", "mixed", "completing"}
    clean(module_cluster)


@pytest.fixture
def answers() -> Iterator[Path]:
    """A folder to which jobs of every account may write."""
    folder = Path(tempfile.mkdtemp(prefix="hops-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def place(cluster: PrivateCluster, job: str, shape: str) -> None:
    cluster.run("scontrol", "update", f"jobid={job}", *shape.split(), "starttime=now")
    cluster.run("scontrol", "release", job)


def state(cluster: PrivateCluster, job: str) -> SlurmState:
    return next(job_reading.state for job_reading in cluster.read_jobs() if job_reading.id == job)


def read(path: Path) -> dict[str, str]:
    wait_until(path.with_suffix(".done").exists)
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())


def writes_environment(folder: Path) -> str:
    """Return a batch script that stores its own environment and that of each of its tasks."""
    run = "$SLURM_RESTART_COUNT"
    return (
        f"env > {folder}/batch{run}; touch {folder}/batch{run}.done; "
        "srun --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 bash -c '"
        f"env > {folder}/new.$SLURMD_NODENAME && "
        f"mv {folder}/new.$SLURMD_NODENAME {folder}/task{run}.$SLURMD_NODENAME && "
        f"touch {folder}/task{run}.done'; sleep 600 & wait"
    )


def present_prolog_files(cluster: PrivateCluster) -> list[Path]:
    """Return the prologs' files for jobs that are on nodes now."""
    run = cluster.directory / "run"
    return [path for path in run.glob("*") if path.suffix != ".left"]


def test_all_tasks_of_an_uneven_job_know_the_whole_allocation(
    cluster: PrivateCluster, answers: Path
) -> None:
    occupant = submit(cluster, "--nodelist=n0", "--gres=gpu:3", comment=None)
    wait_until(lambda: "mixed" in node_states(cluster).values())
    job = submit(
        cluster,
        "--ntasks=4",
        "--ntasks-per-node=4",
        "--export=ALL,PYTHONPATH=/home/me/lib",
        script=writes_environment(answers),
        comment="hops:reqs=1,4;lr=0.1;lr_rule=linear;batch=64;workload=bert",
    )
    place(
        cluster,
        job,
        "reqnodelist=n0,n1 numnodes=2 numtasks=4 tresPerJob=gres:gpu:4 cpusPerTres=gres:gpu:1",
    )
    batch = read(answers / "batch")
    gpus_by_node = {"n0": "1", "n1": "3"}
    wait_until(lambda: all((answers / f"task.{node}").exists() for node in gpus_by_node))
    environment = {
        "HOPS_JOB": "1",
        "HOPS_REQS": "1,4",
        "HOPS_GPUS": "4",
        "HOPS_NODES": "2",
        "HOPS_LR": "0.4",
        "HOPS_BATCH": "64",
        "HOPS_WORKLOAD": "bert",
        "HOPS_RESTART_COUNT": "0",
        "HOPS_REPORT_DIR": str(REPORTS),
        "HOPS_REQUEUE_EXIT_CODE": "85",
        "PYTHONPATH": f"{PROFILER}:/home/me/lib",
    }
    assert environment.items() <= batch.items()
    assert batch["SLURM_NTASKS"] == "4"
    tasks_per_node = {"2(x2)": "2", "1,3": "3"}  # 22.05; later releases use each node's cores
    assert batch["SLURM_NTASKS_PER_NODE"] == tasks_per_node[batch["SLURM_TASKS_PER_NODE"]]
    for node, gpus in gpus_by_node.items():
        task = dict(
            line.partition("=")[::2] for line in (answers / f"task.{node}").read_text().splitlines()
        )
        assert environment.items() <= task.items()
        assert task["SLURM_GPUS_ON_NODE"] == gpus
    cluster.run("scancel", occupant)


def test_a_restart_on_another_count_gets_new_values(cluster: PrivateCluster, answers: Path) -> None:
    job = submit(
        cluster, script=writes_environment(answers), comment="hops:reqs=1,4;lr=0.1;lr_rule=sqrt"
    )
    place(cluster, job, "reqnodelist=n2 numnodes=1 tresPerJob= tresPerNode=gres:gpu:1")
    first = read(answers / "batch")
    assert (first["HOPS_GPUS"], first["HOPS_LR"], first["HOPS_RESTART_COUNT"]) == ("1", "0.1", "0")
    cluster.run("scontrol", "requeuehold", job)
    wait_until(lambda: state(cluster, job) is SlurmState.PENDING)
    assert present_prolog_files(cluster) == []
    place(cluster, job, "reqnodelist=n0 numnodes=1 tresPerJob= tresPerNode=gres:gpu:4")
    second = read(answers / "batch1")
    assert (second["HOPS_GPUS"], second["HOPS_LR"]) == ("4", "0.2")
    assert (second["HOPS_NODES"], second["HOPS_RESTART_COUNT"]) == ("1", "1")


def test_a_job_that_returns_to_its_node_at_once_gets_new_values(
    cluster: PrivateCluster, answers: Path
) -> None:
    """slurmd (22.05) runs no Prolog while the job's previous credential is in its cache.

    It clears the cache at most every two seconds; another job's start just before prevents that.
    """
    job = submit(
        cluster, script=writes_environment(answers), comment="hops:reqs=1,3;lr=0.1;lr_rule=linear"
    )
    place(cluster, job, "reqnodelist=n2 numnodes=1 tresPerJob= tresPerNode=gres:gpu:1")
    assert read(answers / "batch")["HOPS_GPUS"] == "1"
    cluster.run("scontrol", "requeuehold", job)
    wait_until(lambda: state(cluster, job) is SlurmState.PENDING)
    wait_until(lambda: node_states(cluster)["n2"] == "idle")
    time.sleep(1.1)  # within a second of the job's kill, no credential is valid
    submit(cluster, "--nodelist=n2", comment=None, script=f"touch {answers}/other.done; sleep 600")
    wait_until((answers / "other.done").exists)
    place(cluster, job, "reqnodelist=n2 numnodes=1 tresPerJob= tresPerNode=gres:gpu:3")
    second_batch = read(answers / "batch1")
    assert (second_batch.get("HOPS_GPUS"), second_batch.get("HOPS_RESTART_COUNT")) == ("3", "1")
    wait_until((answers / "task1.done").exists)
    assert "\nHOPS_LR=0.3\n" in (answers / "task1.n2").read_text()


def test_other_jobs_have_no_variables_of_hops(cluster: PrivateCluster, answers: Path) -> None:
    submit(cluster, "--gres=gpu:1", script=writes_environment(answers), comment="mine")
    batch = read(answers / "batch")
    assert [name for name in batch if name.startswith("HOPS_")] == []
    assert str(PROFILER) not in batch.get("PYTHONPATH", "")
    assert present_prolog_files(cluster) == []


@pytest.mark.parametrize("comment", ["mine", "hops:reqs=1"])
def test_a_job_submitted_from_within_a_hops_job_has_none_of_its_variables(
    cluster: PrivateCluster, answers: Path, monkeypatch: pytest.MonkeyPatch, comment: str
) -> None:
    parent = {"JOB": "1", "JOB_ID": "999", "PROFILE": "20", "GPUS": "8", "LR": "0.8"}
    for name, value in parent.items():
        monkeypatch.setenv(f"HOPS_{name}", value)
    job = submit(cluster, "--gres=gpu:1", script=writes_environment(answers), comment=comment)
    if comment == "mine":
        assert [name for name in read(answers / "batch") if name.startswith("HOPS_")] == []
        return
    place(cluster, job, "reqnodelist=n1 numnodes=1 tresPerJob= tresPerNode=gres:gpu:1")
    batch = read(answers / "batch")
    assert (batch["HOPS_JOB_ID"], batch["HOPS_GPUS"]) == (job, "1")
    assert {"HOPS_PROFILE", "HOPS_LR"}.isdisjoint(batch)


def test_a_site_with_an_unwritable_folder_drains_no_node(
    cluster: PrivateCluster, answers: Path
) -> None:
    site = cluster.directory / "plugin" / "site.sh"
    before = site.read_text()
    site.write_text(before + "HOPS_RUN_DIR=/proc/no/such/folder\n")
    try:
        job = submit(cluster, script=writes_environment(answers))
        place(cluster, job, "reqnodelist=n1 numnodes=1 tresPerJob= tresPerNode=gres:gpu:1")
        assert read(answers / "batch")["HOPS_GPUS"] == "1"  # as slurmctld says
        cluster.run("scancel", job)
        wait_until(lambda: set(node_states(cluster).values()) == {"idle"})
    finally:
        site.write_text(before)
