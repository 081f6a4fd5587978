"""Unchanged trainings of every kind keep bitwise equal losses and get a correct report."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from hopsd.core.report.reports import parse_report

if TYPE_CHECKING:
    from conftest import Node

pytestmark = pytest.mark.live

RELEASE = tuple(int(part) for part in version("torch").split("+")[0].split(".")[:2])
OLD = RELEASE < (2, 3)
"""Of PyTorch: it does not say that it is compiling, so that our hooks are compiled, too."""


def needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


def check_report(report: dict[str, Any]) -> None:
    """Check that hopsd accepts the report."""
    name = ".".join(str(report[k]) for k in ("job", "run", "node", "rank", "pid")) + ".json"
    parse_report(json.dumps(report).encode(), name, time.time())


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "argument", "iterations", "samples", "params"),
    [
        ("plain", "", 40, 640, 8836),
        ("workers", "fork", 40, 640, 8836),
        ("workers", "spawn", 40, 640, 8836),
        ("accumulate", "", 40, 2560, 8836),
        # The step that overflowed does not count, but its batch was read.
        pytest.param(
            *("mixed_precision", "", 39, 640, 8836),
            marks=pytest.mark.skipif(OLD, reason="no GradScaler for a CPU before PyTorch 2.3"),
        ),
        # Iterations are the critic's steps; the parameters of both networks count.
        ("gan", "", 40, 640, 4513),
        ("in_backward", "", 40, 640, 8836),
        # Compiled steps cannot be observed: after 32 backward passes, passes count instead.
        ("compiled", "", 40, 640, 0),
        ("compiled_step", "", 9, 640, 0) if OLD else ("compiled_step", "", 39, 624, 0),
        ("inference", "", 39, 624, 0),
        pytest.param("huggingface", "", 40, 640, 8836, marks=needs("transformers")),
        pytest.param("lightning_loop", "", 40, 640, 8836, marks=needs("lightning")),
    ],
)
def test_losses_are_bitwise_equal_and_counts_are_exact(
    node: Node, program: str, argument: str, iterations: int, samples: int, params: int
) -> None:
    alone = node.program(program, *filter(None, [argument]), profiler=False)
    profile = node.program(program, *filter(None, [argument]))
    assert len(alone.losses) >= 20
    assert profile.losses == alone.losses
    assert alone.reports == []
    (report,) = profile.reports
    check_report(report)
    assert report["failure"] == ""
    assert report["final"] is True
    is_inference = program == "inference" or (program == "compiled_step" and not OLD)
    assert report["kind"] == ("inference" if is_inference else "training")
    if program in ("plain", "huggingface", "lightning_loop"):
        assert report["planned"] == 40
    counts = report["iterations"], report["samples"], report["params"]
    assert counts == (iterations, samples, params)


@pytest.mark.long
def test_evaluation_time_is_excluded_from_iterations(node: Node) -> None:
    """An evaluation follows every ten steps; no step follows the last one."""
    (report,) = node.program("accumulate").reports
    assert report["interrupted"] == 3
    assert report["timed"]["iterations"] == 40 - 3 - 3
    assert report["timed"]["samples"] == 34 * 64
    assert report["batch"] == 64
    assert report["basics"]["t_c"] is None


@pytest.mark.long
def test_phases_agree_with_clocks_in_the_loop(node: Node) -> None:
    """They agree within 5 %. Six tries, as a process may lose the CPU between two readings."""
    worst: dict[str, float] = {}
    for _ in range(6):
        result = node.program("instrumented")
        by_hand = json.loads(result.out)
        (report,) = result.reports
        assert by_hand["t_iter"] > 0.02
        assert report["basics"]["pattern"] == 2
        assert report["basics"]["t_w"] == 0
        worst = {k: abs(report["basics"][k] / seconds - 1) for k, seconds in by_hand.items()}
        if max(worst.values()) < 0.05:
            return
    pytest.fail(f"relative errors {worst}")


@pytest.mark.long
def test_each_rank_reports_and_the_faster_one_reports_its_wait(node: Node) -> None:
    """Rank 1 is 40 ms late in every second iteration; on a busy machine, either rank may be."""
    session = []
    for _ in range(3):
        reports = node.torchrun(2, "spread").reports
        rank_counts = [(r["rank"], r["world"], r["samples"]) for r in reports]
        assert rank_counts == [(0, 2, 320), (1, 2, 320)]
        for report in reports:
            check_report(report)
        fast, slow = (report["basics"] for report in reports)
        if (
            fast["t_w"] == pytest.approx(0.020, rel=0.3)
            and slow["t_w"] < fast["t_w"] / 2
            and 0 < slow["t_c"] < 0.040
            and fast["t_iter"] == pytest.approx(slow["t_iter"], rel=0.05)
        ):
            return
        session.append((fast, slow))
    pytest.fail(f"basic times of rank 0 and 1: {session}")


@pytest.mark.long
def test_two_consecutive_programs_of_a_job_are_both_counted(node: Node) -> None:
    first = node.program("plain").reports
    second = node.program("plain", HOPS_RESTART_COUNT="1").reports
    assert [r["run"] for r in first + second] == [0, 1]
    assert first[0]["pid"] != second[0]["pid"]


@pytest.mark.long
def test_without_a_data_loader_the_batch_comes_from_the_input_of_the_model(node: Node) -> None:
    """Each step has two passes; loops that slice batches from one long text look like this."""
    code = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    for _ in range(2):
        model(torch.randn(6, 4)).sum().backward()
    optimizer.step(); optimizer.zero_grad()
print(len(torch.nn.modules.module._global_forward_pre_hooks))
"""
    result = node.run("-c", code)
    (report,) = result.reports
    assert result.out == "0\n"
    assert (report["iterations"], report["samples"], report["samples_from"]) == (20, 240, "input")
    assert report["timed"]["samples"] == 17 * 12


