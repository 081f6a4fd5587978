"""Measures one process, from the import of PyTorch to its end."""

from __future__ import annotations

import atexit
import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hops_profiler import environment
from hops_profiler.stall.watchdog import Watchdog
from hops_profiler.timing import loads, program, saves
from hops_profiler.timing.communication import ALL_REDUCE_INTERVAL, CommunicationMeter
from hops_profiler.timing.counts import Counts
from hops_profiler.timing.device import CudaClock
from hops_profiler.timing.ending import end_run, enough, out_of_memory
from hops_profiler.timing.handlers import SuppressErrors
from hops_profiler.timing.hooks import Hooks
from hops_profiler.timing.layout import watch_pipeline, watch_rows
from hops_profiler.timing.length import Length, LoaderPass
from hops_profiler.timing.recorder import Recorder
from hops_profiler.timing.reporter import Reporter
from hops_profiler.timing.rows import MAX_BATCHES

INFERENCE_SECONDS = 60.0
"""A program that has only inferred for less than this may be validating before it trains."""

FIRST_CHECKS = 14
"""Ranks are read after each of these first iterations, then after every hundredth. Communication
is read as often as it is timed."""

EXCHANGES = (14, 34, 94)
"""The ranks exchange communication times after these iterations, later with each report."""

DEVICE_INTERVAL = 7
"""In running mode, the GPU's clock times every seventh iteration, as each mark costs 5 us."""

_session: Session | None = None


def start() -> None:
    """Start measuring this process if it belongs to a hops job."""
    job = environment.job()
    if job is not None:
        _only_session(job)


