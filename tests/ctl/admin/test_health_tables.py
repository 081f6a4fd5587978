"""What `hopsctl health` says about jobs."""

from __future__ import annotations

from typing import Any

import pytest

from hopsd.ctl.admin.health import _hung, _idle, _show


def test_a_slow_gpu_is_named_beside_its_node(capsys: pytest.CaptureFixture[str]) -> None:
    slow = {"node": "n3", "factor": 0.9, "low": 0.89, "high": 0.91, "since": None, "gpu": 2}
    _show({"slow": [slow], "lemons": []})
    assert "n3, GPU 2" in capsys.readouterr().out


def test_a_shared_node_has_a_table_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    shared_node = {"node": "n5", "factor": 0.94, "since": 0.0}
    _show({"slow": [], "lemons": [], "shared": [shared_node]})
    output = capsys.readouterr().out
    assert "n5    6.0%                  1970-01-01 00:00 UTC" in output
    assert "No node is certain to be slow" in output


RANK = {"rank": 1, "node": "n0", "pid": 7, "state": "silent", "line": "", "waits_in": ""}


def test_jobs_that_hang_and_idle_gpus_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    hang = {"since": 1.0, "limit_seconds": 20.0, "text": "hangs", "ranks": [RANK | {"stacks": ""}]}
    idle = {"text": "does nothing", "gpus": 4}
    running: list[dict[str, Any]] = [
        {"id": "17", "user": "ann", "hung": hang, "idle": None},
        {"id": "18", "user": "bob", "hung": None, "idle": idle},
        {"id": "19", "user": "cy"},  # from an older hopsd
    ]
    _show({"slow": [], "lemons": [], "hung": _hung(running), "idle": _idle(running)})
    output = capsys.readouterr().out
    assert "Job 17 of ann hangs" in output
    assert "silent on n0" in output
    assert "does nothing" in output
    assert "19" not in output
