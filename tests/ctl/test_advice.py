"""Errors say what to do next."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hopsd import ctl
from hopsd.ctl.terminal import ADVICE, advice
from hopsd.errors import HopsError, SlurmError


@pytest.mark.parametrize("kind", [kind for kind, _ in ADVICE])
def test_the_next_step_follows_the_error(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise kind("what happened")

    monkeypatch.setattr(ctl, "cli", fail)
    with pytest.raises(SystemExit):
        ctl.main()
    first, second = capsys.readouterr().err.splitlines()
    assert "what happened" in first
    assert second == f"hopsctl: {advice(kind())}"


def test_errors_with_their_own_advice_get_no_other() -> None:
    assert advice(HopsError("x")) is advice(SlurmError("x")) is None


def test_without_a_daemon_the_advice_is_to_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hopsctl", "status", "--socket", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as exit_info:
        ctl.main()
    assert exit_info.value.code == 4
    assert "systemctl status hopsd" in capsys.readouterr().err
