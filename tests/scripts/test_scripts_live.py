"""Existing scripts run under hops as on plain Slurm: nothing but the comment is added."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import pytest
from patterns import ELASTIC, PATTERNS, Pattern
from script_site import BUSY, SWITCHES, Run, Script, ScriptSite

pytestmark = [pytest.mark.live, pytest.mark.slow]

BATCH_SIZE = 21
"""Scripts that run beside each other."""

BY_NAME = {pattern.name: pattern for pattern in PATTERNS}


def check_ranks(run: Run, gpus: int) -> None:
    """Check that there are as many ranks as GPUs, each on a separate GPU of the job."""
    assert run.state == "COMPLETED", run.message + run.output
    assert [rank.rank for rank in run.ranks] == list(range(gpus)), run.output
    assert {rank.world for rank in run.ranks} == {gpus}, run.output
    gpus_of_ranks = [rank.gpu for rank in run.ranks]
    assert len(set(gpus_of_ranks)) == gpus, run.output
    busy_gpus = {(node, str(gpu)) for node, count in BUSY.items() for gpu in range(count)}
    assert busy_gpus.isdisjoint(gpus_of_ranks), run.output


def failures_of(checks: Mapping[str, Callable[[], None]]) -> dict[str, str]:
    """Return the failed checks by name."""
    wrong = {}
    for name, check in checks.items():
        try:
            check()
        except AssertionError as error:
            wrong[name] = str(error)
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, len(PATTERNS), BATCH_SIZE))
def test_scripts_run_as_on_plain_slurm(scripts: ScriptSite, first: int) -> None:
    patterns = PATTERNS[first : first + BATCH_SIZE]
    plain = scripts.run([Script(pattern.text) for pattern in patterns])
    hops = scripts.run([Script(p.text, p.comment.format(f"reqs={p.gpus}")) for p in patterns])
    checks = {
        pattern.name: partial(check_same, pattern, *runs)
        for pattern, *runs in zip(patterns, plain, hops, strict=True)
    }
    assert failures_of(checks) == {}


def check_same(pattern: Pattern, plain: Run, hops: Run) -> None:
    if "mutually exclusive" in plain.output:
        return  # later releases of srun refuse options that it used to accept
    if plain.state == "REFUSED" and not pattern.same:
        return  # Slurm 26.05 refuses fewer tasks than --nodes with --ntasks-per-node ask for
    assert plain.state == "COMPLETED", plain.message + plain.output
    check_ranks(hops, pattern.gpus)
    if pattern.same:
        # Where no cores are asked for, hops gives one with each GPU.
        cores = any(option in pattern.options for option in ("--cpus-per", "--mincpus"))
        assert figures(hops, cores=cores) == figures(plain, cores=cores)
        assert hops.memory == plain.memory
    if "--switches=1" in pattern.options:
        nodes = {rank.node for rank in hops.ranks}
        assert any(nodes.issubset(on_it.split(",")) for on_it in SWITCHES.values())


def figures(run: Run, *, cores: bool) -> object:
    """Omit the figures that depend on nodes or, unless ``cores``, on the cores of a GPU."""
    left_out = set() if cores else {"JOB_CPUS_PER_NODE", "CPUS_ON_NODE", "CPUS_PER_TASK"}
    if run.figures["NTASKS"] == "unset":  # Slurm reports a task per core, hops one per node
        left_out.add("TASKS_PER_NODE")
    ranks = [(r.rank, r.world, r.local, len(r.gpus), r.cores if cores else "") for r in run.ranks]
    return {name: value for name, value in run.figures.items() if name not in left_out}, ranks


def test_a_job_with_capped_cores_keeps_its_memory(scripts: ScriptSite) -> None:
    """Regression: --mem-per-cpu followed the cap on cores, so the script had half of its memory."""
    options = "--nodes=1 --gres=gpu:v100:1 --ntasks=1 --cpus-per-task=16 --mem-per-cpu=100"
    text = "\n".join([*(f"#SBATCH {option}" for option in options.split()), "srun rank"])
    (plain,) = scripts.run([Script(text)])
    (hops,) = scripts.run([Script(text, "hops:reqs=1")])
    assert hops.figures["CPUS_PER_TASK"] == "8"
    assert plain.memory == hops.memory
    assert hops.memory in ("1600M", "")  # after 22.05 scontrol no longer prints it in TRES=


def test_scripts_run_on_other_counts(scripts: ScriptSite) -> None:
    runs = scripts.run(
        [Script(BY_NAME[name].text, f"hops:{comment_words}") for name, comment_words, _ in ELASTIC]
    )
    checks = {
        f"{name} {comment}": partial(check_counts, run, counts)
        for (name, comment, counts), run in zip(ELASTIC, runs, strict=True)
    }
    assert failures_of(checks) == {}


def check_counts(run: Run, counts: Collection[int]) -> None:
    assert len(run.ranks) in counts, run.message + run.output
    check_ranks(run, len(run.ranks))


RECIPES = Path(__file__).parents[2] / "examples" / "recipes" / "launchers.md"
LAUNCHERS = dict(
    re.findall(r"```bash\n# (\w+(?: python)?)[^\n]*\n(.*?)```", RECIPES.read_text(), re.DOTALL)
)


def test_the_launchers_of_the_recipes_are_recognised() -> None:
    assert [*LAUNCHERS] == ["torchrun", "srun python", "accelerate", "Lightning", "deepspeed"]


def test_launchers_of_the_recipes_start_a_rank_on_each_gpu(
    scripts: ScriptSite,
) -> None:
    runs = scripts.run([Script(text, "hops:reqs=4,8") for text in LAUNCHERS.values()])
    checks = {
        name: partial(check_counts, run, {4, 8}) for name, run in zip(LAUNCHERS, runs, strict=True)
    }
    assert failures_of(checks) == {}
    assert not any("ranks on each node" in run.message for run in runs)
