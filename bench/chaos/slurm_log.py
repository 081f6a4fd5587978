"""Reader of slurmctld's log: what it did to each job, and what it forgot."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

_LINE = re.compile(r"\[([0-9T:.-]+)\] (.*)")
_JOB = re.compile(r"JobId=(\d+)")
RELEASED_MARK = "#hops-released"
STUCK_SECONDS = 60.0
"""slurmdbd is away for at most half as long."""


@dataclass(slots=True)
class SlurmLog:
    """Start times of slurmctld (``starts``), and times and lines by job ID (``jobs``)."""

    starts: list[float] = field(default_factory=list)
    jobs: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, path: Path) -> SlurmLog:
        """Read the log; a missing file is an empty log."""
        log = cls()
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            if (match := _LINE.match(line)) is None:
                continue
            time, text = datetime.fromisoformat(match[1]).astimezone().timestamp(), match[2]
            if text.startswith("slurmctld version"):
                log.starts.append(time)
            elif (job := _JOB.search(text)) is not None:
                log.jobs[job[1]].append((time, text))
        return log

    def has_restart(self, since: float, until: float) -> bool:
        return any(since < time < until for time in self.starts)

    def ended_well(self, job: str, since: float, until: float) -> float | None:
        """Time at which slurmctld last recorded the exit of the job's script. slurmctld also logs,
        and ignores, the exit of a job that it believes pending; only a line followed by "done"
        counts.
        """
        ends = [
            time
            for (time, text), (_, next_text) in pairwise(self.jobs[job])
            if since < time < until
            and text.startswith("_job_complete:")
            and "WEXITSTATUS" in text
            and next_text.endswith(" done")
        ]
        return max(ends, default=None)

    def refuses_updates(self, job: str) -> bool:
        """Whether slurmctld has refused every update of the job for STUCK_SECONDS. It was killed
        while it asked slurmdbd for the job's index, and has been waiting for that ever since
        (22.05).
        """
        refusal_times: list[float] = []
        for time, text in self.jobs[job]:
            if "the DB index is being set" in text:
                refusal_times.append(time)
            elif "complete JobId" in text:
                refusal_times.clear()
        restarts = [start for start in self.starts if refusal_times and start < refusal_times[0]]
        return bool(restarts) and refusal_times[-1] - refusal_times[0] > STUCK_SECONDS

    def dropped_job(self, job: str, submit_time: float) -> bool:
        """Whether a later restart of slurmctld did not recover the job."""
        for start in self.starts[bisect_right(self.starts, submit_time) :]:
            texts = [text for time, text in self.jobs[job] if start <= time]
            if not texts or not texts[0].startswith("Recovered "):
                return True
        return False

    def held_at(self, job: str, end_time: float) -> float | None:
        """Time at which slurmctld last executed a hold by hopsd."""
        holds = [
            log_time
            for log_time, text in self.jobs[job]
            if log_time < end_time and "_hold_job_rec: hold" in text
        ]
        return max(holds, default=None)

    def given_back(self, job: str, run_time: float) -> bool:
        """Whether plain Slurm started the run at ``run_time``: hopsd removes its mark with each
        placement.
        """
        marks = [
            RELEASED_MARK in text
            for time, text in self.jobs[job]
            if time < run_time and "setting comment to" in text
        ]
        return marks[-1:] == [True]
