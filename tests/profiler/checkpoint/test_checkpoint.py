"""A training's checkpoint on a node whose epilog the tests run themselves."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import pytest

torch = pytest.importorskip("torch")

from hops_profiler import Checkpoint  # noqa: E402 - it needs torch
from hops_profiler.checkpoint import memory, memory_room, single_file  # noqa: E402
from hops_profiler.checkpoint.size import size_of  # noqa: E402
from hops_profiler.checkpoint.target import Target  # noqa: E402

pytestmark = pytest.mark.slow  # trainings and epilogs are processes

SAVE = Path(__file__).parents[3] / "slurm_plugin" / "save.sh"


@dataclass(frozen=True)
class Node:
    """``folder`` is the job's in this node's memory; ``path``, its checkpoint, is shared."""

    folder: Path
    path: Path
    patch: pytest.MonkeyPatch

    def on_node(self, name: str) -> Node:
        """Return the same job on the node ``name``."""
        folder = self.folder.with_name(name)
        folder.mkdir(exist_ok=True)
        (folder / "mounts").write_text(f"{Path('/proc/self/ns/mnt').readlink()}\n")
        self.patch.setenv("HOPS_STATE_DIR", str(folder))
        return replace(self, folder=folder)

    def keep(self, number: Callable[[], int] = int, **options: Any) -> Checkpoint:
        """Return the checkpoint of a training whose state repeats one number."""
        return Checkpoint(self.path, lambda: {"all": torch.full((5000,), number())}, **options)

    def leave(self, number: int) -> None:
        """Run the training in a child process until it leaves on request."""
        assert _in_a_child(lambda: self._run(number)) == 85

    def _run(self, number: int) -> None:
        checkpoint = self.keep(lambda: number)
        os.kill(os.getpid(), signal.SIGUSR1)
        while True:
            checkpoint.step()

    def epilog(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["/bin/sh", SAVE, str(self.folder)], cwd="/")

    @property
    def files_of_saves(self) -> set[str]:
        """Names of files that saves left in memory and next to the checkpoint."""
        files = [*self.folder.iterdir(), *self.path.parent.iterdir()]
        names = {file.name for file in files if file.suffix != ".spare"}
        return names - {"mounts", self.path.name}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("HOPS_JOB", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("HOPS_REQUEUE_EXIT_CODE", "85")
    monkeypatch.delenv("HOPS_REPORT_DIR", raising=False)
    (tmp_path / "shared").mkdir()
    with tempfile.TemporaryDirectory(prefix="hops-test-", dir="/dev/shm") as name:
        folder = Path(name) / "n0"
        yield Node(folder, tmp_path / "shared" / "my run.v1.pt", monkeypatch).on_node("n0")


def _in_a_child(run: Callable[[], None]) -> int:
    """Return its exit code, or minus the number of the signal that ended it."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            run()
        except SystemExit as end:
            code = int(str(end.code))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def number_in(state: Any) -> int:
    """Return the number of a state; a mixture of two saves would contain two."""
    (number,) = set(state["all"].tolist())
    return int(number)


def test_a_new_training_finds_no_checkpoint(node: Node) -> None:
    assert node.keep().load() is None


def test_a_save_can_be_loaded_and_leaves_no_other_files(node: Node) -> None:
    checkpoint = node.keep(lambda: 3)
    checkpoint.save()
    checkpoint.wait()
    assert number_in(torch.load(node.path)) == number_in(checkpoint.load()) == 3
    assert node.files_of_saves == set()


def test_a_run_asked_to_leave_keeps_its_state_in_memory(node: Node) -> None:
    node.leave(1)
    assert node.epilog().wait() == 0
    node.leave(2)
    assert number_in(torch.load(node.path)) == 1
    assert number_in(node.keep().load()) == 2
    node.epilog().wait()
    deadline = time.monotonic() + 30
    while node.files_of_saves and time.monotonic() < deadline:
        time.sleep(0.01)
    assert number_in(torch.load(node.path)) == 2
    assert node.files_of_saves == set()


def test_a_run_on_another_node_waits_for_a_pending_save(node: Node) -> None:
    node.leave(1)
    peer = node.on_node("n1").keep()
    begin = threading.Timer(0.3, lambda: node.epilog().wait())
    begin.start()
    assert number_in(peer.load()) == 1
    begin.join()
    assert node.files_of_saves == set()


def test_a_save_given_up_by_a_later_run_is_never_published(node: Node) -> None:
    node.leave(1)
    node.epilog().wait()
    node.leave(2)
    peer = node.on_node("n1").keep(lambda: 3)
    assert number_in(peer.load(patience=0.2)) == 1
    peer.save()
    peer.wait()
    assert node.epilog().wait() == 0
    assert number_in(torch.load(node.path)) == 3
    assert node.files_of_saves == set()


