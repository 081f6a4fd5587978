"""Existing scripts run under hops as on plain Slurm: nothing but the comment is added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from patterns import ELASTIC, PATTERNS, Pattern
from script_site import BUSY, Run, ScriptSite

pytestmark = [pytest.mark.live, pytest.mark.slow]

BY_NAME = {pattern.name: pattern for pattern in PATTERNS}


def check_ranks(run: Run, gpus: int) -> None:
    """As many ranks as GPUs, each GPU once and nobody else's."""
    assert run.state == "COMPLETED", run.told + run.output
    assert [rank.rank for rank in run.ranks] == list(range(gpus)), run.output
    assert {rank.world for rank in run.ranks} == {gpus}, run.output
    used = [rank.gpu for rank in run.ranks]
    assert len(set(used)) == gpus, run.output
    taken = {(node, str(gpu)) for node, count in BUSY.items() for gpu in range(count)}
    assert taken.isdisjoint(used), run.output


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_script_runs_as_on_plain_slurm(scripts: ScriptSite, pattern: Pattern) -> None:
    run = scripts.hops(pattern.text, pattern.comment.format(f"reqs={pattern.gpus}"))
    if not pattern.same:
        check_ranks(run, pattern.gpus)
        return
    plain = scripts.plain(pattern.text)
    if "mutually exclusive" in plain.output:
        pytest.skip(plain.output)  # a later srun ends at options that it took before
    assert plain.state == "COMPLETED", plain.told + plain.output
    check_ranks(run, pattern.gpus)
    cores = "--cpus-per" in pattern.options  # else hops gives one with each GPU
    assert figures(run, cores=cores) == figures(plain, cores=cores)
    assert run.memory == plain.memory


def figures(run: Run, *, cores: bool) -> object:
    """Without what depends on the nodes and, unless ``cores``, on how many come with a GPU."""
    left_out = set() if cores else {"JOB_CPUS_PER_NODE", "CPUS_ON_NODE", "CPUS_PER_TASK"}
    if run.figures["NTASKS"] == "unset":  # Slurm tells of a task a core, where hops has one a node
        left_out.add("TASKS_PER_NODE")
    ranks = [(r.rank, r.world, r.local, len(r.gpus), r.cores if cores else "") for r in run.ranks]
    return {name: said for name, said in run.figures.items() if name not in left_out}, ranks


@pytest.mark.parametrize(("name", "comment", "counts"), ELASTIC)
def test_a_script_runs_on_other_counts(
    scripts: ScriptSite, name: str, comment: str, counts: set[int]
) -> None:
    run = scripts.hops(BY_NAME[name].text, f"hops:{comment}")
    assert len(run.ranks) in counts, run.told + run.output
    check_ranks(run, len(run.ranks))


USERS = Path(__file__).parents[2] / "docs" / "users.md"
LAUNCHERS = dict(
    re.findall(
        r"```bash\n# (\w+(?: python)?)[^\n]*\n(.*?)```",
        USERS.read_text().partition("## Launchers")[2].partition("\n## ")[0],
        re.DOTALL,
    )
)


def test_the_launchers_of_the_users_page_are_read() -> None:
    assert [*LAUNCHERS] == ["torchrun", "srun python", "accelerate", "Lightning", "deepspeed"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_as_the_users_page_has_it_starts_a_rank_on_each_gpu(
    scripts: ScriptSite, launcher: str
) -> None:
    run = scripts.hops(LAUNCHERS[launcher], "hops:reqs=4,8")
    assert len(run.ranks) in {4, 8}, run.told + run.output
    check_ranks(run, len(run.ranks))
    assert "ranks on each node" not in run.told
