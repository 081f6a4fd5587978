"""In which processes the frameworks are patched."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

pytest.importorskip("torch")

from hops_profiler.frameworks import attach

IN_A_JOB = {"HOPS_JOB": "1", "SLURM_JOB_ID": "17"}


ASKS = {"HOPS_ASKS": "shape:any|signal:steps:USR1:60|traps:none"}
WISH = {"HOPS_FRAMEWORK_SAVES": "1"}
LIGHTNING, ACCELERATE = "lightning.pytorch.trainer.trainer", "accelerate.accelerator"


@pytest.mark.parametrize(
    ("name", "settings", "changes"),
    [
        (LIGHTNING, {}, False),
        (LIGHTNING, IN_A_JOB, False),
        (LIGHTNING, {**IN_A_JOB, **ASKS}, True),
        (LIGHTNING, {**IN_A_JOB, "HOPS_ASKS": "shape:any|signal:batch:USR1:60"}, False),
        (LIGHTNING, {**IN_A_JOB, "HOPS_ASKS": "shape:any|signal:steps:TERM:60"}, False),
        (LIGHTNING, {**IN_A_JOB, **ASKS, "HOPS_FRAMEWORK_SAVES": "0"}, False),
        (LIGHTNING, {**IN_A_JOB, **WISH}, True),
        (LIGHTNING, {**IN_A_JOB, **WISH, "HOPS_TRIAL": "3"}, False),
        (LIGHTNING, {**ASKS, **WISH}, False),
        (ACCELERATE, {**IN_A_JOB, **ASKS}, True),
        (ACCELERATE, {**IN_A_JOB, **WISH}, True),
    ],
)
def test_frameworks_change_only_in_hops_jobs_whose_steps_get_the_signal(
    name: str, settings: dict[str, str], changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(self: object) -> None:
        pass

    module = ModuleType(name)
    module.Accelerator = type("Accelerator", (), {"save_state": plain, "backward": plain})  # type: ignore[attr-defined]
    module.Trainer = type("Trainer", (), {"fit": plain})  # type: ignore[attr-defined]
    module.Callback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    for variable in (
        "HOPS_JOB",
        "HOPS_REPORT_DIR",
        "HOPS_FRAMEWORK_SAVES",
        "HOPS_TRIAL",
        "HOPS_ASKS",
    ):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    attach(name)
    has_changed = module.Accelerator.save_state is not plain or module.Trainer.fit is not plain
    assert has_changed is changes
