"""How the profiler enters a process, what it costs other processes, and how it ends one."""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopsd.core.report.reports import parse_report

if TYPE_CHECKING:
    from conftest import Node

PROFILER = Path(__file__).parents[3] / "profiler"
PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.mark.parametrize("path", sorted(PROFILER.rglob("*.py")), ids=lambda p: p.name)
def test_modules_support_the_oldest_python_and_import_nothing_from_the_daemon(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    module_names = {
        name.split(".")[0]
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for name in (
            [statement.module or ""]
            if isinstance(statement, ast.ImportFrom)
            else [alias.name for alias in statement.names]
        )
    }
    assert module_names <= sys.stdlib_module_names | {"torch", "hops_profiler", "hops_enter"}


@pytest.mark.live
def test_starting_another_program_costs_under_20_ms(node: Node) -> None:
    """The best CPU time of 15 counts, as a busy machine delays every program."""

    def best(env: dict[str, str]) -> float:
        times = []
        for _ in range(15):
            usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", "pass"], env=env, check=True)
            usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(
                usage_after.ru_utime
                + usage_after.ru_stime
                - usage_before.ru_utime
                - usage_before.ru_stime
            )
        return min(times)

    profile = node.env()
    without_profiler = {k: v for k, v in profile.items() if k != "PYTHONPATH"}
    assert best(profile) - best(without_profiler) < 0.020


def test_a_python_without_the_plugin_gets_it_from_the_folder_of_the_plugin() -> None:
    """As in users' environments, which do not contain hops."""
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    code = (
        "import sitecustomize, sys;"
        "print(getattr(sys.modules.get('hops_profiler'), '__file__', None))"
    )
    bare_env = {"PYTHONPATH": str(PROFILER / "site"), "PATH": os.environ["PATH"]}
    for env, plugin in ((bare_env | {"HOPS_JOB": "1"}, PROFILER / "__init__.py"), (bare_env, None)):
        result = subprocess.run(
            [python, "-S", "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert (result.stdout.strip(), result.stderr) == (str(plugin), "")


@pytest.mark.live
def test_a_sitecustomize_of_the_environment_still_runs(node: Node) -> None:
    folder = node.folder / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import builtins; builtins.here = 'here'\n")
    path = f"{PROFILER / 'site'}:{folder}"
    result = node.run(
        "-c", "import sitecustomize; print(here, sitecustomize.__file__)", PYTHONPATH=path
    )
    assert result.out.split() == ["here", str(folder / "sitecustomize.py")]
    assert result.err == ""


@pytest.mark.live
def test_an_error_in_a_sitecustomize_is_reported_as_by_python(node: Node) -> None:
    folder = node.folder / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
    path = f"{PROFILER / 'site'}:{folder}"
    result = node.run("-c", "print('runs')", PYTHONPATH=path)
    assert result.out == "runs\n"
    assert "RuntimeError: mine" in result.err


@pytest.mark.long
@pytest.mark.live
def test_outside_a_hops_job_nothing_changes(node: Node) -> None:
    code = "import sys; print('hops_profiler' in sys.modules, len(sys.meta_path))"
    inside, outside = node.run("-c", code).out, node.run("-c", code, profiler=False).out
    assert outside.startswith("False")
    assert inside.startswith("True")
    assert node.program("plain", profiler=False).reports == []


@pytest.mark.long
@pytest.mark.live
def test_importing_torch_restores_its_loader(node: Node) -> None:
    code = """
import torch
print(type(torch.__spec__.loader).__name__, 'exec_module' in vars(torch.__spec__.loader))
"""
    assert node.run("-c", code).out.split() == ["SourceFileLoader", "False"]


@pytest.mark.long
@pytest.mark.live
def test_the_package_runs_a_script_given_by_path(node: Node) -> None:
    result = node.run("-m", "hops_profiler", PROGRAMS / "plain.py", PYTHONPATH="")
    assert result.losses == node.program("plain", profiler=False).losses
    reports = node.program("plain").reports
    assert [(r["iterations"], r["program"]) for r in result.reports] == [
        (40, reports[0]["program"])
    ]


@pytest.mark.long
@pytest.mark.live
@pytest.mark.parametrize("spool", ["missing", "file", "full"])
def test_training_continues_if_no_report_can_be_written(node: Node, spool: str) -> None:
    target = node.folder / spool
    if spool == "file":
        target.touch()
    if spool == "full":
        target.mkdir()
        mount_result = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(target)],
            check=False,
            capture_output=True,
        )
        if mount_result.returncode:
            pytest.skip("needs the right to mount a small file system")
        (target / "filler").write_bytes(b"x" * 4096)
    try:
        result = node.program("plain", HOPS_REPORT_DIR=str(target))
        assert len(result.losses) == 40
        assert result.err == ""
        if spool == "full":
            assert [p.name for p in target.iterdir()] == ["filler"]
    finally:
        if spool == "full":
            subprocess.run(["umount", str(target)], check=True)


@pytest.mark.long
@pytest.mark.live
def test_a_killed_process_leaves_its_last_report(node: Node) -> None:
    env = node.env(HOPS_REPORT_SECONDS="0.2")
    with subprocess.Popen(
        [sys.executable, PROGRAMS / "endless.py"], env=env, stdout=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 60
        iterations = 0
        while iterations < 100 and time.monotonic() < deadline:
            time.sleep(0.1)
            for path in node.spool.glob("*.json"):
                # Each reading must return a complete report, even during a replacement.
                report = parse_report(path.read_bytes(), path.name, time.time())
                iterations = report.iterations
        process.send_signal(signal.SIGKILL)
    assert iterations >= 100
    (remaining,) = node.reports()
    assert remaining["iterations"] >= iterations
    assert remaining["final"] is False


@pytest.mark.long
@pytest.mark.live
def test_reports_are_readable_with_any_umask_of_the_job(node: Node) -> None:
    command = [sys.executable, PROGRAMS / "plain.py"]
    subprocess.run(command, env=node.env(), check=True, stdout=subprocess.DEVNULL, umask=0o077)
    (path,) = node.spool.glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.long
@pytest.mark.live
def test_a_profiling_run_that_slurm_cannot_end_continues_training(node: Node) -> None:
    """An exit with any code could be mistaken for a finished or failed training."""
    result = node.program("accumulate", HOPS_PROFILE="10", PATH="/nonexistent")
    plain = node.program("accumulate", profiler=False)
    assert result.losses == plain.losses
    (report,) = result.reports
    assert report["mode"] == "running"
    assert report["timed"]["iterations"] > 10


@pytest.mark.long
@pytest.mark.live
def test_a_profiling_run_asks_slurm_first(node: Node) -> None:
    scontrol = node.folder / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {node.folder}/asked\nkill $PPID\n')
    scontrol.chmod(0o755)
    path = f"{scontrol.parent}:{os.environ['PATH']}"
    result = node.run(PROGRAMS / "endless.py", HOPS_PROFILE="1", PATH=path)
    assert (node.folder / "asked").read_text() == "requeuehold 17\n"
    assert result.code == -signal.SIGTERM
    assert json.dumps(result.reports[0]["final"]) == "true"


@pytest.mark.long
@pytest.mark.live
def test_a_defect_in_a_hook_ends_the_profiler_but_not_the_training(node: Node) -> None:
    code = """
import runpy, sys
import torch, hops_profiler.timing.recorder as recorder
def broken(*_):
    raise ValueError("broken")
recorder.Recorder.add_batch = broken
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/plain.py")
"""
    result = node.run("-c", code, PROGRAMS)
    assert result.code == 0, result.err
    assert result.losses == node.program("plain", profiler=False).losses


@pytest.mark.long
@pytest.mark.live
def test_a_block_can_be_measured_outside_any_job(node: Node) -> None:
    code = """
import json, torch, hops_profiler
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(iterations):
    for _ in range(iterations):
        optimizer.zero_grad(); model(torch.randn(6, 4)).sum().backward(); optimizer.step()
train(7)
counted = []
for iterations in (20, 30):
    with hops_profiler.profile() as seen:
        train(iterations)
    train(7)
    summary = seen.summary()
    counted.append([summary["iterations"], summary["samples"], summary["basics"]["t_b"] > 0])
print(json.dumps(counted))
"""
    result = node.run("-c", code, profiler=False)
    assert result.err == ""
    assert json.loads(result.out) == [[20, 120, True], [30, 180, True]]
    assert result.reports == []


TRAIN = """
import torch
w = torch.ones(4, 1, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
def train(iterations):
    for _ in range(iterations):
        optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
"""


@pytest.mark.long
@pytest.mark.live
def test_searching_for_torch_does_not_import_it(node: Node) -> None:
    """Transformers, datasets and evaluate do so, any number of times."""
    ask = "import importlib.util\nassert importlib.util.find_spec('torch')\n" * 3
    (report,) = node.run("-c", ask + TRAIN + "train(7)").reports
    assert report["iterations"] == 7


@pytest.mark.long
@pytest.mark.live
def test_a_preceding_sitecustomize_and_ours_both_run(node: Node) -> None:
    folder = node.folder / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import builtins; builtins.here = 'here'\n")
    path = f"{folder}:{PROFILER / 'site'}"
    result = node.run("-c", TRAIN + "train(7); print(here)", PYTHONPATH=path)
    assert (result.out, result.err) == ("here\n", "")
    if tuple(map(int, version("torch").split(".")[:2])) >= (
        2,
        5,
    ):  # from here on, torch searches for extensions
        assert [report["iterations"] for report in result.reports] == [7]


@pytest.mark.long
@pytest.mark.live
def test_a_preceding_sitecustomize_that_runs_the_next_one_runs_once(node: Node) -> None:
    folder = node.folder / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("""
import importlib.util, sys
print("ahead")
at = [path.endswith("site") for path in sys.path].index(True)
spec = importlib.util.spec_from_file_location("sitecustomize", sys.path[at] + "/sitecustomize.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
""")
    path = f"{folder}:{PROFILER / 'site'}"
    result = node.run("-c", TRAIN + "train(7)", PYTHONPATH=path)
    assert (result.out, result.err) == ("ahead\n", "")
    assert [report["iterations"] for report in result.reports] == [7]


@pytest.mark.parametrize("path", sorted((PROFILER / "site").glob("*.py")), ids=lambda p: p.name)
def test_files_read_by_every_python_are_valid_in_all_versions(path: Path) -> None:
    """There is no parser for 2.7, so check that no syntax of Python 3 is used."""
    tree = ast.parse(path.read_text(), feature_version=(3, 4))
    new = ast.JoinedStr | ast.AnnAssign | ast.Nonlocal | ast.YieldFrom | ast.NamedExpr
    for node in ast.walk(tree):
        assert not isinstance(node, new), ast.dump(node)
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            assert not [*arguments.kwonlyargs, *arguments.posonlyargs]
            assert not any(argument.annotation for argument in arguments.args)
            assert node.returns is None
        if isinstance(node, ast.ImportFrom):
            assert node.module != "__future__"
        if isinstance(node, ast.Raise):
            assert node.cause is None


@pytest.mark.live
def test_python_2_starts_without_output(node: Node) -> None:
    """Jython can still be installed; it finds modules as Python 2.7 did."""
    jython = shutil.which("jython")
    if jython is None:
        pytest.skip("needs jython")
    folder = node.folder / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.here = 'here'\n")
    path = f"{PROFILER / 'site'}:{folder}"
    result = subprocess.run(
        [jython, "-c", "import sys; print(sys.version_info[0], sys.here)"],
        env=node.env(JYTHONPATH=path),
        check=True,
        capture_output=True,
        text=True,
    )
    assert (result.stdout, result.stderr) == ("(2, 'here')\n", "")


@pytest.mark.long
@pytest.mark.live
@pytest.mark.parametrize(
    "end",
    [
        "import os; os._exit(3)",
        """import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
os.kill(os.getpid(), signal.SIGTERM)""",
        "raise SystemExit(3)",
    ],
    ids=["_exit", "handler", "exit"],
)
def test_the_last_report_is_right_however_a_process_ends(node: Node, end: str) -> None:
    result = node.run("-c", f"{TRAIN}train(3)\ntrain(20)\n{end}", HOPS_REPORT_SECONDS="600")
    assert result.code == 3
    (report,) = result.reports
    assert (report["iterations"], report["final"]) == (23, True)


@pytest.mark.long
@pytest.mark.live
def test_forked_processes_report_for_themselves(node: Node) -> None:
    """This includes processes that end without running `atexit` handlers. Below a training, a
    process that only infers, or that was started by a command, reports nothing."""
    code = """
import multiprocessing, subprocess, sys
if __name__ == "__main__":
    exec(open("train.py").read())
    train(5)
    def test():
        from torch.utils.data import DataLoader
        for batch in DataLoader(torch.randn(90, 4)):
            w.sum()
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=train, args=(n,)) for n in (11, 12)]
    children.append(fork.Process(target=test))
    for child in children:
        child.start()
    for child in children:
        child.join()
    test = "import torch; from torch.utils.data import DataLoader; list(DataLoader(torch.ones(90)))"
    subprocess.run([sys.executable, "-c", test], check=True)
"""
    (node.folder / "train.py").write_text(TRAIN)
    (node.folder / "main.py").write_text(code)
    result = node.run("main.py")
    assert (result.code, result.err) == (0, "")
    assert sorted(report["iterations"] for report in result.reports) == [5, 11, 12]
    assert {report["kind"] for report in result.reports} == {"training"}


@pytest.mark.long
@pytest.mark.live
def test_slow_storage_does_not_delay_the_training(node: Node) -> None:
    """Nor does it make reports rare: another thread writes them."""
    slow = """
import sys, time
import torch
from hops_profiler.timing import report
write = report.write
def slowly(*letter):
    time.sleep(0.3)
    write(*letter)
report.write = slowly
"""
    check_script = """
import glob, json, os
slowest, seen, end = 0.0, set(), time.monotonic() + 4
while time.monotonic() < end:
    began = time.monotonic()
    train(1)
    slowest = max(slowest, time.monotonic() - began)
    for path in glob.glob(os.environ["HOPS_REPORT_DIR"] + "/*.json"):
        seen.add(os.stat(path).st_mtime_ns)
    time.sleep(0.01)
print(json.dumps([slowest, len(seen)]))
"""
    result = node.run("-c", slow + TRAIN + check_script, HOPS_REPORT_SECONDS="0.5")
    slowest, count = json.loads(result.out)
    assert count >= 3
    assert slowest < 0.3


@pytest.mark.long
@pytest.mark.live
def test_hanging_storage_delays_the_exit_only_by_seconds(node: Node) -> None:
    code = """
import time
import torch
from hops_profiler.timing import report, reporter
report.write = lambda *_: time.sleep(600)
reporter.LAST_WRITE_SECONDS = 0.5
"""
    began = time.monotonic()
    result = node.run("-c", code + TRAIN + "train(20); print('done')")
    assert (result.out, result.err) == ("done\n", "")
    assert time.monotonic() - began < 120
