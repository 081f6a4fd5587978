"""`hopsctl check` with an sbatch that records its arguments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from hopsd.ctl import cli
from hopsd.ctl.user.check import NOT_OURS, why_refused


@pytest.fixture
def sbatch_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which a fake sbatch writes its arguments and SBATCH_SIGNAL."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" "signal $SBATCH_SIGNAL" > {tmp_path}/given\n'
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SBATCH_SIGNAL", raising=False)
    return tmp_path / "given"


def test_a_file_that_is_an_options_value_is_not_the_script(sbatch_input: Path) -> None:
    (sbatch_input.parent / "vars.sh").touch()
    file = f"{sbatch_input.parent}/vars.sh"
    words = ["--export-file", file, "--signal=USR1@60", "train.sh", "--signal=9"]
    assert CliRunner().invoke(cli, ["check", *words]).exit_code == NOT_OURS
    assert sbatch_input.read_text().splitlines() == ["--test-only", *words, "signal USR1@60"]


def test_a_word_too_long_for_a_file_name_is_passed_to_sbatch(sbatch_input: Path) -> None:
    command = f"--wrap=python train.py --name {'x' * 5000}"
    result = CliRunner().invoke(cli, ["check", command])
    assert (result.exit_code, result.exception.__class__) == (NOT_OURS, SystemExit)
    assert command in sbatch_input.read_text().splitlines()


ACCEPTANCE = "hops: accepted: 1 GPU, all on one node. squeue shows it held"
PARTS = "only batch jobs: submit it with sbatch, the parts of a heterogeneous job as separate jobs"


@pytest.mark.parametrize(
    ("output_lines", "line_count"),
    [
        (["sbatch: error: hops: unknown key 'req'", "sbatch: error: x: Unspecified error"], 1),
        ([f"sbatch: error: {ACCEPTANCE}", "allocation failure: Invalid feature specification"], 1),
        ([f"sbatch: error: 0: {ACCEPTANCE}", f"sbatch: error: 1: hops: {PARTS}"], 1),
        (["sbatch: error: hops: hops-check asks shape:node", "sbatch: error: Invalid account"], 1),
    ],
)
def test_only_the_reason_of_a_refusal_is_printed(output_lines: list[str], line_count: int) -> None:
    """This includes Slurm's own reason, and that of another component of a heterogeneous job."""
    lines = why_refused("\n".join(output_lines))
    assert len(lines) == line_count
    assert lines[0].startswith(("unknown key", "Invalid", "only batch jobs"))
