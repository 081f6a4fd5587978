"""Anybody may ask for a release; users without the right are refused at little cost."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hopsd.errors import HopsError
from hopsd.serve.socket import Request
from hopsd.service.daemon import Daemon

ORDINARY = 4_000_000_000
"""A uid without an account."""

JOBS = 10_000


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "hopsd.toml"
    path.write_text("")
    monkeypatch.setattr("hopsd.service.daemon.sdnotify.SystemdNotifier", SimpleNamespace)
    daemon_instance: Any = Daemon(path)
    rows = [{"id": str(number), "array": ""} for number in range(JOBS)]
    daemon_instance._controller = SimpleNamespace(document={"waiting": rows, "mode": "active"})
    return daemon_instance


def test_resolving_thousands_of_names_takes_linear_time(daemon: Any) -> None:
    """Regression: each name was looked up in a list, which blocked ticks for 5 s."""
    names = [str(number) for number in range(JOBS, 2 * JOBS)]
    start_time = time.thread_time()
    with pytest.raises(HopsError, match="release is for root"):
        daemon._answer(Request("release", {"jobs": names}, ORDINARY))
    assert time.thread_time() - start_time < 2.0