def test_an_older_save_does_not_replace_a_newer_one(node: Node) -> None:
    """Both may have waited for a full disk, the older one on another node."""
    node.leave(1)
    second = node.on_node("n1")
    for file in node.folder.iterdir():
        (second.folder / file.name).write_bytes(file.read_bytes())
    node.on_node("n0").leave(2)
    assert node.epilog().wait() == 0
    assert second.epilog().wait() == 0
    assert number_in(torch.load(node.path)) == 2
    assert node.files_of_saves | second.files_of_saves == set()


def test_a_state_stays_in_memory_if_the_epilog_cannot_write_it(node: Node) -> None:
    node.leave(1)
    (temporary,) = node.path.parent.iterdir()
    temporary.unlink()
    temporary.mkdir()  # makes the write fail
    assert node.epilog().wait() == 0
    assert any(file.suffix == ".state" for file in node.folder.iterdir())


FULL = OSError(errno.ENOSPC, "No space left on device")


def refuse(*_arguments: object) -> bool:
    """Fail like a full file system."""
    raise FULL


def test_a_failed_save_raises_at_the_next_call(node: Node) -> None:
    checkpoint = node.keep(lambda: 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "publish", refuse)
        checkpoint.save()
        with pytest.raises(OSError, match="No space left"):
            checkpoint.wait()
        checkpoint.save()
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save()
        checkpoint._join()
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save()
    checkpoint.wait()
    assert number_in(torch.load(node.path)) == 3
    assert node.files_of_saves == set()


