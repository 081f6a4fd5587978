"""Processor time of running jobs, as Slurm's accounting plugin gathers it on their nodes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from hopsd.errors import SlurmError
from hopsd.model.ids import JobId
from hopsd.slurm.command import Runner

MAX_JOBS = 64
"""Jobs per call: sstat asks the nodes of one job after the other."""

_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")


def processor_seconds(commands: Runner, jobs: Iterable[JobId]) -> dict[JobId, float]:
    """CPU seconds of all processes of each job, over its steps (sstat(1)). Jobs for which Slurm
    gathers nothing are left out, as with ``JobAcctGatherType=jobacct_gather/none``.

    ``jobs`` are job numbers. Values are whole seconds, up to ``JobAcctGatherFrequency`` old.
    """
    sample = sorted(jobs)[:MAX_JOBS]
    if not sample:
        return {}
    try:
        output = commands.run(
            *("sstat", "--allsteps", "--noheader", "--parsable2"),
            *(f"--jobs={','.join(sample)}", "--format=JobID,NTasks,AveCPU"),
        )
    except SlurmError:  # a job has just ended, or a node does not answer: try again next time
        return {}
    seconds: dict[JobId, float] = defaultdict(float)
    for line in output.splitlines():
        step, tasks, average, *_ = [*line.split("|"), "", ""]
        match = _TIME.fullmatch(average.strip())
        if match and tasks.isdigit() and int(tasks):  # 0 if nothing is gathered (22.05 to 26.05)
            days, hours, minutes, remainder = (int(part or 0) for part in match.groups())
            total = ((days * 24 + hours) * 60 + minutes) * 60 + remainder
            seconds[JobId(step.partition(".")[0])] += int(tasks) * total
    return dict(seconds)
