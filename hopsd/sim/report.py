"""placeholder"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.study import Result


def write_report(
    results: Sequence[Result], cluster: Cluster, workload: Workload, path: Path
) -> None:
    """x"""
