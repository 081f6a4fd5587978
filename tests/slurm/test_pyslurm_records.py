"""Jobs as pyslurm returns them, without a cluster."""

from __future__ import annotations

from hopsd.slurm.parse import _exit
from hopsd.slurm.pyslurm_adapter import _exit_code


class Session:
    """A session that was ended: pyslurm 26.5 cannot convert the exit code that Slurm lacks."""

    @property
    def exit_code(self) -> int:
        raise OverflowError("Python int too large to convert to C int")

    exit_code_signal = exit_code


class EndRecord:
    exit_code, exit_code_signal = 3, 9


def test_a_job_without_an_exit_code_is_read_as_completed() -> None:
    assert _exit(_exit_code(Session())) == (0, 0)
    assert _exit(_exit_code(EndRecord())) == (3, 9)
