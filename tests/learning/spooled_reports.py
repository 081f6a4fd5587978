"""Reports in a spool folder, the jobs that wrote them, and a function that reads them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from report_values import NOW

from hopsd.learning.reader import Collection, ReportReader
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.reading import JobReading, NodeReading, Reading, SlurmState

UID = os.getuid()


def put_report(folder: Path, content: dict[str, Any]) -> Path:
    name = ".".join(str(content[k]) for k in ("job", "run", "node", "rank", "pid")) + ".json"
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def job(**changes: Any) -> JobReading:
    values: dict[str, Any] = {
        "id": JobId("17"),
        "user": UserName("alice"),
        "uid": UID,
        "name": "train",
        "comment": "hops:reqs=1,2;workload=resnet",
        "partition": "main",
        "state": SlurmState.RUNNING,
        "submit": NOW - 100,
        "start": NOW - 40,
        "allocation": Allocation.of({"n0": 1}),
    }
    return JobReading(**values | changes)


def reading(*jobs: JobReading, now: float = NOW) -> Reading:
    nodes = tuple(
        NodeReading(NodeName(name), GpuType(gpu_type), 8, 32)
        for name, gpu_type in (("n0", "rtx3090"), ("n1", "rtx3090"), ("n4", "v100"))
    )
    return Reading(now, nodes, jobs)


def look(reader: ReportReader, reading: Reading) -> Collection:
    """Collect the reports once, and confirm what was learnt."""
    collection = reader.collect(reading)
    reader.settle()
    return collection
