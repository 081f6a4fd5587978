"""Tasks that start inside a container: what TaskProlog does there, and hops_spank.so instead."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_cluster import NOBODY, clean, running_cluster, submit, wait_until

from examples.demo.cluster import PLUGIN, NodeSpec, PrivateCluster
from hopsd.model.reading import SlurmState

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def in_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variable that container_spank.c looks for in a job's environment.

    ``sbatch --export=ALL,IN_CONTAINER=yes`` does not work: it requests the account's login
    environment, which the account nobody does not have, and so the job does not start (24.11 and
    later).
    """
    monkeypatch.setenv("IN_CONTAINER", "yes")


@pytest.fixture(scope="module")
def libraries() -> Iterator[Path]:
    """Build our plugin and a container plugin as admin.md says."""
    if shutil.which("cc") is None or not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("needs a C compiler and Slurm's headers: apt-get install gcc libslurm-dev")
    folder = Path(tempfile.mkdtemp(prefix="hops-test-"))
    folder.chmod(0o755)
    for source in (PLUGIN / "hops_spank.c", Path(__file__).parent / "container_spank.c"):
        command = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, folder / f"{source.stem}.so", source], check=True, timeout=60)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def module_cluster(libraries: Path) -> Iterator[PrivateCluster]:
    conf = libraries / "plugstack.conf"
    conf.touch()
    nodes = (NodeSpec("a100", gpus=4),) * 2
    lines = [f"PlugStackConfig={conf}", "TaskProlog=/bin/true"]
    with running_cluster(nodes=nodes, extra_conf=lines, profiler_path=Path("/opt/p")) as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: PrivateCluster) -> Iterator[PrivateCluster]:
    yield module_cluster
    clean(module_cluster)


@pytest.fixture
def answers() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hops-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def stack(cluster: PrivateCluster, libraries: Path, *lines: str) -> None:
    """Write plugstack.conf, which slurmstepd and srun read at each start."""
    plugin, run = cluster.directory / "plugin", cluster.directory / "run"
    line_by_plugin = {
        "container": f"required {libraries}/container_spank.so hide={plugin}",
        "hops": f"optional {libraries}/hops_spank.so scripts={plugin} run_dir={run}",
    }
    text = "\n".join(line_by_plugin.get(line, line) for line in lines)
    (libraries / "plugstack.conf").write_text(f"{text}\n")


def environment_script(folder: Path, *before: str) -> str:
    """Return a batch script that stores its environment and that of two tasks of a step."""
    return "\n".join(
        [
            f"env > {folder}/batch",
            *before,
            # Remove the batch script's variables, so that each task gets its own.
            "unset $(env | sed -n 's/^\\(HOPS_[A-Z_]*\\)=.*/\\1/p') PYTHONPATH",
            f"srun --overcommit --ntasks=2 bash -c 'env > {folder}/task$SLURM_PROCID'",
            f"touch {folder}/done",
            "sleep 600 & wait",
        ]
    )


def place(cluster: PrivateCluster, job: str) -> None:
    shape = "reqnodelist=n0 numnodes=1 numtasks=2 tresPerJob= tresPerNode=gres:gpu:2 starttime=now"
    cluster.run("scontrol", "update", f"jobid={job}", *shape.split())
    cluster.run("scontrol", "release", job)


def read(folder: Path, name: str) -> dict[str, str]:
    wait_until((folder / "done").exists)
    return dict(line.partition("=")[::2] for line in (folder / name).read_text().splitlines())


def test_tasks_in_a_container_get_their_variables_from_outside(
    cluster: PrivateCluster, libraries: Path, answers: Path
) -> None:
    stack(cluster, libraries, "container", "hops")
    script = environment_script(answers, f"ls {cluster.directory}/plugin > {answers}/seen")
    comment = "hops:reqs=1,2;lr=0.1;lr_rule=linear"
    task_options = ("--ntasks=4", "--gpus-per-node=4")
    job = submit(cluster, *task_options, script=script, comment=comment, uid=NOBODY)
    place(cluster, job)
    batch = read(answers, "batch")
    assert (answers / "seen").read_text() == ""  # the script really runs in the container
    assert (batch["SLURM_NTASKS"], batch["SLURM_GPUS_PER_NODE"]) == ("2", "2")
    for environment in (batch, read(answers, "task0"), read(answers, "task1")):
        assert environment["HOPS_GPUS"] == "2"
        assert environment["HOPS_LR"] == "0.2"
        assert environment["PYTHONPATH"] == "/opt/p"


