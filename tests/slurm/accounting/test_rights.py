"""What hopsd's account may do and see in Slurm."""

from __future__ import annotations

import pytest
from canned import CannedCommands

from hopsd.slurm.accounting.rights import processor_time_refusal


class Config(CannedCommands):
    """Answers ``scontrol show config``."""

    nodes = "SlurmUser               = slurm(64030)\n"


@pytest.mark.parametrize(("uid", "is_told"), [(0, True), (64030, True), (34, False), (30, False)])
def test_only_root_and_slurm_user_are_told_processor_time(
    monkeypatch: pytest.MonkeyPatch, uid: int, *, is_told: bool
) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    refusal = processor_time_refusal(Config())
    assert refusal == (
        ""
        if is_told
        else "Slurm tells other users' processor time (sstat) only to root and SlurmUser"
    )
