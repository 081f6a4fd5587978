"""Checkpoints that are folders, on a node whose epilog the tests run themselves."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hops_profiler.checkpoint.folder import Folder, settle
from hops_profiler.checkpoint.folder import save as save_by
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.target import Target

SAVE = Path(__file__).parents[3] / "slurm_plugin" / "save.sh"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOPS_JOB", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with tempfile.TemporaryDirectory(prefix="hops-test-", dir="/dev/shm") as name:
        (Path(name) / "mounts").write_text(f"{Path('/proc/self/ns/mnt').readlink()}\n")
        monkeypatch.setenv("HOPS_STATE_DIR", name)
        yield Path(name)


def save(final: Path, size: int = 1000) -> Folder:
    folder = Folder(final, size)
    (folder.path / "part").mkdir(parents=True)
    (folder.path / "part" / "one").write_text("1")
    (folder.path / "two").write_text("2" * 10_000)
    folder.publish()
    return folder


@contextlib.contextmanager
def umask(bits: int) -> Iterator[None]:
    umask_before = os.umask(bits)
    yield
    os.umask(umask_before)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def epilog(memory: Path, **environment: str) -> None:
    subprocess.run(
        ["/bin/sh", SAVE, memory], cwd="/", check=True, env={**os.environ, **environment}
    )


def test_a_folder_made_in_memory_is_written_by_the_epilog(memory: Path, tmp_path: Path) -> None:
    final = tmp_path / "shared" / "checkpoint-10"
    assert save(final).in_memory
    assert not final.exists()
    assert [path.is_dir() for path in Target(final).expected()] == [True]
    epilog(memory)
    assert (final / "part" / "one").read_text() == "1"
    assert names(memory) == ["mounts"]
    assert names(final.parent) == [final.name]


def test_without_memory_a_folder_is_made_next_to_its_final_path(tmp_path: Path) -> None:
    final = tmp_path / "checkpoint-10"
    assert not save(final).in_memory
    assert (final / "two").exists()
    assert names(tmp_path) == [final.name]


def test_a_folder_too_large_for_memory_is_written_directly(memory: Path, tmp_path: Path) -> None:
    assert not save(tmp_path / "checkpoint-10", size=10**15).in_memory
    assert names(memory) == ["mounts"]


def test_a_folder_given_up_by_a_later_run_is_never_published(memory: Path, tmp_path: Path) -> None:
    final = tmp_path / "checkpoint-10"
    save(final)
    Target(final).settle(patience=0.1)
    epilog(memory)
    assert names(tmp_path) == []
    assert names(memory) == ["mounts"]


def test_a_folder_given_up_while_it_is_written_is_removed(memory: Path, tmp_path: Path) -> None:
    """The run has removed it before save.sh writes the rest."""
    final, tools = tmp_path / "shared" / "checkpoint-10", tmp_path / "tools"
    save(final)
    tools.mkdir()
    (tools / "cp").write_text('#!/bin/sh\nmv "$PWD" "${PWD%.coming}.late" && exec /bin/cp "$@"\n')
    (tools / "cp").chmod(0o755)
    epilog(memory, PATH=f"{tools}:{os.environ['PATH']}")
    assert names(final.parent) == []


def test_group_permissions_follow_the_umask_of_the_job(memory: Path, tmp_path: Path) -> None:
    final = tmp_path / "checkpoint-10"
    with umask(0o002):
        save(final)
    with umask(0o077):
        epilog(memory)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (final, *final.rglob("*"))}
    assert modes == {"checkpoint-10": 0o775, "part": 0o775, "one": 0o664, "two": 0o664}


@pytest.mark.parametrize("trick", ["link", "fifo", "hole"])
def test_entries_that_take_no_memory_are_not_written(
    memory: Path, tmp_path: Path, trick: str
) -> None:
    """The epilog is outside the job's limits, so links, pipes and holes could exceed them."""
    final = tmp_path / "checkpoint-10"
    save(final)
    (state,) = memory.glob("*.state")
    if trick == "link":
        (state / "three").symlink_to("/etc/passwd")
    elif trick == "fifo":
        os.mkfifo(state / "three")
    else:
        with (state / "three").open("wb") as file:
            file.truncate(10**12)
    epilog(memory)
    assert not final.exists()
    assert state.exists()


def test_an_existing_checkpoint_is_not_replaced(memory: Path, tmp_path: Path) -> None:
    final = tmp_path / "checkpoint-10"
    save(final)
    final.mkdir()
    epilog(memory)
    assert names(final) == []
    assert list(memory.glob("*.state"))
    assert not Folder(final, 1000).in_memory


def test_the_next_run_writes_what_the_epilog_could_not(memory: Path, tmp_path: Path) -> None:
    final = tmp_path / "checkpoint-10"
    save(final)
    settle(tmp_path, patience=0.1)
    assert (final / "part" / "one").read_text() == "1"
    assert names(memory) == ["mounts"]
    assert names(tmp_path) == [final.name]


def test_a_folder_that_cannot_be_written_stays_in_memory(
    memory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    final = tmp_path / "checkpoint-10"
    save(final)
    final.touch()
    settle(tmp_path, patience=0.1)
    assert "checkpoint-10: not written" in capsys.readouterr().err
    assert list(memory.glob("*.state"))
    final.unlink()
    epilog(memory)
    assert (final / "two").exists()


def test_memory_is_released_if_it_fills_up(memory: Path, tmp_path: Path) -> None:
    final = tmp_path / "checkpoint-10"

    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "part").touch()
        if memory in folder.parents:
            raise OSError(errno.ENOSPC, "full")

    save_by(final, 1000, write)
    assert names(final) == ["part"]
    assert names(memory) == ["mounts"]


def test_only_the_local_part_of_a_sharded_tensor_counts() -> None:
    torch = pytest.importorskip("torch")

    class Spread(torch.Tensor):  # type: ignore[name-defined, misc]
        def to_local(self) -> torch.Tensor:
            return torch.zeros(10)

    whole = torch.zeros(1_000_000)
    assert size_of([whole]) - size_of([whole.as_subclass(Spread)]) > 10**6


def test_long_names_of_links_take_no_memory_in_the_epilog(memory: Path, tmp_path: Path) -> None:
    """Regression: a shell kept all paths, four times the memory that the job had used for them,
    outside its limits.
    """
    save(tmp_path / "checkpoint-10")
    (state,) = memory.glob("*.state")
    deep = state.joinpath(*(10 * ["d" * 250]))
    deep.mkdir(parents=True)
    for number in range(10_000):
        (deep / str(number)).symlink_to("nothing")
    largest = _largest_child(["/bin/sh", str(SAVE), str(memory)])
    assert largest < 20_000
    assert not (tmp_path / "checkpoint-10").exists()


def _largest_child(command: list[str]) -> int:
    """Return the peak memory in KiB of the largest process of a command."""
    program = "import resource, subprocess, sys; subprocess.run(sys.argv[1:]);"
    program += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    result = subprocess.run(
        [sys.executable, "-S", "-c", program, *command], capture_output=True, check=True, cwd="/"
    )
    return int(result.stdout)
