"""Ranks started by the launcher run and end like those of torchrun."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

LAUNCH = [sys.executable, "-m", "hops_profiler.launch"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

TRAIN = """
    import os, random, sys
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Dropout(0.3), torch.nn.Linear(30, 3)))
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 20)).square().sum().backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), sys.argv[1])
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS",
             "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE")
    place = [os.environ[name] for name in names]
    with open(f"{sys.argv[1]}.{rank}", "w") as file:
        print(__name__, __file__, sys.argv, sys.path[0], torch.get_num_threads(), place, file=file)
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text))
    return path


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "HOPS", "PET_"))}


@pytest.mark.long
def test_results_are_bitwise_equal_to_those_of_torchrun(tmp_path: Path) -> None:
    script = program(tmp_path, TRAIN)
    for name, launcher in (("a", LAUNCH), ("b", TORCHRUN)):
        (tmp_path / name).mkdir()
        subprocess.run(
            [*launcher, "--nproc-per-node=2", script, tmp_path / name / "out"],
            env=environment(), check=True, timeout=250, capture_output=True,
        )  # fmt: skip
    assert (tmp_path / "a/out").read_bytes() == (tmp_path / "b/out").read_bytes()
    for rank in (0, 1):
        output, theirs = ((tmp_path / name / f"out.{rank}").read_text() for name in "ab")
        assert output.replace("/a/", "/b/") == theirs


@pytest.mark.long
def test_ranks_meet_even_if_pytorch_has_no_libuv(tmp_path: Path) -> None:
    """Debian's PyTorch 2.6 rejects its own default with this message."""
    script = program(
        tmp_path,
        """
        import os
        import torch.distributed as dist
        class Without(dist.TCPStore):
            def __init__(self, *given, use_libuv=True, **named):
                if use_libuv:
                    raise RuntimeError("PyTorch was build without libuv support")
                super().__init__(*given, use_libuv=False, **named)
        dist.TCPStore = Without
        from hops_profiler.launch.preload import preload
        assert preload() == ""
        print(os.environ["USE_LIBUV"])
        """,
    )
    result = subprocess.run(
        [sys.executable, script], env=environment(), timeout=250, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert result.stdout == "0\n"


@pytest.mark.long
def test_a_rank_that_fails_ends_the_others_with_its_code(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import os, sys, time
        if os.environ["RANK"] == "1":
            sys.exit(7)
        time.sleep(600)
        """,
    )
    result = subprocess.run(
        [*LAUNCH, "--nproc-per-node=3", script], env=environment(), check=False, timeout=250
    )
    assert result.returncode == 7


@pytest.mark.long
def test_signals_reach_every_rank(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        f"""
        import os, pathlib, signal, sys, time
        here = pathlib.Path({str(tmp_path)!r})
        def told(name):
            (here / (name + os.environ["RANK"])).touch()
        def stop(*_):
            told("stopped")
            sys.exit(0)
        signal.signal(signal.SIGUSR1, lambda *_: told("asked"))
        signal.signal(signal.SIGTERM, stop)
        told("ready")
        while True:
            time.sleep(60)
        """,
    )
    launcher = subprocess.Popen([*LAUNCH, "--nproc-per-node=2", script], env=environment())
    wait_until(lambda: len(list(tmp_path.glob("ready*"))) == 2)
    launcher.send_signal(signal.SIGUSR1)
    wait_until(lambda: len(list(tmp_path.glob("asked*"))) == 2)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(timeout=120) == 0
    assert len(list(tmp_path.glob("stopped*"))) == 2


@pytest.mark.long
def test_a_rank_ends_although_its_model_is_freed_with_a_function(tmp_path: Path) -> None:
    """Otherwise, its reducer would hold the GIL while it waits for a thread that needs the GIL."""
    script = program(
        tmp_path,
        f"""
        import os, sys
        import torch, torch.distributed as dist
        def train(number):
            store = "file://{tmp_path}/store" + str(number)
            rank = int(os.environ["RANK"])
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 4))
            sys.setswitchinterval(1000)  # threads get the lock only where it is given up
            model(torch.ones(8, 32)).sum().backward()
            dist.destroy_process_group()
        for number in range(20):
            train(number)
            sys.setswitchinterval(0.005)
        """,
    )
    subprocess.run(
        [*LAUNCH, "--nproc-per-node=2", script], env=environment(), check=True, timeout=100
    )


def test_a_single_rank_runs_in_the_launcher_process(tmp_path: Path) -> None:
    """This saves forking a process, and its cleanup before the job's GPUs are free."""
    script = program(
        tmp_path,
        """
        import os, sys
        print(os.getpid(), os.environ["RANK"], os.environ["WORLD_SIZE"], sys.argv[1:])
        print("hops_profiler.timing.session" in sys.modules, flush=True)  # only in a hops job
        os.kill(os.getpid(), 10)
        """,
    )
    launcher = subprocess.Popen(
        [*LAUNCH, script, "x"], env=environment(), stdout=subprocess.PIPE, text=True
    )
    output, _ = launcher.communicate(timeout=120)
    assert output == f"{launcher.pid} 0 1 ['x']\nFalse\n"
    assert launcher.returncode == -signal.SIGUSR1


