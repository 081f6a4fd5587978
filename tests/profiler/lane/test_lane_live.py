"""Trials in a lane: results of separate runs, memory within limits, no leaks after kills."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

TRAIN = Path(__file__).with_name("programs") / "lane_train.py"
RANKS = Path(__file__).with_name("programs") / "lane_ranks.py"
KINDS = ("sgd", "adam", "batchnorm", "amp", "accumulate", "keeps gradients")
STATE = 340_000
"""More than Adam's trial has, with gradients, parameters and two moments: 4 x 17,924 floats."""

KILLS = int(os.environ.get("HOPS_KILLS", "20"))


def environment(mark: str = "") -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "HOPS", "CUDA"))}
    # Spinning threads of several processes on few cores would slow each other down.
    return {**clean, "OMP_NUM_THREADS": "1", "HOPS_TEST_MARK": mark}


@pytest.fixture(autouse=True)
def _no_lane_outlives_its_test(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in running_pids(str(tmp_path)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def lane(folder: Path, lines: list[str], *options: object) -> subprocess.Popen[str]:
    """Start a lane, in round-robin order for the most switches unless ``options`` differ."""
    (folder / "trials").write_text("\n".join(lines))
    return subprocess.Popen(
        [sys.executable, "-m", "hops_profiler.lane", "trials", "--order=round-robin",
         *map(str, options)],
        cwd=folder, env=environment(str(folder)), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def codes(folder: Path) -> dict[int, int]:
    lines = (folder / "trials.lane" / "journal").read_text().splitlines()
    return {entry["trial"]: entry["code"] for entry in map(json.loads, lines)}


def turns(folder: Path) -> list[dict[str, object]]:
    return [
        json.loads(line) for line in (folder / "trials.lane/turns.cpu").read_text().split("\n")[:-1]
    ]


def running_pids(mark: str) -> list[int]:
    """Return the PIDs of running processes of the lane of this folder."""
    results = []
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdigit()
                and f"HOPS_TEST_MARK={mark}\0" in (entry / "environ").read_text()
            ):
                results.append(int(entry.name))
        except OSError:
            continue
    return results


@pytest.mark.long
def test_losses_and_weights_equal_those_of_separate_runs(tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, TRAIN, "40", *KINDS], env=environment(), check=True, capture_output=True,
        text=True,
    ).stdout.splitlines()  # fmt: skip
    lines = [f"{TRAIN} 40 '{kind}'" for kind in KINDS]
    _, errors = (
        running := lane(tmp_path, lines, "--iterations=1", f"--memory={2 * STATE}")
    ).communicate(timeout=240)
    assert running.returncode == 0, errors
    for number, kind in enumerate(KINDS, 1):
        output = (tmp_path / f"trials.lane/{number}.log").read_text().splitlines()
        assert output == [line for line in alone if line.startswith(f"{kind} ")]
    report = turns(tmp_path)
    assert len(report) > 200
    assert all(turn["bytes"] <= turn["capacity"] == 2 * STATE for turn in report)  # type: ignore[operator]
    assert max(len(turn["on_device"]) for turn in report) == 2  # type: ignore[arg-type]
    assert any(turn["kept"] for turn in report)
    assert running_pids(str(tmp_path)) == []


FAILS = f"""
import os, runpy, sys, torch
if os.environ["RANK"] == "1":
    step = torch.optim.AdamW.step
    def fail(*args):
        step(*args)
        sys.exit(5)
    torch.optim.AdamW.step = fail
runpy.run_path({str(RANKS)!r})
"""


@pytest.mark.long
def test_ranks_that_share_a_gpu_compute_the_same_as_on_several(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hops_profiler.launch", "--nproc-per-node=2", RANKS, "15"]
    alone = subprocess.run(
        command, env=environment(), check=True, capture_output=True, text=True
    ).stdout.splitlines()
    (tmp_path / "t.py").write_text(FAILS)
    lines = [f"ranks=2 {RANKS} 15", f"{TRAIN} 40 sgd", "ranks=2 t.py 15"]
    options = ("--iterations=1", "--memory=220000", "--standby=1")
    running = lane(tmp_path, lines, *options)
    _, errors = running.communicate(timeout=200)
    assert codes(tmp_path) == {1: 0, 2: 0, 3: 5}, errors
    for rank in "01":
        lines = [line for line in alone if line.startswith(rank)]
        assert len(lines) == 16
        assert [line for line in log(tmp_path, 1) if line.startswith(rank)] == lines
    report = turns(tmp_path)
    assert all(turn["bytes"] <= 220_000 for turn in report)  # type: ignore[operator]
    assert sum(turn["trial"] == 1 and not turn["kept"] for turn in report) > 5
    assert running_pids(str(tmp_path)) == []


PASSES = f"""
import runpy, time, torch
def say(what):
    print(what, time.monotonic(), flush=True)
def first(layers, x, forward=torch.nn.Sequential.forward):
    say("first")
    return forward(layers, x)
def last(gradient):
    time.sleep(0.02)
    say("last")
class Wrap(torch.nn.parallel.DistributedDataParallel):
    def __init__(self, model):
        super().__init__(model)
        model[0].weight.register_post_accumulate_grad_hook(last)
torch.nn.Sequential.forward = first
torch.nn.parallel.DistributedDataParallel = Wrap
runpy.run_path({str(RANKS)!r})
"""


@pytest.mark.long
def test_ranks_of_a_round_compute_one_after_another(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(PASSES)
    running = lane(tmp_path, ["ranks=2 t.py 20"], "--iterations=2", "--standby=1")
    _, errors = running.communicate(timeout=200)
    assert running.returncode == 0, errors
    words = (tmp_path / "trials.lane" / "1.log").read_text().split()
    assert "side" not in words
    marks = sorted(
        (float(time_text), kind)
        for kind, time_text in itertools.pairwise(words)
        if kind in ("first", "last")
    )
    assert [kind for _, kind in marks] == ["first", "last"] * 40


ON_SIGNAL = """
import os, signal, sys
import torch
saved = sys.argv[1]
model = torch.nn.Linear(100, 100)
optimizer = torch.optim.Adam(model.parameters())
begin = 0
if os.path.exists(saved):
    begin, weights, moments = torch.load(saved)
    model.load_state_dict(weights); optimizer.load_state_dict(moments)
def save(*_):
    torch.save((i + 1, model.state_dict(), optimizer.state_dict()), saved + ".new")
    os.rename(saved + ".new", saved)
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
torch.manual_seed(begin)
for i in range(begin, 10**9 if begin == 0 else begin + 3):
    optimizer.zero_grad()
    model(torch.ones(1, 100)).square().sum().backward()
    optimizer.step()
    line = f"{i} {all(bool(t.abs().sum() > 0) for t in model.parameters())}\\n"
    os.write(1, line.encode())  # whole, or not at all, whenever the signal comes
"""


@pytest.mark.long
def test_on_the_signal_each_trial_saves_and_the_next_lane_resumes(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(ON_SIGNAL)
    lines = [f"t.py saved.{n}" for n in range(3)]
    options = ("--iterations=2", "--memory=200000", "--standby=1")
    running = lane(tmp_path, lines, *options)
    wait_for(lambda: all(len(log(tmp_path, n)) > 5 for n in (1, 2, 3)), running)
    running.send_signal(signal.SIGUSR1)
    running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGUSR1
    line_counts = [len(log(tmp_path, n)) for n in (1, 2, 3)]
    running = lane(tmp_path, lines, *options)
    _, errors = running.communicate(timeout=100)
    assert running.returncode == 0, errors
    for number, line_count in zip((1, 2, 3), line_counts, strict=True):
        went_on = log(tmp_path, number)[line_count:]
        # The iteration at whose gate it saved has not printed yet.
        begin = int(went_on[0].split()[0])
        assert begin in (line_count, line_count + 1)
        assert [int(line.split()[0]) for line in went_on] == [begin, begin + 1, begin + 2]
        assert all(line.endswith("True") for line in log(tmp_path, number))


OUT_OF_MEMORY = """
import os, sys, torch
model = torch.nn.Linear(10, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
if sys.argv[1] == "group":
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
for i in range(5):
    model(torch.ones(1, 10)).sum().backward()
    optimizer.step()
    first = sys.argv[1] == "once" and i == 2 and not os.path.exists("tried")
    if sys.argv[1] == "always" or first:
        open("tried", "w").close()
        raise MemoryError("no room")
"""


@pytest.mark.long
def test_a_trial_that_runs_out_of_memory_is_retried_alone(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(OUT_OF_MEMORY)
    lines = ["t.py once", "t.py always", f"{TRAIN} 9 sgd", f"{TRAIN} 9 adam", "t.py group"]
    running = lane(tmp_path, lines, "--iterations=1", "--memory=250000", "--standby=1", "--width=5")
    _, errors = running.communicate(timeout=100)
    assert running.returncode == 1
    assert codes(tmp_path) == {1: 0, 2: 79, 3: 0, 4: 137, 5: 0}
    assert "trial 4 is killed: its state has" in errors
    report = turns(tmp_path)
    assert all(turn["bytes"] <= 250_000 for turn in report)  # type: ignore[operator]
    # It cannot be moved, so after its first gate it keeps its turn until its end.
    of_group = [place for place, turn in enumerate(report) if turn["trial"] == 5]
    assert of_group[1:] == [of_group[0] + 1]


@pytest.mark.long
def test_copies_on_the_host_stay_within_their_budget(tmp_path: Path) -> None:
    lines = [f"{TRAIN} 5 adam"] * 3
    options = (
        "--iterations=1",
        f"--memory={STATE}",
        f"--host-memory={STATE}",
        "--standby=1",
        "--order=hare",
    )
    running = lane(tmp_path, lines, *options)
    _, errors = running.communicate(timeout=100)
    assert running.returncode == 0, errors
    order = [turn["trial"] for turn in turns(tmp_path)]
    # The first has left the device; there is no memory for another until the first has ended.
    assert [trial for trial, _ in itertools.groupby(order)] == [1, 2, 3, 1]


@pytest.mark.long
@pytest.mark.timeout(240 + 4 * KILLS)
def test_after_a_kill_nothing_hangs_or_leaks(tmp_path: Path) -> None:
    lines = [f"{TRAIN} 12 sgd"] * (10 + KILLS * 3 // 2)
    running = lane(tmp_path, lines, "--iterations=3", "--memory=300000")
    chance = random.Random(1)
    kill_count = 0
    while kill_count < KILLS and running.poll() is None:
        time.sleep(chance.uniform(0.0, 0.1))
        other_pids = [pid for pid in running_pids(str(tmp_path)) if pid != running.pid]
        if other_pids and (tmp_path / "trials.lane/turns.cpu").exists():
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(chance.choice(other_pids), signal.SIGKILL)
                kill_count += 1
    _, errors = running.communicate(timeout=200 + 4 * KILLS)
    assert kill_count == KILLS, errors
    assert running_pids(str(tmp_path)) == []
    exit_codes = codes(tmp_path)
    assert set(exit_codes) == set(range(1, len(lines) + 1)), errors
    assert set(exit_codes.values()) <= {0, 137}
    logs = {tuple(log(tmp_path, number)) for number, code in exit_codes.items() if code == 0}
    assert len(logs) == 1  # the others have not noticed
    assert len(logs.pop()) == 13


@pytest.mark.long
def test_nothing_outlives_the_lane(tmp_path: Path) -> None:
    running = lane(tmp_path, [f"{TRAIN} 100000 sgd"] * 3, "--iterations=1", "--memory=300000")
    wait_for(lambda: len(running_pids(str(tmp_path))) >= 8 and log(tmp_path, 3) != [], running)
    running.kill()
    running.communicate(timeout=60)
    wait_for(lambda: running_pids(str(tmp_path)) == [], None)


def log(folder: Path, number: int) -> list[str]:
    path = folder / f"trials.lane/{number}.log"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(condition, running: subprocess.Popen[str] | None) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + 100
    while not condition():
        assert running is None or running.poll() is None, running.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
