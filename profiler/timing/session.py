"""The measurement of one process, from the import of PyTorch to its end."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.stall.activity import gpus_in_use
from hops_profiler.stall.watchdog import Watchdog
from hops_profiler.timing import loads, program, report, saves
from hops_profiler.timing.answers import handled_signals
from hops_profiler.timing.basics import basics
from hops_profiler.timing.communication import OFTEN, Communication
from hops_profiler.timing.counts import Counts
from hops_profiler.timing.device import CudaClock
from hops_profiler.timing.ending import end_run, enough, out_of_memory
from hops_profiler.timing.handlers import SuppressErrors
from hops_profiler.timing.hooks import Hooks
from hops_profiler.timing.layout import watch_pipeline
from hops_profiler.timing.length import Length, Pass
from hops_profiler.timing.recorder import Recorder
from hops_profiler.timing.writer import Writer

LAST_WRITE_SECONDS = 10.0
"""Longest time that a process waits at its end for storage that hangs."""

INFERENCE_SECONDS = 60.0
"""For so long a program that only infers may turn out to be validating before it trains."""

EXCHANGE_SECONDS = 2.0
"""Longest time that a process waits at its end for the other ranks' times."""

MOST_GLANCES = 14
"""First iterations, after each of which ranks are read; later every hundredth. Communication is
read as often as it is timed."""

EXCHANGES = (14, 34, 94)
"""Iterations from which on the ranks exchange communication times; later with each report."""

LAST_BATCHES = 0.8
"""If batches have on average this share of the comment's size or more, they have that size except
for shorter ones at the end of epochs: then samples are counted as they are."""

EVERY = 7
"""In running mode the GPU's clock times at most every so many iterations: it costs 5 us a mark."""

_session: Session | None = None


def start() -> None:
    """Start measuring this process; only in a hops job."""
    job = environment.job()
    if job is not None:
        _only_session(job)