@pytest.mark.long
def test_ranks_end_if_the_launcher_is_killed(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        f"""
        import os, pathlib, time
        (pathlib.Path({str(tmp_path)!r}) / ("pid" + str(os.getpid()))).touch()
        time.sleep(600)
        """,
    )
    launcher = subprocess.Popen([*LAUNCH, "--nproc-per-node=2", script], env=environment())
    wait_until(lambda: len(list(tmp_path.glob("pid*"))) == 2)
    launcher.kill()
    launcher.wait()
    pids = [int(path.name[3:]) for path in tmp_path.glob("pid*")]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.long
def test_ranks_draw_different_random_numbers(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        f"""
        import os, pathlib, random
        path = pathlib.Path({str(tmp_path)!r}) / ("drawn" + os.environ["RANK"])
        path.write_text(str(random.random()))
        """,
    )
    subprocess.run(
        [*LAUNCH, "--nproc-per-node=3", script], env=environment(), check=True, timeout=250
    )
    assert len({path.read_text() for path in tmp_path.glob("drawn*")}) == 3


@pytest.mark.long
def test_modules_programs_and_restarts_work(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "go.py").write_text(
        "import os, sys\n"
        "count = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "print('try', count, __name__, sys.argv[1:], flush=True)\n"
        "sys.exit(0 if count == '2' else 3)\n"
    )
    result = subprocess.run(
        [*LAUNCH, "--max-restarts=2", "-m", "package.go", "x"],
        env=environment(), cwd=tmp_path, check=True, timeout=250, capture_output=True, text=True,
    )  # fmt: skip
    assert result.stdout.splitlines() == [f"try {n} __main__ ['x']" for n in range(3)]
    result = subprocess.run(
        [*LAUNCH, "--no-python", "printenv", "RANK"],
        env=environment(), check=True, timeout=250, capture_output=True, text=True,
    )  # fmt: skip
    assert result.stdout == "0\n"
    assert "separate process" in result.stderr


@pytest.mark.long
def test_a_rank_reports_the_program_that_it_runs(tmp_path: Path) -> None:
    """The launcher's would be the same for all; a changed script is a new workload."""
    reports = tmp_path / "reports"
    reports.mkdir()
    script = program(tmp_path, TRAIN)
    job = {"HOPS_JOB": "1", "SLURM_JOB_ID": "5", "HOPS_REPORT_DIR": str(reports)}
    site = Path(__file__).parents[3] / "profiler" / "site"
    subprocess.run(
        [*LAUNCH, "--nproc-per-node=2", script, tmp_path / "out"],
        env={**environment(), **job, "PYTHONPATH": str(site)}, check=True, timeout=250,
    )  # fmt: skip
    program_names = [json.loads(report.read_text())["program"] for report in reports.glob("*.json")]
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    assert len(program_names) == 2
    assert all(program and digest.startswith(program) for program in program_names)


def wait_until(condition: object, seconds: float = 200.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)