@pytest.mark.long
def test_a_run_whose_last_save_cannot_be_written_fails(node: Node) -> None:
    code = (
        "import sys, hops_profiler\n"
        "from hops_profiler.checkpoint.target import Target\n"
        "def refuse(*_): raise OSError(28, 'No space left on device')\n"
        "Target.publish = refuse\n"
        "hops_profiler.Checkpoint(sys.argv[1], dict).save()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, node.path], check=False, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert f"{node.path}: not saved: [Errno 28] No space" in result.stderr


def test_a_state_is_written_immediately_if_memory_fills_up_during_the_save(node: Node) -> None:
    """torch.save raises no OSError on a full device."""

    def fill(_state: object, file: IO[Any]) -> None:
        file.write(b"some")
        raise RuntimeError("PytorchStreamWriter failed writing file data/0")

    node.patch.setattr(single_file, "_dump", fill)
    node.keep(lambda: 4).save()
    assert number_in(torch.load(node.path)) == 4
    assert [file.name for file in node.folder.iterdir()] == ["mounts"]


def test_the_size_of_a_state_includes_all_its_parts() -> None:
    class Array:
        nbytes = 10**9

    tensor = torch.zeros(1000)
    empty = size_of({})
    assert size_of({"a": [Array()], "b": b"x" * 5000}) - empty > 10**9 + 5000
    assert size_of([tensor, tensor.view(10, 100)]) - empty < 6000


@pytest.mark.parametrize("reason", ["a container", "no room", "not a hops job", "memory itself"])
def test_without_memory_a_run_writes_its_state_before_it_leaves(node: Node, reason: str) -> None:
    if reason == "a container":
        (node.folder / "mounts").write_text("mnt:[1]\n")
    elif reason == "no room":
        node.patch.setattr(memory, "usable", lambda folder: 1000)
    elif reason == "memory itself":  # where save.sh would exceed the job's limits
        node = replace(node, path=node.folder.parent / "here" / "run.pt")
    else:
        node.patch.delenv("HOPS_JOB")
    node.leave(4)
    assert number_in(torch.load(node.path)) == 4
    assert node.files_of_saves == set()


def test_memory_is_reserved_and_reused(node: Node) -> None:
    checkpoint = node.keep(lambda: 1)
    for _ in range(3):
        checkpoint.step()

    def spare() -> Path | None:
        return next((file for file in node.folder.glob("*.spare")), None)

    deadline = time.monotonic() + 30
    while not ((room := spare()) and room.stat().st_size > 40_000):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    inode = room.stat().st_ino
    for _ in range(2):
        checkpoint.save()
        checkpoint.wait()
    assert room.stat().st_ino == inode
    assert number_in(torch.load(node.path)) == 1


def test_states_are_saved_at_intervals(node: Node) -> None:
    checkpoint = node.keep(lambda: 5, every=0.01)
    time.sleep(0.02)
    checkpoint.step()
    checkpoint.wait()
    assert number_in(torch.load(node.path)) == 5


def test_two_trainings_of_a_job_may_save_at_the_same_time(node: Node) -> None:
    """Trials in a lane do."""
    own_memory, peer = memory.Memory(node.folder), memory.Memory(node.folder)
    targets = [Target(node.path.with_name(name)) for name in ("one", "other")]

    def fill(file: IO[Any]) -> None:
        file.write(b"the first ")
        assert peer.store(targets[1], 10, lambda file: file.write(b"another"))
        file.write(b"one")

    assert own_memory.store(targets[0], 10, fill)
    states = [save.state.read_bytes() for target in targets for save in own_memory.saves(target)]
    assert states == [b"the first one", b"another"]


@pytest.mark.parametrize("trial", ["", "3"])
def test_a_run_requeues_its_job_but_a_trial_of_a_lane_does_not(node: Node, trial: str) -> None:
    request = node.folder.parent / "asked"
    scontrol = node.folder.parent / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {request}\nexit 1\n')  # unreachable
    scontrol.chmod(0o755)
    node.patch.setenv("PATH", f"{scontrol.parent}:{os.environ['PATH']}")
    node.patch.setenv("HOPS_REPORT_DIR", str(node.folder.parent))
    node.patch.setenv("SLURM_JOB_ID", "17")
    node.patch.setenv("HOPS_TRIAL", trial)
    node.leave(1)
    assert (request.read_text() if request.exists() else "") == (
        "" if trial else "requeuehold 17\n"
    )


@pytest.mark.parametrize("bad", [{"every": -1.0}, {"every": float("nan")}])
def test_invalid_arguments_are_named(node: Node, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="every="):
        node.keep(**bad)
    with pytest.raises(ValueError, match="line break"):
        Checkpoint("a\nb", dict)


KILLS = int(os.environ.get("HOPS_KILLS", "20"))


def test_a_run_killed_at_any_moment_leaves_the_last_complete_save(node: Node) -> None:
    """Kill runs and epilogs, alternately on two nodes; each run resumes from what it finds."""
    dice = random.Random(7)
    step_file = node.path.with_name("reached")
    step_file.write_text("0")

    def run() -> None:
        number = 0
        checkpoint = node.keep(lambda: number)
        state = checkpoint.load(patience=0.3)
        results = 0 if state is None else number_in(state)
        durable = int(step_file.read_text() or 0)
        if results < durable:
            os._exit(99)
        number = results
        while True:
            number += 1
            checkpoint.save()
            if number % 3 == 0:
                checkpoint.wait()
                step_file.with_suffix(".new").write_text(str(number))
                step_file.with_suffix(".new").rename(step_file)

    for turn in range(KILLS):
        node = node.on_node(f"n{turn % 2}")
        pid = os.fork()
        if not pid:
            try:
                run()
            finally:
                os._exit(1)
        while (
            turn == 0 and step_file.read_text() == "0"
        ):  # on a busy machine no short run gets there
            time.sleep(0.005)
        time.sleep(dice.uniform(0.005, 0.15))
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        if dice.random() < 0.7:
            epilog = node.epilog()
            if dice.random() < 0.3:
                time.sleep(dice.uniform(0, 0.03))
                epilog.kill()
            epilog.wait()


def test_usable_memory_is_half_of_what_the_tightest_limit_leaves(tmp_path: Path) -> None:
    def write_file(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert memory_room.usable(tmp_path, tmp_path) > 0
    write_file("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    assert memory_room.usable(tmp_path, tmp_path) == 4000 * 1024
    write_file("proc/self/cgroup", "0::/slurm/job_7/step_0\n")
    write_file("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n")
    write_file("sys/fs/cgroup/slurm/job_7/step_0/memory.current", "10\n")
    write_file("sys/fs/cgroup/slurm/job_7/memory.max", "3000000\n")
    write_file("sys/fs/cgroup/slurm/job_7/memory.current", "2500000\n")
    write_file("sys/fs/cgroup/slurm/job_7/memory.stat", "anon 5\ninactive_file 100000\n")
    assert memory_room.usable(tmp_path, tmp_path) == 300_000
    write_file("proc/self/cgroup", "4:cpu:/x\n3:memory:/job_7\n0::/\n")
    write_file("sys/fs/cgroup/memory/job_7/memory.limit_in_bytes", "2000\n")
    write_file("sys/fs/cgroup/memory/job_7/memory.usage_in_bytes", "5000\n")
    assert memory_room.usable(tmp_path, tmp_path) == 0


@pytest.mark.long
def test_checkpoint_does_not_import_torch() -> None:
    code = "import sys, hops_profiler; assert 'torch' not in sys.modules; hops_profiler.Checkpoint"
    subprocess.run([sys.executable, "-c", code], check=True)