def test_other_jobs_run_as_without_hops(
    cluster: PrivateCluster, libraries: Path, answers: Path
) -> None:
    stack(cluster, libraries, "container", "hops")
    submit(cluster, "--ntasks=2", script=environment_script(answers), comment=None, uid=NOBODY)
    assert not [name for name in read(answers, "task1") if name.startswith("HOPS_")]


@pytest.mark.parametrize(
    "broken_line",
    [
        "optional /no/such/hops_spank.so",
        "optional {libraries}/hops_spank.so scripts=/no/such run_dir={run}",
        "optional {libraries}/hops_spank.so scripts={libraries} run_dir={run}",
    ],
    ids=["missing", "no scripts", "a script that fails"],
)
def test_no_fault_of_ours_prevents_a_job_from_running(
    cluster: PrivateCluster, libraries: Path, answers: Path, broken_line: str
) -> None:
    script = libraries / "task_prolog.sh"
    script.write_text("#!/bin/sh\necho export LD_PRELOAD=/no/such\nexit 3\n")
    script.chmod(0o755)
    line = broken_line.format(libraries=libraries, run=cluster.directory / "run")
    stack(cluster, libraries, line)
    place(cluster, submit(cluster, script=environment_script(answers), uid=NOBODY))
    environment = read(answers, "task1")
    assert "LD_PRELOAD" not in environment
    assert "HOPS_JOB" not in environment


def test_a_plain_job_has_no_variable_of_the_hops_job_that_submitted_it(
    cluster: PrivateCluster, libraries: Path, answers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"JOB": "1", "JOB_ID": "999", "PROFILE": "20"}.items():
        monkeypatch.setenv(f"HOPS_{name}", value)
    stack(cluster, libraries, "hops")
    submit(cluster, script=environment_script(answers), uid=NOBODY, comment=None)
    assert not [name for name in read(answers, "task1") if name.startswith("HOPS_")]


def test_the_script_runs_entirely_as_the_jobs_user(
    cluster: PrivateCluster, libraries: Path, answers: Path
) -> None:
    """A shell whose real user is still root regains root's rights."""
    script = libraries / "task_prolog.sh"
    script.write_text(
        "#!/bin/sh\ngrep -E '^(Uid|Gid|CapPrm|CapEff)' /proc/self/status |"
        " tr '\\t\\n' ' _' | sed 's/^/export HOPS_IDS=/'\n"
    )
    script.chmod(0o755)
    run = cluster.directory / "run"
    stack(
        cluster, libraries, f"optional {libraries}/hops_spank.so scripts={libraries} run_dir={run}"
    )
    place(cluster, submit(cluster, script=environment_script(answers), uid=NOBODY))
    zero = "0" * 16
    nobody_ids = " ".join([str(NOBODY)] * 4)
    assert read(answers, "batch")["HOPS_IDS"] == (
        f"Uid: {nobody_ids}_Gid: {nobody_ids}_CapPrm: {zero}_CapEff: {zero}_"
    )


def test_slurm_looks_for_a_task_prolog_inside_the_container(
    cluster: PrivateCluster, libraries: Path, answers: Path
) -> None:
    """This is why the plugin exists: without the script there, the task of any job fails."""
    stack(cluster, libraries, "container")
    conf = cluster.conf.read_text()
    ours = f"TaskProlog={cluster.directory}/plugin/task_prolog.sh"
    cluster.conf.write_text(conf.replace("TaskProlog=/bin/true", ours))
    try:
        cluster.run("scontrol", "reconfigure")
        wait_until(lambda: ours.partition("=")[2] in cluster.run("scontrol", "show", "config"))
        job = submit(cluster, script=environment_script(answers), comment=None, uid=NOBODY)
        wait_until(lambda: state(cluster, job) is SlurmState.FAILED)
    finally:
        cluster.conf.write_text(conf)
        cluster.run("scontrol", "reconfigure")


def state(cluster: PrivateCluster, job: str) -> SlurmState:
    job_details = cluster.run("scontrol", "show", "job", job, "--oneliner")
    word = dict(w.partition("=")[::2] for w in job_details.split())["JobState"]
    return SlurmState(word) if word in SlurmState.__members__ else SlurmState.OTHER


def test_a_script_without_tasks_has_the_variables_of_plain_slurm(
    cluster: PrivateCluster, libraries: Path, answers: Path
) -> None:
    stack(cluster, libraries, "hops")
    job = submit(
        cluster,
        "--gpus-per-node=4",
        script=environment_script(answers),
        comment="hops:reqs=1,2",
        uid=NOBODY,
    )
    place(cluster, job)
    assert "SLURM_NTASKS" not in read(answers, "batch")
