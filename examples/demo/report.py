"""Results of the demo from hopsd and from Slurm, checked against each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.predictions import Outcome
from hopsd.core.submission.comment import parse


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a job according to Slurm's state, hopsd's record, and the training's own log."""

    id: str
    name: str
    comment: str
    state: str
    restarts: int
    explanation: dict[str, Any]
    history: Sequence[dict[str, Any]]

    @property
    def placements(self) -> list[dict[str, Any]]:
        return list(self.explanation["history"]["placements"])

    @property
    def has_profiling(self) -> bool:
        return any(placement["profiling"] for placement in self.placements)

    @property
    def record(self) -> dict[str, Any]:
        return dict(self.explanation["history"]["record"] or {})

    @property
    def samples_done(self) -> int:
        return max((int(run["end"]) for run in self.history), default=0)

    @property
    def outcome(self) -> Outcome:
        """The starts and the end of this job."""
        starts = sorted(placement["start"] for placement in self.placements)
        return Outcome(self.id, self.name, starts, self.record.get("end"))


def report(status: dict[str, Any], rounds: int, jobs: Sequence[JobEnd]) -> dict[str, Any]:
    """Make the document of build/demo/report.json."""
    return {
        "slurm_version": status["slurm_version"],
        "port": status["port"],
        "rounds": rounds,
        "jobs": [
            {
                "id": job.id,
                "comment": job.comment,
                "state": job.state,
                "restarts": job.restarts,
                "submit": job.record.get("submit"),
                "end": job.record.get("end"),
                "latency_ratio": job.record.get("latency_ratio"),
                "samples_done": job.samples_done,
                "placements": [
                    {key: p[key] for key in ("start", "end", "nodes", "profiling")}
                    for p in job.placements
                ],
            }
            for job in jobs
        ],
    }


def any_moved(jobs: Sequence[JobEnd]) -> bool:
    """Whether a job was checkpointed and moved; on a busy machine, all may end within a round."""
    return any(_has_moved(job) for job in jobs)


def problems(jobs: Sequence[JobEnd]) -> list[str]:
    """List the problems of the run; empty if all is well."""
    wrong = [problem for job in jobs for problem in _problems_of(job)]
    if not any(len(p["nodes"]) > 1 for job in jobs for p in job.placements):
        wrong.append("no job ran on two nodes")
    if any(job.has_profiling for job in jobs):
        wrong.append("a job was started just to measure it, and none asked for that")
    return wrong


def _problems_of(job: JobEnd) -> list[str]:
    wrong = []
    options = parse(job.comment)
    if job.state != "COMPLETED":
        wrong.append(f"job {job.id} ({job.name}) is {job.state}")
    if not job.placements:
        wrong.append(f"job {job.id} ({job.name}) has no recorded placement")
    for placement in job.placements:
        gpus = sum(placement["nodes"].values())
        if gpus not in options.reqs and not placement["profiling"]:
            wrong.append(f"job {job.id} ({job.name}) ran on {gpus} GPUs, not in {options.reqs}")
    if options.samples is not None and job.samples_done != options.samples:
        wrong.append(f"job {job.id} trained on {job.samples_done} of {options.samples:.0f} samples")
    for before, after in zip(job.history, job.history[1:], strict=False):
        if after["begin"] != before["end"]:
            wrong.append(f"job {job.id} lost samples {after['begin']} to {before['end']}")
    return wrong


def _has_moved(job: JobEnd) -> bool:
    places = [json.dumps(p["nodes"], sort_keys=True) for p in job.placements if not p["profiling"]]
    return len(set(places)) > 1 and len(job.history) > 1


def training_log(folder: Path) -> list[dict[str, Any]]:
    """One entry per run: samples at its beginning and end, GPUs, learning rate, losses."""
    path = folder / "history.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
