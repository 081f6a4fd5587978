"""`hopsctl check` with an sbatch that says what it was given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from hopsd.ctl import cli
from hopsd.ctl.user.check import NOT_OURS


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that an sbatch writes its words and the signal of its environment into."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" "signal $SBATCH_SIGNAL" > {tmp_path}/given\n'
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SBATCH_SIGNAL", raising=False)
    return tmp_path / "given"


def test_a_file_that_is_an_options_value_is_not_the_script(given: Path) -> None:
    (given.parent / "vars.sh").touch()
    file = f"{given.parent}/vars.sh"
    words = ["--export-file", file, "--signal=USR1@60", "train.sh", "--signal=9"]
    assert CliRunner().invoke(cli, ["check", *words]).exit_code == NOT_OURS
    assert given.read_text().splitlines() == ["--test-only", *words, "signal USR1@60"]


def test_words_too_long_for_a_file_name(given: Path) -> None:
    command = f"--wrap=python train.py --name {'x' * 5000}"
    done = CliRunner().invoke(cli, ["check", command])
    assert (done.exit_code, done.exception.__class__) == (NOT_OURS, SystemExit)
    assert command in given.read_text().splitlines()