@pytest.mark.long
def test_the_last_save_and_the_program_are_reported(node: Node) -> None:
    script = node.folder / "train.py"
    script.write_text("""
import io, torch
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for iteration in range(20):
    optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
    if iteration in (3, 11):
        torch.save(w, io.BytesIO())
""")
    (report,) = node.run(script).reports
    assert (report["iterations"], report["saved"], report["saving"]) == (20, 12, False)
    assert report["started"] < report["saved_at"] - report["save_every"] < report["saved_at"]
    assert report["program"] == hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    (plain,) = node.program("plain").reports
    assert plain["saved"] is None
    check_report(report)


@pytest.mark.long
def test_a_save_at_the_end_of_a_program_ends_when_the_program_ends(node: Node) -> None:
    code = """
import io, torch
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for iteration in range(4):
    optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
torch.save(w, io.BytesIO())
"""
    (report,) = node.run("-c", code).reports
    assert (report["final"], report["saved"], report["saving"]) == (True, 4, False)
    assert report["saved_at"] is not None


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "restarts", "rank", "line"),
    [
        ("{'step': 1200, 'epoch': 3}", 1, 0, "hops: went on from step 1,200 (last.pt)\n"),
        ("{'epoch': 3, 'model': w}", 1, 0, "hops: went on from epoch 3 (last.pt)\n"),
        ("{'step': w, 'iter': True, 'epoch': 0}", 1, 0, ""),
        ("[w]", 1, 0, ""),
        ("{'step': 1200}", 0, 0, ""),
        ("{'step': 1200}", 1, 1, ""),
    ],
)
def test_a_restarted_job_reports_the_step_it_continues_from(
    node: Node, state: str, restarts: int, rank: int, line: str
) -> None:
    code = f"""
import torch
w = torch.ones(2)
torch.save({state}, "last.pt")
for _ in range(2):
    torch.load("last.pt")
with open("last.pt", "rb") as file:
    torch.load(file)
"""
    result = node.run("-c", code, HOPS_RESTART_COUNT=str(restarts), SLURM_PROCID=str(rank))
    assert [text for text in result.err.splitlines(keepends=True) if "hops" in text] == [
        line
    ] * bool(line)


@pytest.mark.long
def test_a_save_of_several_files_is_reported_while_it_is_written(node: Node) -> None:
    code = """
import glob, json, os, time, torch
def seen():
    time.sleep(0.5)
    (path,) = glob.glob(os.environ["HOPS_REPORT_DIR"] + "/*.json")
    report = json.load(open(path))
    print(report["saving"], report["saved_at"] is None)
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for iteration in range(4):
    optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
    if iteration == 2:
        torch.save(w, os.devnull)
        seen()
        torch.save(w, os.devnull)
        seen()
seen()
"""
    assert node.run("-c", code).out == "True True\nTrue True\nFalse False\n"


@pytest.mark.long
def test_the_batch_of_the_comment_counts_if_none_is_observed(node: Node) -> None:
    code = """
import torch
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for _ in range(20):
    optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
"""
    (blind,) = node.run("-c", code).reports
    (report,) = node.run("-c", code, HOPS_BATCH="8").reports
    assert (blind["iterations"], blind["samples"], blind["samples_from"]) == (20, 0, "")
    assert (report["iterations"], report["samples"], report["samples_from"]) == (20, 160, "comment")


@pytest.mark.long
def test_overhead_and_memory_of_many_iterations_are_bounded(node: Node) -> None:
    """Overhead is under 0.5 % of 20 ms; memory does not grow in 100,000 iterations."""
    profile = json.loads(node.program("long", "100000").out)
    alone = json.loads(node.program("long", "20000", profiler=False).out)
    assert profile["seconds"] - alone["seconds"] < 0.005 * 0.020
    assert profile["grown_kib"] < 1024
