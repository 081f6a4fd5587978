"""Vacates nodes: running jobs get a signal and time to save, then are requeued as held."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass

from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState
from hopsd.slurm.adapter import Adapter, SignalScope
from hopsd.slurm.watch import ApplySettings, Jobs, Watch, refusals

_ON_NODES = frozenset({SlurmState.RUNNING, SlurmState.COMPLETING, SlurmState.SUSPENDED})


@dataclass(frozen=True, slots=True)
class Vacated:
    """``left``: when each job was seen to be off its nodes. ``errors``: why the others are not."""

    left: dict[JobId, float]
    errors: dict[JobId, str]


def vacate(
    adapter: Adapter, watch: Watch, settings: ApplySettings, jobs: Collection[JobId]
) -> Vacated:
    """Bring running ``jobs`` to pending and held, or let them end.

    All get the checkpoint signal at once and share one grace. A job may leave by itself, with
    the site's RequeueExitHold code; one that still runs afterwards is requeued. A job that ended
    is left alone, since a requeue would run it again, unless nothing but our signal ended it.
    """
    left: dict[JobId, float] = {}
    errors: dict[JobId, str] = {}
    before = watch.jobs()
    jobs = _among(before, jobs, _ON_NODES)

    def all_left(seen: Jobs) -> bool:
        staying = _among(seen, jobs, _ON_NODES)
        left.update({j: watch.now() for j in jobs if j not in staying and j not in left})
        return not staying

    for job in jobs:
        with refusals({}, job):  # of a job that just ended; its state is looked at below
            adapter.signal(job, *signal_of(before[job], settings))
    seen = watch.until(all_left, settings.grace_seconds)
    requeued = [job for job in jobs if job in seen and _to_requeue(seen[job], settings)]
    for job in requeued:
        with refusals(errors, job):
            adapter.requeue_hold(job, ended=seen[job].state.finished)
    seen = watch.until(all_left, settings.stop_timeout_seconds if requeued else 0.0)
    for job in _among(seen, jobs, _ON_NODES):
        errors.setdefault(job, f"it is still {seen[job].state_text} after the requeue")
    return Vacated(left, errors)


def _to_requeue(job: JobReading, settings: ApplySettings) -> bool:
    running = job.state in (SlurmState.RUNNING, SlurmState.SUSPENDED)
    return running or ended_by(job, signal_of(job, settings)[0])


def signal_of(job: JobReading, settings: ApplySettings) -> tuple[str, SignalScope]:
    """The script's own ``--signal``, which it handles; otherwise the site's."""
    if not job.asked.signal:
        return settings.checkpoint_signal, settings.signal_scope
    steps = job.asked.signal_steps
    return job.asked.signal, SignalScope.STEPS if steps else SignalScope.BATCH


def _among(seen: Jobs, jobs: Collection[JobId], states: Collection[SlurmState]) -> list[JobId]:
    return [job for job in jobs if job in seen and seen[job].state in states]


def ended_by(job: JobReading, name: str) -> bool:
    """Whether the job's script had no handler for the signal and died of it.

    A shell reports a child that died of signal n as exit code 128 + n.
    """
    number = int(signal.Signals[f"SIG{name}"])
    died = job.exit_signal == number or job.exit_code == 128 + number
    return job.state is SlurmState.FAILED and died
