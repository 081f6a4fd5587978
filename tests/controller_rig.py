"""A controller with port and store in memory but the real reader, learner and planner."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from memory_store import MemoryStore

from hopsd.config import Config
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepOutcome
from hopsd.service.controller import Controller
from hopsd.slurm.port import InstantPort
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore

NOW = 1_700_000_000.0
A100 = GpuType("a100")
UID = os.getuid()


def job(number: int, comment: str, **changes: Any) -> JobReading:
    return replace(
        JobReading(
            JobId(str(number)), UserName("ann"), UID, f"train{number}", comment, "main",
            SlurmState.PENDING, NOW - 600.0, hold=Hold.HOPS,
        ),
        **changes,
    )  # fmt: skip


class Port(InstantPort):
    """A cluster in memory that starts the jobs it is told to start."""

    name = "memory"

    def __init__(self, *jobs: JobReading, gpus: int = 8) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.nodes = [NodeReading(NodeName(f"n{i}"), A100, gpus, 32) for i in range(2)]
        self.now = NOW

    def read(self) -> Reading:
        return Reading(self.now, tuple(self.nodes), tuple(self.jobs.values()), "22.05.8")

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        for step in steps:
            job = self.jobs[step.job]
            if step.current:
                job = replace(job, restarts=job.restarts + 1, submit=self.now)
            running = bool(step.target)
            self.jobs[step.job] = replace(
                job,
                state=SlurmState.RUNNING if running else SlurmState.PENDING,
                hold=Hold.NONE if running else Hold.HOPS,
                allocation=step.target,
                start=self.now if running else 0.0,
            )
        return [StepOutcome(s, OutcomeStatus.DONE, s.target, started=self.now) for s in steps]

    @property
    def running(self) -> set[str]:
        return {str(job.id) for job in self.jobs.values() if job.allocation}


class Store(MemoryStore):
    def use_tables(self, tables: object) -> None:
        assert tables == {}


class Lead:
    def acquire(self) -> None:
        """Do nothing: this controller always leads."""


class Rig:
    """A controller with everything in memory except for a real folder of reports."""

    def __init__(self, folder: Path, *jobs: JobReading, profiling: bool = False) -> None:
        self.port, self.store, self.folder = Port(*jobs), Store(), folder
        config = Config()
        config = replace(
            config,
            knowledge=replace(config.knowledge, report_dir=folder),
            profiling=replace(config.profiling, enabled=profiling),
        )
        self.controller = Controller(
            config, self.port, "", cast(PostgresStore, self.store), cast(Leader, Lead())
        )

    def tick(self, times: int = 1) -> str:
        """Tick, without failures; return the last sentence."""
        for _ in range(times):
            self.port.now += 30.0
            messages = self.controller.tick()
            assert self.controller.document["error"] is None, messages
        return messages

    def row(self, number: str) -> dict[str, Any]:
        document = self.controller.document
        return next(r for r in document["waiting"] + document["running"] if r["id"] == number)

    def report(self, number: int = 1, **changes: Any) -> Path:
        """Write a report of a process of the job, on the node that the job runs on."""
        node = self.port.jobs[JobId(str(number))].allocation.nodes[0]
        content: dict[str, Any] = {
            "version": 1, "job": str(number), "run": 0, "node": node, "rank": 0, "world": 1,
            "pid": 1, "first_step": self.port.now - 20, "at": self.port.now, "iterations": 103,
            "samples": 3296, "timed": {"iterations": 100, "samples": 3200, "seconds": 5.0},
            "kind": "training", "params": 1e6,
            "basics": {"clock": "cpu", "pattern": 2, "t_f": 0.01, "t_b": 0.02, "t_u": 0.003,
                       "t_w": 0.001},
            "phases": {"data": {"mean": 0.002, "bins": {"75": 60, "90": 40}}},
            "backward_by_data": {"75": 1.2, "90": 0.8},
        } | changes  # fmt: skip
        path = self.folder / f"{number}.0.{node}.0.{content['pid']}.json"
        path.write_text(json.dumps(content))
        return path
