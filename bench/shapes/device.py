"""Turns the training thread of a process into an emulated GPU."""

from __future__ import annotations

import os
import threading
from pathlib import Path

PERIOD_US = 10_000


def compute_here() -> None:
    """Limit this thread to its device's share of a core.

    Leave out the threads that send gradients: a network card does not wait for its GPU.
    """
    group = Path(os.environ["HOPS_DEVICES"], f"{os.environ['SLURM_JOB_ID']}.{os.getpid()}")
    group.mkdir()
    share = float(os.environ["HOPS_DEVICE_SHARE"])
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
    (group / "tasks").write_text(str(threading.get_native_id()))
