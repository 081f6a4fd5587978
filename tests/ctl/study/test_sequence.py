"""`hopsctl sequence`."""

from __future__ import annotations

from click.testing import CliRunner

from hopsd.ctl import cli


def test_hopsctl_prints_a_line_for_each_gpu() -> None:
    run = CliRunner().invoke(cli, ["sequence", "--gpus", "2", "2x1", "2x1.5"])
    assert run.output in ("1 1\n2 2\n", "2 2\n1 1\n")
    for wrong in ("0x1", "3", "3x0", "3x-1", "x", "99999x1"):
        assert CliRunner().invoke(cli, ["sequence", wrong]).exception is not None
