"""`hopsctl check` with an sbatch that says what it was given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from hopsd.ctl import cli
from hopsd.ctl.check import NOT_OURS


def test_words_too_long_for_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/given\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = f"--wrap=python train.py --name {'x' * 5000}"
    done = CliRunner().invoke(cli, ["check", command])
    assert (done.exit_code, done.exception.__class__) == (NOT_OURS, SystemExit)
    assert command in (tmp_path / "given").read_text().splitlines()
