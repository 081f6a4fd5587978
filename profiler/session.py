"""One process's measuring, from the import of PyTorch to its end."""

from __future__ import annotations

import atexit
import os
import time
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from hops_profiler import environment, report
from hops_profiler.hooks import Hooks
from hops_profiler.recorder import Recorder

WRITE_SHARE = 1e-3
"""Largest share of the time that may go into writing reports, however slow the storage."""

_session: Session | None = None


def start() -> Session | None:
    """Listen to PyTorch in this process; once, and only in a hops job."""
    global _session  # noqa: PLW0603 - one PyTorch in a process, one session
    job = environment.job()
    if _session is None and job is not None:
        _session = Session(job)
        _session.begin()
    return _session


class Session:
    """Owns the recorder and decides when to report."""

    def __init__(self, job: environment.Job) -> None:
        self.recorder = Recorder()
        self._job = job
        self._hooks = Hooks(self.recorder, self._iterated)
        self._started = time.time()
        self._epoch = time.time() - time.perf_counter()
        self._next_write = 0.0
        self._pid = os.getpid()

    def begin(self) -> None:
        self._hooks.attach()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    def close(self) -> None:
        """The last report; a process that never trained leaves none."""
        if os.getpid() == self._pid and self.recorder.iterations:
            self._write(final=True)

    def _forked(self) -> None:
        """A child counts for itself: a rank that trains, or a DataLoader's worker that will not."""
        self._hooks.recorder = self.recorder = Recorder()
        self._pid, self._next_write = os.getpid(), 0.0

    def _iterated(self) -> None:
        now = self.recorder.last_step
        if now < self._next_write:
            return
        self._write(final=False)
        spent = time.perf_counter() - now
        self._next_write = now + max(self._job.report_seconds, spent / WRITE_SHARE)

    def _write(self, *, final: bool) -> None:
        rank = dist.get_rank() if _distributed() else 0
        name = report.file_name(self._job.id, self._job.run, self._job.node, rank, self._pid)
        # Full disk, lost mount: the next report carries everything that this one would have.
        with suppress(OSError):
            report.write(self._job.report_dir, name, self._content(rank, final=final))

    def _content(self, rank: int, *, final: bool) -> dict[str, Any]:
        seen, job = self.recorder, self._job
        samples, timed_samples, source = seen.samples, seen.timed_samples, "batch"
        if not samples and job.batch:
            samples, source = seen.iterations * job.batch, "comment"
            timed_samples = seen.timed_iterations * job.batch
        return {
            "version": report.VERSION,
            "job": job.id,
            "run": job.run,
            "node": job.node,
            "rank": rank,
            "world": dist.get_world_size() if _distributed() else 1,
            "pid": self._pid,
            "started": self._started,
            "first_step": self._epoch + (seen.first_step or 0.0),
            "at": time.time(),
            "final": final,
            "iterations": seen.iterations,
            "samples": samples,
            "samples_from": source if samples else "",
            "timed": {
                "iterations": seen.timed_iterations,
                "samples": timed_samples,
                "seconds": seen.seconds,
            },
            "phases": {name: series.as_json() for name, series in seen.phases.items()},
            "interrupted": seen.interrupted,
            "failure": self._hooks.failure,
        }


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
