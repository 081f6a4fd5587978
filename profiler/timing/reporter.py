"""Builds the report of one process and writes it to the report folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from hops_profiler.environment import JobEnvironment
from hops_profiler.stall.activity import gpus_in_use
from hops_profiler.stall.driver import visible_and_taken
from hops_profiler.timing import report
from hops_profiler.timing.answers import handled_signals
from hops_profiler.timing.basics import basics
from hops_profiler.timing.communication import CommunicationMeter
from hops_profiler.timing.hooks import Hooks
from hops_profiler.timing.saves import SaveLog
from hops_profiler.timing.writer import Writer

LAST_WRITE_SECONDS = 10.0
"""Maximum time that a process waits at its end for storage that hangs."""

EXCHANGE_SECONDS = 2.0
"""Maximum time that a process waits at its end for the other ranks' times."""

LAST_BATCHES = 0.8
"""If batches have, on average, more than this share of the size in the job's comment, they have
that size except for shorter ones at the end of epochs, and the counted samples are reported."""


class Reporter:
    """Writes reports on the training that ``hooks`` see, in a process that has just begun.

    ``program`` is the script's hash, ``epoch`` the time when the hooks' clock was 0, in seconds
    since the epoch. ``stall`` returns what the watchdog sees. ``saves`` is the log of the
    training's saves, ``planned_iterations`` the number of iterations at its end, None if unknown.
    ``out_of_memory`` says that the process ends because it ran out of memory.
    """

    def __init__(
        self,
        job: JobEnvironment,
        program: str,
        epoch: float,
        hooks: Hooks,
        communication: CommunicationMeter,
        *,
        stall: Callable[[], Any],
    ) -> None:
        self.job = job
        self.pid = os.getpid()
        self.begin_time = epoch + time.perf_counter()
        self.saves = SaveLog()
        self.planned_iterations: float | None = None
        self.out_of_memory = False
        self.writer = Writer()
        self._program = program
        self._epoch = epoch
        self._hooks = hooks
        self._communication = communication
        self._stall = stall
        self._token = report.token()
        self._place = 0, 1

    @property
    def is_first_rank(self) -> bool:
        return self._place[0] == 0

    def find_place(self) -> tuple[int, int]:
        """Return rank and number of ranks, from the process group: Slurm counts tasks, not ranks.

        They are remembered for the last report, when the group may be gone.
        """
        if dist.is_available() and dist.is_initialized():
            self._place = dist.get_rank(), dist.get_world_size()
        return self._place

    def write(self, *, final: bool) -> None:
        """Write the report in the background; wait for the ``final`` one."""
        self.find_place()
        if not self.job.report_dir:
            return
        if self._communication.read():
            self.writer.do(self._communication.exchange)
            if final:
                self.writer.finish(EXCHANGE_SECONDS)
        self.write_at_once(final=final)
        if final:
            self.writer.finish(LAST_WRITE_SECONDS)

    def write_at_once(self, *, final: bool = False) -> None:
        """Write the report without asking other ranks; may be called in any thread."""
        job, rank = self.job, self._place[0]
        name = report.file_name(job.id, job.run, job.node, rank, self.pid, self._token)
        self.writer.write(job.report_dir, name, self.content(final=final))

    def content(self, *, final: bool) -> dict[str, Any]:
        """The report; see docs/profiler.md."""
        (rank, world), job, saves = self._place, self.job, self.saves
        recorder = self._hooks.recorder
        counts = recorder.counts
        samples, timed_samples, source = self._samples()
        communication = self._communication
        timed = {
            "iterations": counts.iteration.count,
            "samples": timed_samples,
            "seconds": counts.iteration.sum,
        }
        return {
            "version": report.VERSION,
            "job": job.id,
            "run": job.run,
            "node": job.node,
            "rank": rank,
            "world": world,
            "pid": self.pid,
            "program": self._program,
            "mode": "profiling" if job.profile else "running",
            "kind": "inference" if counts.inference else "training",
            "started": self.begin_time,
            "first_step": self._epoch + (counts.first_step or time.perf_counter()),
            "at": time.time(),
            "final": final,
            "iterations": counts.iterations,
            "planned": None
            if self.planned_iterations is None
            else max(self.planned_iterations, counts.iterations),
            "saved": None if saves.iterations is None else min(saves.iterations, counts.iterations),
            "saving": saves.is_open,
            "saved_at": saves.end_time,
            "save_every": saves.interval,
            "samples": samples,
            "samples_from": source,
            "batch": _per_iteration(samples, counts.iterations),
            "params": self._hooks.params,
            "interrupted": counts.interruptions,
            "communication_timed": communication.has_model if world > 1 else None,
            "keeps_steps": _keeps_steps() if counts.iterations else None,
            "time_known": not recorder.time_is_unknown if counts.iterations else None,
            "handled_signals": handled_signals(),
            "failure": self._hooks.failure,
            "out_of_memory": self.out_of_memory,
            "gpus": gpus_in_use(),
            **dict(zip(("visible_gpus", "taken_gpus"), visible_and_taken(), strict=True)),
            "stall": None if final else self._stall(),
            "timed": dict.fromkeys(timed, 0) if recorder.time_is_unknown else timed,
            "basics": basics(counts, world, communication.seconds, communication.wait),
            "phases": {name: series.as_json() for name, series in counts.phases.items()},
            "backward_by_data": {str(b): s for b, s in sorted(counts.backward_by_data.items())},
        }

    def _samples(self) -> tuple[float, float, str]:
        """Samples in total and in timed iterations, and their source ("" if unknown)."""
        recorder, share, batch = self._hooks.recorder, self._hooks.sharing, self.job.batch
        counts, mean = recorder.counts, recorder.samples / max(1, recorder.batches)
        unknown = recorder.samples_are_unknown or self._hooks.rows.unclear
        if batch and (unknown or not LAST_BATCHES * batch < mean <= batch):
            return recorder.batches * batch, counts.timed_batches * batch, "comment"
        if unknown or not recorder.samples:
            return 0, 0, ""
        source = "batch" if 2 * counts.loader_batches >= counts.batches else "input"
        return recorder.samples / share, counts.timed_samples / share, source


def _keeps_steps() -> bool:
    """Whether the training's steps use the same samples on any number of GPUs."""
    module = sys.modules.get("hops_profiler.data.kept")
    return module is not None and module.steps_are_kept()


def _per_iteration(samples: float, iterations: int) -> int | None:
    """Samples per iteration of this rank, for all batches of a gradient accumulation together."""
    return round(samples / iterations) or None if iterations else None
