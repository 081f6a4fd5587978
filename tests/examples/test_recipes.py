"""Each recipe runs as a real job, is moved to another number of GPUs, and continues there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from fixtures_cluster import clean, report_folder, running_cluster, wait_until

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "recipes"
PROGRESS = re.compile(r"^(?:step|epoch) (\d+) on (\d+) GPUs", re.MULTILINE)
FIRST = Allocation.of({"n2": 1})
ONE_NODE, TWO_NODES = Allocation.of({"n0": 2}), Allocation.of({"n0": 1, "n1": 1})


@dataclass(frozen=True)
class Recipe:
    """``command``: sbatch's script and arguments. ``allocation``: where it is moved to. ``last``:
    what it prints when it has done everything.
    """

    command: tuple[str, ...]
    allocation: Allocation
    last: int
    package: str = "torch"


STEPS = ("--steps", "2000")
RECIPE_CASES = {
    "plain": Recipe(("plain.sh", *STEPS), Allocation.of({"n0": 1}), 2000),
    "torchrun": Recipe(("torchrun.sh", *STEPS), TWO_NODES, 2000),
    "trainer": Recipe(
        ("hops-run.sh", "trainer.py", *STEPS), TWO_NODES, 2000, package="transformers"
    ),
    "lightning": Recipe(
        ("hops-run.sh", "lightning_loop.py", *STEPS), ONE_NODE, 2000, package="lightning"
    ),
    "accelerate": Recipe(
        ("hops-run.sh", "accelerate_loop.py", "--epochs", "30"), TWO_NODES, 29,
        package="accelerate",
    ),
    "fsdp2": Recipe(("hops-run.sh", "fsdp2.py", *STEPS), TWO_NODES, 2000),
    "deepspeed": Recipe(
        ("hops-run.sh", "deepspeed_loop.py", *STEPS), TWO_NODES, 2000, package="deepspeed"
    ),
    "jax": Recipe(("jax.sh", *STEPS), TWO_NODES, 2000, package="jax"),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole_cluster() -> Iterator[PrivateCluster]:
    nodes = (NodeSpec("rtx3090", gpus=2), NodeSpec("rtx3090", gpus=2), NodeSpec("v100", gpus=1))
    with (
        report_folder() as spool,
        running_cluster(
            nodes=nodes, report_dir=spool, profiler_path=ROOT / "profiler" / "site"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(whole_cluster: PrivateCluster) -> Iterator[PrivateCluster]:
    yield whole_cluster
    clean(whole_cluster)


def test_every_recipe_has_a_test() -> None:
    scripts = {path.name for path in RECIPES.glob("*.sh")}
    programs = {path.name for path in RECIPES.glob("*.py")}
    tested_words = {word for recipe in RECIPE_CASES.values() for word in recipe.command}
    script_words = {word for script in scripts for word in (RECIPES / script).read_text().split()}
    assert scripts <= tested_words
    assert programs <= tested_words | script_words


@pytest.mark.long
@pytest.mark.parametrize("name", RECIPE_CASES)
def test_a_moved_recipe_continues(name: str, cluster: PrivateCluster, tmp_path: Path) -> None:
    recipe = RECIPE_CASES[name]
    if find_spec(recipe.package) is None:
        pytest.skip(f"needs {recipe.package}: pip install {recipe.package}")
    tmp_path.chmod(0o755)
    for path in RECIPES.iterdir():
        (tmp_path / path.name).symlink_to(path)
    # The recipe's own comment and options, as a user would submit it.
    result = subprocess.run(
        ["sbatch", "--parsable", f"--output={tmp_path}/log", *recipe.command],
        env=os.environ | cluster.env
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    id_ = JobId(result.stdout.strip())
    port = SlurmPort(ScontrolAdapter(cluster.commands()), ApplySettings())

    def log() -> str:
        path = tmp_path / "log"
        return path.read_text() if path.exists() else ""

    def job() -> JobReading:
        (reading,) = [reading for reading in port.read().jobs if reading.id == id_]
        return reading

    def apply(step: Step) -> None:
        (outcome,) = port.apply([step])
        assert outcome.status is OutcomeStatus.DONE, f"{outcome.error}\n{log()}"

    apply(Step(id_, StepKind.START, target=FIRST))
    wait_until(lambda: bool(PROGRESS.search(log())) or job().state.finished, 240, log)
    apply(Step(id_, StepKind.MOVE, current=FIRST, target=recipe.allocation))
    wait_until(lambda: job().state.finished, 240, log)
    assert job().state is SlurmState.COMPLETED, log()

    first, second = (
        [(int(steps), int(gpus)) for steps, gpus in PROGRESS.findall(run)]
        for run in re.split(r"^hops: moved from .*$", log(), flags=re.MULTILINE)
    )
    assert {gpus for _, gpus in first} == {1}, log()
    assert {gpus for _, gpus in second} == {recipe.allocation.gpus}, log()
    # No work is repeated or omitted.
    assert first[-1] < second[0], log()
    assert second[-1][0] == recipe.last
    steps = [count for count, _ in (*first, *second)]
    assert steps == list(range(steps[0], recipe.last + 1, steps[1] - steps[0])), log()
