"""Which processes' frameworks are looked after."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

pytest.importorskip("torch")

from hops_profiler.frameworks import attach

IN_A_JOB = {"HOPS_JOB": "1", "SLURM_JOB_ID": "17"}


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({}, False),
        (IN_A_JOB, False),
        ({**IN_A_JOB, "HOPS_FRAMEWORK_SAVES": "1"}, True),
        ({"HOPS_FRAMEWORK_SAVES": "1"}, False),
        ({**IN_A_JOB, "HOPS_FRAMEWORK_SAVES": "1", "HOPS_TRIAL": "3"}, False),
    ],
)
def test_only_in_hops_jobs_that_turn_it_on(
    settings: dict[str, str], changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_state(self: object) -> None:
        pass

    accelerator = type("Accelerator", (), {"save_state": save_state, "backward": save_state})
    module = ModuleType("accelerate.accelerator")
    module.Accelerator = accelerator  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "accelerate.accelerator", module)
    for name in ("HOPS_JOB", "HOPS_REPORT_DIR", "HOPS_FRAMEWORK_SAVES", "HOPS_TRIAL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    attach("accelerate.accelerator")
    assert (accelerator.save_state is not save_state) is changes  # type: ignore[attr-defined]
