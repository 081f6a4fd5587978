"""One process's measuring, from the import of PyTorch to its end."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.timing import program, report, saves
from hops_profiler.timing.basics import basics
from hops_profiler.timing.communication import Communication
from hops_profiler.timing.counts import WARMUP, Counts
from hops_profiler.timing.device import CudaClock
from hops_profiler.timing.ending import end_run, enough
from hops_profiler.timing.first_input import look_once
from hops_profiler.timing.hooks import Hooks
from hops_profiler.timing.recorder import Recorder

WRITE_SHARE = 1e-3
"""Largest share of the time that may go into writing reports, however slow the storage."""

EVERY = 10
"""In running mode the GPU's clock is read for each tenth iteration: it costs 5 us a mark."""

_session: Session | None = None


def start() -> None:
    """Listen to PyTorch in this process, in a hops job only."""
    job = environment.job()
    if job is not None:
        _only_session(job)


@contextmanager
def profile() -> Iterator[Session]:
    """Listen while the block runs, also outside of any job; :meth:`Session.summary` tells.

    In a hops job the profiler listens anyway: before the block, and after it.
    """
    job = environment.job()
    session = _only_session(job or environment.NO_JOB)
    if job is None:
        session.resume()
    try:
        yield session
    finally:
        if job is None:
            session.pause()


def _only_session(job: environment.Job) -> Session:
    global _session  # noqa: PLW0603 - one PyTorch in a process, one session
    if _session is None:
        _session = Session(job)
        _session.begin()
    return _session


class Session:
    """Owns the recorder and decides when to report and, in profiling mode, when to end."""

    def __init__(self, job: environment.Job) -> None:
        self._job = job
        self._epoch = time.time() - time.perf_counter()
        self._program = program.digest()
        self._hooks = Hooks(self._new_recorder(), self._iterated)
        self._communication = Communication()
        self._adopt_process()

    def begin(self) -> None:
        self._hooks.attach()
        self._communication.attach()
        saves.listen(self._note_save)
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    def resume(self) -> None:
        """Listen again, from nothing."""
        self._hooks.recorder = self._new_recorder()
        self._hooks.off = False

    def pause(self) -> None:
        """Listen no more; the counts stay."""
        self._hooks.off = True

    def summary(self) -> dict[str, Any]:
        """What a report says of the iterations so far; see docs/profiler.md."""
        return self._content(*self._find_place(), final=False)

    def close(self) -> None:
        """The last report; a process that never trained leaves none."""
        if os.getpid() == self._pid and self._hooks.recorder.counts.iterations:
            self._write(final=True)

    def _new_recorder(self) -> Recorder:
        return Recorder(CudaClock(every=1 if self._job.profile else EVERY))

    def _adopt_process(self) -> None:
        self._pid = os.getpid()
        self._token = report.token()
        self._began = time.perf_counter()
        self._write_seconds = 0.0
        self._next_write = 0.0
        self._place = 0, 1
        self._input_batch = 0
        self._saved: int | None = None

    def _forked(self) -> None:
        """A child counts for itself: a rank that trains, or a DataLoader's worker that will not."""
        self._hooks.recorder = self._new_recorder()
        self._adopt_process()

    def _iterated(self) -> None:
        counts = self._hooks.recorder.counts
        if counts.iterations == WARMUP and not self._hooks.recorder.batch:
            look_once(self._see_input)
        if self._job.profile and enough(counts, self._job.profile):
            self._write(final=True)
            end_run(self._job.id, first=self._place[0] == 0)
            self._job = replace(self._job, profile=0)  # nothing ended it: hopsd will
        now = counts.last_step
        if now < self._next_write:
            return
        self._write(final=False)
        self._write_seconds += time.perf_counter() - now
        self._next_write = max(
            now + self._job.report_seconds, self._began + self._write_seconds / WRITE_SHARE
        )

    def _note_save(self) -> None:
        self._saved = self._hooks.recorder.counts.iterations

    def _see_input(self, batch: int) -> None:
        self._input_batch = batch

    def _samples(self, counts: Counts) -> tuple[int, int, str]:
        """In all, in the timed iterations, and how they are known: "" where they are not."""
        if counts.samples:
            return counts.samples, counts.timed_samples, "batch"
        batch, source = self._input_batch, "input"
        if not batch:
            batch, source = self._job.batch or 0, "comment"
        return counts.passes * batch, counts.timed_passes * batch, source if batch else ""

    def _write(self, *, final: bool) -> None:
        rank, world = self._find_place()
        if not self._job.report_dir:
            return
        job = self._job
        name = report.file_name(job.id, job.run, job.node, rank, self._pid, self._token)
        # Full disk, lost mount: the next report carries everything that this one would have.
        with suppress(OSError):
            report.write(job.report_dir, name, self._content(rank, world, final=final))

    def _find_place(self) -> tuple[int, int]:
        """Rank and number of ranks. Only the process group knows: Slurm counts tasks, not ranks.

        Kept for the last report, when the group may be gone.
        """
        if dist.is_available() and dist.is_initialized():
            self._place = dist.get_rank(), dist.get_world_size()
        return self._place

    def _content(self, rank: int, world: int, *, final: bool) -> dict[str, Any]:
        counts, job = self._hooks.recorder.counts, self._job
        samples, timed_samples, source = self._samples(counts)
        timed: dict[str, Any] = {
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
            "pid": self._pid,
            "program": self._program,
            "mode": "profiling" if job.profile else "running",
            "kind": "inference" if counts.inference else "training",
            "started": self._epoch + self._began,
            "first_step": self._epoch + counts.first_step,
            "at": time.time(),
            "final": final,
            "iterations": counts.iterations,
            "saved": None if self._saved is None else min(self._saved, counts.iterations),
            "samples": samples,
            "samples_from": source,
            "batch": _per_iteration(samples, counts.iterations),
            "params": self._hooks.params,
            "interrupted": counts.interrupted,
            "failure": self._hooks.failure,
            "timed": timed,
            "basics": basics(counts, world, self._communication.seconds),
            "phases": {name: series.as_json() for name, series in counts.phases.items()},
            "backward_by_data": {str(b): s for b, s in sorted(counts.backward_by_data.items())},
        }


def _per_iteration(samples: int, iterations: int) -> int | None:
    """Of this rank, all batches of a gradient accumulation together."""
    return round(samples / iterations) or None if iterations else None
