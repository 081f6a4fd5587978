"""Vacates nodes: running jobs get a signal and time to save, then are requeued as held."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable
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

    All are signalled at once, and the grace of each begins then. A job may leave by itself, with
    the site's RequeueExitHold code; one that still runs after its grace is requeued, and one that
    handles no signal is requeued at once. A job that ended is left alone, since a requeue would run
    it again, unless only our signal ended it.
    """
    left: dict[JobId, float] = {}
    errors: dict[JobId, str] = {}
    before = watch.jobs()
    jobs = _among(before, jobs, _ON_NODES)

    def all_left(seen: Jobs) -> bool:
        staying = _among(seen, jobs, _ON_NODES)
        left.update({j: watch.now() for j in jobs if j not in staying and j not in left})
        return not staying

    warnings = {job: signal_of(before[job], settings) for job in jobs}
    begun = watch.ticks()
    for job, warning in warnings.items():
        if warning is not None:
            with refusals({}, job):  # of a job that just ended; its state is checked below
                adapter.signal(job, warning.name, warning.scope)
    graces = {job: warning.seconds if warning else 0.0 for job, warning in warnings.items()}
    requeued: set[JobId] = set()

    def requeue(seen: Jobs, chosen: Iterable[JobId]) -> None:
        for job in chosen:
            if job in seen and _to_requeue(seen[job], settings):
                requeued.add(job)
                with refusals(errors, job):
                    adapter.requeue_hold(job, ended=seen[job].state.finished)

    for grace in sorted(set(graces.values())):
        seen = watch.until(jobs, all_left, begun + grace - watch.ticks())
        requeue(seen, [job for job in jobs if graces[job] == grace])
    seen = watch.until(jobs, all_left, settings.stop_timeout_seconds)
    # A job still completing at the end of its grace may have died of the signal.
    requeue(seen, [job for job in jobs if job not in requeued])
    for job in _among(seen, jobs, _ON_NODES):
        errors.setdefault(job, f"it is still {seen[job].state_text} after the requeue")
    return Vacated(left, errors)


def _to_requeue(job: JobReading, settings: ApplySettings) -> bool:
    running = job.state in (SlurmState.RUNNING, SlurmState.SUSPENDED)
    return running or died_of_warning(job, settings)


@dataclass(frozen=True, slots=True)
class WarningSignal:
    """A signal by name, and the seconds of grace after it."""

    name: str
    scope: SignalScope
    seconds: float


def signal_of(job: JobReading, settings: ApplySettings) -> WarningSignal | None:
    """The script's own ``--signal``, which it handles; otherwise the site's.

    None if the site's signal would only kill the script's shell: before the job could be requeued,
    Slurm would call it failed, mail its user and strand the jobs that depend on it.
    """
    asked = job.asked
    if asked.signal:
        seconds = settings.grace_seconds if asked.signal_seconds is None else asked.signal_seconds
        scope = SignalScope.STEPS if asked.signal_steps else SignalScope.BATCH
        return WarningSignal(asked.signal, scope, min(seconds, settings.longest_grace_seconds))
    name, scope = settings.checkpoint_signal, settings.signal_scope
    if scope is SignalScope.BATCH and asked.traps is not None and name not in asked.traps:
        return None
    return WarningSignal(name, scope, settings.grace_seconds)


def died_of_warning(job: JobReading, settings: ApplySettings) -> bool:
    """Whether the job's script had no handler for our signal and died of it.

    A shell reports a child that died of signal n as exit code 128 + n.
    """
    warning = signal_of(job, settings)
    if warning is None:
        return False
    number = int(signal.Signals[f"SIG{warning.name}"])
    died = job.exit_signal == number or job.exit_code == 128 + number
    return job.state is SlurmState.FAILED and died


def _among(seen: Jobs, jobs: Collection[JobId], states: Collection[SlurmState]) -> list[JobId]:
    return [job for job in jobs if job in seen and seen[job].state in states]
