"""How a process ends when it returns its GPU."""

from __future__ import annotations

import sys

import pytest
from hops_profiler.timing import ending


def test_closed_streams_do_not_prevent_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's objects for closed streams are None."""
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    ending.end_run("7", first=False)