@contextmanager
def profile() -> Iterator[Session]:
    """Measure while the block runs, also outside of any job; see :meth:`Session.summary`.

    In a hops job the profiler also measures before and after the block.
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


def stop_at(gate: Callable[[int], int]) -> None:
    """Have ``gate`` called after optimizer steps that end an iteration: with how many have ended
    since; it returns how many may end until it is called again at the latest. Nothing is reported:
    the process is one of several trainings of its job.
    """
    _only_session(environment.NO_JOB).stop_at(gate)


def planned() -> float | None:
    """Iterations that this process's training will have done at its end, as its loops show; None if
    they do not. To be called from within a step, as a gate is.
    """
    return None if _session is None else _session.planned()


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
        self._below = environment.is_below_training()
        self._hooks = Hooks(self._new_recorder(), self._iterated)
        if job.profile:
            self._hooks.together = 1
        self._communication = Communication()
        self._closed = False
        self._adopt_process()

    def begin(self) -> None:
        self._hooks.attach()
        self._communication.attach()
        saves.listen(self._note_saving, self._note_save)
        if environment.restarts() and environment.is_first_rank():
            loads.listen()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)
        self._attach_exit()

    def stop_at(self, gate: Callable[[int], int]) -> None:
        """See :func:`stop_at`."""
        self._hooks.stop_at(gate)

    def planned(self) -> float | None:
        """See :func:`planned`."""
        self._look_ahead(self._hooks.recorder.counts)
        return self._planned

    def resume(self) -> None:
        """Measure again, starting from zero."""
        self._hooks.begin_anew(self._new_recorder())

    def pause(self) -> None:
        """Stop measuring; the counts stay. A training that takes turns is measured on."""
        self._hooks.pause()

    def summary(self) -> dict[str, Any]:
        """The report on the iterations so far; see docs/profiler.md."""
        return self._content(*self._find_place(), final=False)

    def close(self) -> None:
        """Write the last report. A process that never trained leaves none, unless it ran out of
        memory.
        """
        counts = self._hooks.recorder.counts
        if os.getpid() != self._pid or self._closed:
            return
        self._short = out_of_memory()
        if not counts.iterations and not self._short:
            return
        self._closed = True
        if self._saving and self._saved == counts.iterations:  # its last act; not one that failed
            self._end_save()
        if not (counts.inference and self._below):
            self._write(final=True)

    def _attach_exit(self) -> None:
        """Report at exit; children of `multiprocessing` end without running `atexit`."""
        leave = os._exit

        @functools.wraps(leave)
        def report_and_leave(status: int) -> None:
            try:
                self.close()
            finally:
                leave(status)

        os._exit = report_and_leave  # type: ignore[assignment]

    def _new_recorder(self) -> Recorder:
        if self._job.profile:
            return Recorder(CudaClock(every=1))
        return Recorder(CudaClock(every=EVERY))

    def _new_watchdog(self) -> Watchdog:
        job, hooks = self._job, self._hooks
        return Watchdog(
            steps=lambda: hooks.steps,
            thread=lambda: hooks.thread,
            evaluates=lambda: hooks.evaluating,
            say=self._report_stall,
            stacks_name=f"{job.id}.{job.run}.{job.node}.{os.getpid()}.txt",
        )

    def _adopt_process(self) -> None:
        self._pid = os.getpid()
        self._token = report.token()
        self._began = time.perf_counter()
        self._next_write = 0.0
        self._next_glance = 0
        self._exchanges = list(EXCHANGES)
        self._place = 0, 1
        self._saved: int | None = None
        self._saving = False
        self._saved_at: float | None = None
        self._save_every: float | None = None
        self._short = False
        self._closed = False
        self._writer = Writer()
        self._watchdog = self._new_watchdog()
        self._length = Length(self._epoch + self._began)
        self._planned: float | None = None

    def _forked(self) -> None:
        """Start anew in a forked child: a rank that trains, or a DataLoader worker."""
        self._below = self._below or self._hooks.trains
        self._hooks.begin_anew(self._new_recorder(), forked=True)
        self._communication.forget()
        self._adopt_process()

    def _iterated(self) -> None:
        counts = self._hooks.recorder.counts
        now = counts.last_step
        if counts.inference and not self._only_infers(now):
            return
        if self._saving:
            self._note_save_over()
        if counts.iterations >= self._next_glance:
            self._glance(counts)
        if self._job.profile and enough(counts, self._job.profile):
            self._write(final=True)
            end_run(self._job.id, first=self._place[0] == 0)
            self._job = replace(self._job, profile=0)  # the job was not ended: hopsd will end it
        if now >= self._next_write:
            self._look_ahead(counts)
            self._write(final=False)
            self._next_write = now + self._job.report_seconds

    def _look_ahead(self, counts: Counts) -> None:
        """See how long the training will be."""
        if counts.inference:
            return
        recorder, reading = self._hooks.recorder, self._hooks.reading
        read = Pass(*reading, recorder.fetches) if recorder.reads and reading else None
        self._planned = None
        if recorder.shares_steps:
            return  # the loops of one thread do not show the others'
        with SuppressErrors():
            self._planned = self._length.iterations(counts.iterations, read)

    def _only_infers(self, now: float) -> bool:
        """True if nothing points to a training, which may begin with a validation."""
        if self._below or self._hooks.optimizers:
            return False
        return now - self._hooks.recorder.counts.first_step >= INFERENCE_SECONDS

    def _glance(self, counts: Counts) -> None:
        done = counts.iterations
        _, world = self._find_place()
        # Where they share a batch, none reads for the others; parts of it may look as if.
        self._hooks.recorder.ranks = world if self._hooks.sharing == 1 else 1
        if not counts.inference:
            environment.tell_children()
            if self._job.report_dir:
                self._watchdog.start()
        if done == 1:
            watch_pipeline(self._note_sharing)
        reads = self._communication.read()
        if reads:
            self._hooks.together = min(self._hooks.together, OFTEN)
        if reads and self._exchanges and done >= self._exchanges[0]:
            self._exchanges = [later for later in self._exchanges if later > done]
            self._writer.do(self._communication.exchange)
        self._next_glance = done + (1 if done < MOST_GLANCES or reads else 100)

    def _note_sharing(self, ranks: int) -> None:
        self._hooks.sharing = max(self._hooks.sharing, ranks)
        if ranks > 1:
            self._hooks.recorder.ranks = 1

    def _note_saving(self) -> None:
        """A save may be of several files: it is over once training goes on."""
        if not self._saving and self._hooks.recorder.counts.iterations:
            self._saving = True
            with SuppressErrors():
                self._write(final=False)

    def _note_save(self) -> None:
        self._saved = self._hooks.recorder.counts.iterations

    def _note_save_over(self) -> None:
        self._end_save()
        self._write(final=False)

    def _end_save(self) -> None:
        now = time.time()
        self._save_every = None if self._saved_at is None else max(0.0, now - self._saved_at)
        self._saving, self._saved_at = False, now

    def _samples(self, recorder: Recorder) -> tuple[float, float, str]:
        """Samples in all and in the timed iterations, and their source: "" if unknown."""
        counts, share = recorder.counts, self._hooks.sharing
        each, mean = self._job.batch, recorder.samples / max(1, recorder.batches)
        unknown = recorder.unclear or recorder.vague
        if each and (unknown or not LAST_BATCHES * each < mean <= each):
            return recorder.batches * each, counts.timed_batches * each, "comment"
        if unknown or not recorder.samples:
            return 0, 0, ""
        source = "batch" if 2 * counts.read >= counts.batches else "input"
        return recorder.samples / share, counts.timed_samples / share, source

    def _write(self, *, final: bool) -> None:
        rank, world = self._find_place()
        if not self._job.report_dir:
            return
        job = self._job
        name = report.file_name(job.id, job.run, job.node, rank, self._pid, self._token)
        if self._communication.read():
            self._writer.do(self._communication.exchange)
            if final:
                self._writer.finish(EXCHANGE_SECONDS)
        self._writer.write(job.report_dir, name, self._content(rank, world, final=final))
        if final:
            self._writer.finish(LAST_WRITE_SECONDS)

    def _report_stall(self) -> None:
        """Report from the watchdog's thread: the training makes no steps."""
        if self._closed:
            return
        rank, world = self._place
        job = self._job
        name = report.file_name(job.id, job.run, job.node, rank, self._pid, self._token)
        self._writer.write(job.report_dir, name, self._content(rank, world, final=False))

    def _find_place(self) -> tuple[int, int]:
        """Rank and number of ranks. Only the process group knows: Slurm counts tasks, not ranks.

        Kept for the last report, when the group may be gone.
        """
        if dist.is_available() and dist.is_initialized():
            self._place = dist.get_rank(), dist.get_world_size()
        return self._place

    def _content(self, rank: int, world: int, *, final: bool) -> dict[str, Any]:
        recorder, job = self._hooks.recorder, self._job
        counts = recorder.counts
        samples, timed_samples, source = self._samples(recorder)
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
            "first_step": self._epoch + (counts.first_step or time.perf_counter()),
            "at": time.time(),
            "final": final,
            "iterations": counts.iterations,
            "planned": None if self._planned is None else max(self._planned, counts.iterations),
            "saved": None if self._saved is None else min(self._saved, counts.iterations),
            "saving": self._saving,
            "saved_at": self._saved_at,
            "save_every": self._save_every,
            "samples": samples,
            "samples_from": source,
            "batch": _per_iteration(samples, counts.iterations),
            "params": self._hooks.params,
            "interrupted": counts.interrupted,
            "communication_timed": self._communication.heard if world > 1 else None,
            "keeps_steps": _keeps_steps() if counts.iterations else None,
            "handled_signals": handled_signals(),
            "failure": self._hooks.failure,
            "out_of_memory": self._short,
            "gpus": gpus_in_use(),
            "stall": None if final else self._watchdog.word(),
            "timed": timed,
            "basics": basics(counts, world, self._communication.seconds, self._communication.wait),
            "phases": {name: series.as_json() for name, series in counts.phases.items()},
            "backward_by_data": {str(b): s for b, s in sorted(counts.backward_by_data.items())},
        }


def _keeps_steps() -> bool:
    """Whether the training's steps have the same samples on any number of GPUs."""
    module = sys.modules.get("hops_profiler.data.kept")
    return module is not None and module.steps_are_kept()


def _per_iteration(samples: float, iterations: int) -> int | None:
    """Samples per iteration of this rank, all batches of a gradient accumulation together."""
    return round(samples / iterations) or None if iterations else None
