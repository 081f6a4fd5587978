"""A state sharded over ranks, which leave and resume in another number."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

SAVE = Path(__file__).parents[3] / "slurm_plugin" / "save.sh"


def run(rank: int, ranks: int, folder: Path, run: int) -> None:
    """Increase every part of a vector to four more than was loaded; then hops asks to leave."""
    import torch.distributed as dist  # noqa: PLC0415 - a second that every collection would pay
    from hops_profiler import ShardedCheckpoint  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import Shard, distribute_tensor  # noqa: PLC0415

    torch.set_num_threads(1)
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    dist.init_process_group("gloo", f"file://{folder}/store.{run}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    part = distribute_tensor(torch.zeros(10), mesh, [Shard(0)])
    state = {"part": part, "done": torch.zeros(1)}
    checkpoint = ShardedCheckpoint(folder / "saved", lambda: state)
    results = checkpoint.load()
    assert (results is None) == (run == 0)
    assert state["part"].full_tensor().tolist() == [4.0 * run] * 10
    assert state["done"].item() == 4 * run
    for _ in range(4):
        state["part"] += 1
        state["done"] += 1
    if run == 1:
        for _ in range(3):
            checkpoint.save()
        checkpoint.wait()
    else:
        os.kill(os.getpid(), signal.SIGUSR1)
        while True:
            checkpoint.step()


@pytest.mark.long
@pytest.mark.live
def test_ranks_leave_their_parts_and_another_number_of_ranks_loads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPS_JOB", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("HOPS_REQUEUE_EXIT_CODE", "85")
    monkeypatch.delenv("HOPS_REPORT_DIR", raising=False)
    with tempfile.TemporaryDirectory(prefix="hops-test-", dir="/dev/shm") as memory:
        (Path(memory) / "mounts").write_text(f"{Path('/proc/self/ns/mnt').readlink()}\n")
        monkeypatch.setenv("HOPS_STATE_DIR", memory)
        assert exit_codes(2, tmp_path, 0) == [85, 85]
        assert not (tmp_path / "saved" / "checkpoint-1").exists()
        subprocess.run(["/bin/sh", SAVE, memory], cwd="/", check=True)
    saved_folder = tmp_path / "saved"
    assert [path.name for path in saved_folder.iterdir()] == ["checkpoint-1"]
    assert exit_codes(1, tmp_path, 1) == [0]
    assert sorted(path.name for path in saved_folder.iterdir()) == ["checkpoint-3", "checkpoint-4"]
    assert exit_codes(2, tmp_path, 2) == [85, 85]


def exit_codes(ranks: int, folder: Path, number: int) -> list[int | None]:
    """Run the ranks; return their exit codes."""
    import hops_profiler.checkpoint.sharded  # noqa: F401, PLC0415 - once, before the ranks fork

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=run, args=(r, ranks, folder, number)) for r in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def test_a_failed_sharded_save_is_reported_once_and_publishes_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hops_profiler.checkpoint import sharded  # noqa: PLC0415 - as above

    def disk_full(*_: object, **__: object) -> Future[None]:
        failed_save: Future[None] = Future()
        failed_save.set_exception(OSError(errno.ENOSPC, "No space left on device"))
        return failed_save

    monkeypatch.setattr(sharded, "async_save", disk_full)
    checkpoint = sharded.ShardedCheckpoint(tmp_path / "saved", lambda: {"done": torch.zeros(1)})
    checkpoint.save()
    with pytest.raises(OSError, match="No space left"):
        checkpoint.wait()
    assert checkpoint.load() is None
    checkpoint.wait()  # raises only once