@contextmanager
def profile() -> Iterator[Session]:
    """Measure while the block runs, even outside of a job; see :meth:`Session.summary`.

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
    """Call ``gate`` after optimizer steps that end an iteration, with the number of iterations
    ended since the last call. It returns how many may end before it must be called again. Nothing
    is reported, as the process is one of several trainings of its job.
    """
    _only_session(environment.NO_JOB).stop_at(gate)


def expect_iterations() -> float | None:
    """Iterations that this process's training will have done at its end according to its loops;
    None if they do not show it. To be called from within a step, like a gate.
    """
    return None if _session is None else _session.expect_iterations()


def _only_session(job: environment.JobEnvironment) -> Session:
    global _session  # noqa: PLW0603 - one PyTorch per process, one session
    if _session is None:
        _session = Session(job)
        _session.begin()
    return _session


class Session:
    """Owns the recorder and decides when to report and, in profiling mode, when to end."""

    _reporter: Reporter
    _is_closed: bool

    def __init__(self, job: environment.JobEnvironment) -> None:
        self._job = job
        self._epoch = time.time() - time.perf_counter()
        self._program = program.digest()
        self._trains_above = environment.is_below_training()
        self._hooks = Hooks(self._new_recorder(), self._report)
        if job.profile:
            self._hooks.batch_steps = 1
        self._communication = CommunicationMeter()
        self._adopt_process()

    def begin(self) -> None:
        self._hooks.attach()
        self._communication.attach()
        saves.listen(self._begin_save, self._note_save)
        if environment.restarts() and environment.is_first_rank():
            loads.listen()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._restart_in_child)
        self._attach_exit()

    def stop_at(self, gate: Callable[[int], int]) -> None:
        """See :func:`stop_at`."""
        self._hooks.stop_at(gate)

    def expect_iterations(self) -> float | None:
        """See :func:`expect_iterations`."""
        self._update_length(self._hooks.recorder.counts)
        return self._reporter.planned_iterations

    def resume(self) -> None:
        """Measure again, with all counts reset."""
        self._hooks.restart(self._new_recorder())

    def pause(self) -> None:
        """Stop measuring and keep the counts. With a gate, measuring continues."""
        self._hooks.pause()

    def summary(self) -> dict[str, Any]:
        """The report on the iterations so far; see docs/profiler.md."""
        self._reporter.find_place()
        return self._reporter.content(final=False)

    def close(self) -> None:
        """Write the last report. A process that never trained leaves none, unless it ran out of
        memory.
        """
        counts, reporter = self._hooks.recorder.counts, self._reporter
        if os.getpid() != reporter.pid or self._is_closed:
            return
        reporter.out_of_memory = out_of_memory()
        if not counts.iterations and not reporter.out_of_memory:
            return
        self._is_closed = True
        log = reporter.saves
        if log.is_open and log.iterations == counts.iterations:  # complete, and the last thing done
            log.end()
        if not (counts.inference and self._trains_above):
            reporter.write(final=True)

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
        return Recorder(CudaClock(interval=1 if self._job.profile else DEVICE_INTERVAL))

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
        self._is_closed = False
        self._next_write = 0.0
        self._next_check = 0
        self._exchanges = list(EXCHANGES)
        self._watchdog = watchdog = self._new_watchdog()
        self._reporter = Reporter(
            self._job,
            self._program,
            self._epoch,
            self._hooks,
            self._communication,
            stall=watchdog.word,
        )
        self._length = Length(self._reporter.begin_time)

    def _restart_in_child(self) -> None:
        """Restart in a forked child, which is a rank that trains or a DataLoader worker."""
        self._trains_above = self._trains_above or self._hooks.trains
        self._hooks.restart(self._new_recorder(), in_child=True)
        self._communication.forget()
        self._adopt_process()

    def _report(self) -> None:
        """Check the ranks, end a profiling run, and write the report, as due after an iteration."""
        counts, reporter = self._hooks.recorder.counts, self._reporter
        now = counts.last_step
        if counts.inference and not self._only_infers(now):
            return
        if reporter.saves.is_open:
            reporter.saves.end()
            reporter.write(final=False)
        if counts.iterations >= self._next_check or counts.iterations == 1:
            self._check_ranks(counts)
        if self._job.profile and enough(counts, self._job.profile):
            reporter.write(final=True)
            end_run(self._job.id, first=reporter.is_first_rank)
            # Slurm did not end the job, so hopsd will.
            self._job = reporter.job = replace(self._job, profile=0)
        if now >= self._next_write:
            self._update_length(counts)
            reporter.write(final=False)
            self._next_write = now + self._job.report_seconds

    def _update_length(self, counts: Counts) -> None:
        """Estimate how many iterations the training will have done at its end."""
        if counts.inference:
            return
        recorder, progress, loader_pass = self._hooks.recorder, self._hooks.loader_progress, None
        if recorder.sample_counter.reads and progress:
            loader_pass = LoaderPass(*progress, recorder.fetches)
        self._reporter.planned_iterations = None
        if recorder.shares_steps:
            return  # the loops of one thread do not show those of the others
        with SuppressErrors():
            self._reporter.planned_iterations = self._length.iterations(
                counts.iterations, loader_pass
            )

    def _only_infers(self, now: float) -> bool:
        """True if nothing indicates a training, which may begin with a validation."""
        if self._trains_above or self._hooks.optimizers:
            return False
        return now - self._hooks.recorder.counts.first_step >= INFERENCE_SECONDS

    def _check_ranks(self, counts: Counts) -> None:
        """Find the ranks and what they share, and read their communication times."""
        iterations = counts.iterations
        _, world = self._reporter.find_place()
        # If ranks share a batch, no rank reads for others, although parts of it may look like that.
        self._hooks.recorder.sample_counter.ranks = world if self._hooks.sharing == 1 else 1
        if not counts.inference:
            environment.tell_children()
            if self._job.report_dir:
                self._watchdog.start()
        if iterations == 1:
            watch_pipeline(self._note_stages)
            if self._hooks.layer_ranks > 1:
                watch_rows(self._note_row_groups)
        reads = self._communication.read()
        if reads:
            self._hooks.batch_steps = min(self._hooks.batch_steps, ALL_REDUCE_INTERVAL)
        if reads and self._exchanges and iterations >= self._exchanges[0]:
            self._exchanges = [number for number in self._exchanges if number > iterations]
            self._reporter.writer.do(self._communication.exchange)
        if world > 1 and not (reads or self._hooks.has_shards or self._hooks.stages > 1):
            self._compare_rows(iterations)
        self._next_check = iterations + (1 if iterations < FIRST_CHECKS or reads else 100)

    def _compare_rows(self, iterations: int) -> None:
        """Find ranks that read the same rows, where PyTorch does not say which share a batch."""
        rows, counter = self._hooks.rows, self._hooks.recorder.sample_counter
        is_stage, settles = counter.is_stage, iterations >= FIRST_CHECKS
        rows.expect(is_stage=is_stage)
        if rows.sharing == 1 and iterations > MAX_BATCHES:
            self._reporter.writer.do(lambda: rows.exchange(is_stage=is_stage, settles=settles))

    def _note_stages(self, ranks: int) -> None:
        self._hooks.stages = ranks
        if ranks > 1:
            self._hooks.recorder.sample_counter.ranks = 1

    def _note_row_groups(self, groups: int) -> None:
        self._hooks.row_groups = groups

    def _begin_save(self) -> None:
        log = self._reporter.saves
        if not log.is_open and self._hooks.recorder.counts.iterations:
            log.is_open = True
            with SuppressErrors():
                self._reporter.write(final=False)

    def _note_save(self) -> None:
        self._reporter.saves.iterations = self._hooks.recorder.counts.iterations

    def _report_stall(self) -> None:
        """Report from the watchdog's thread that the training makes no progress."""
        if not self._is_closed:
            self._reporter.write_at_once()
