"""How a process that gives its GPU back ends."""

from __future__ import annotations

import sys

import pytest
from hops_profiler.timing import ending


def test_closed_streams_do_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are None in Python."""
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    ending.end_run("7", first=False)
