"""Files of stacks in a folder that another account may have created."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from hops_profiler.stall import stacks


def test_only_the_user_can_read_the_stacks(tmp_path: Path) -> None:
    path = stacks.write(str(tmp_path / "hops-stacks"), "17.0", "stands still")
    assert path == str(tmp_path / "hops-stacks" / "17.0")
    assert "test_only_the_user_can_read_the_stacks" in Path(path).read_text()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_the_main_thread_is_written_however_many_threads_there_are(tmp_path: Path) -> None:
    """The newest threads fill what faulthandler writes, and the oldest one trains."""
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(stacks.MAX_THREADS)]
    for thread in threads:
        thread.start()
    path = stacks.write(str(tmp_path), "17.0", "stands still")
    end.set()
    for thread in threads:
        thread.join()
    assert path is not None
    text = Path(path).read_text()
    assert text.count("test_the_main_thread_is_written_however_many_threads_there_are") == 1
    assert "most recent call last" in text


@pytest.mark.skipif(os.getuid() != 0, reason="makes another account's file")
def test_nothing_is_written_to_a_file_of_another_account(tmp_path: Path) -> None:
    """In /tmp, another account could create `hops-stacks` first and read the stacks."""
    (tmp_path / "17.0").touch()
    os.chown(tmp_path / "17.0", 65_533, 65_533)
    (tmp_path / "own").touch()
    os.link(tmp_path / "own", tmp_path / "18.0")
    for name in ("17.0", "18.0"):
        assert stacks.write(str(tmp_path), name, "stands still") is None
        assert (tmp_path / name).stat().st_size == 0
