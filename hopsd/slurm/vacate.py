"""Running jobs are asked to save their work, given time, and put back as held."""

from __future__ import annotations

import signal
from collections.abc import Collection

from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.watch import ApplySettings, Jobs, Watch, refusals

_ON_NODES = frozenset({SlurmState.RUNNING, SlurmState.COMPLETING, SlurmState.SUSPENDED})


def vacate(
    adapter: Adapter, watch: Watch, settings: ApplySettings, jobs: Collection[JobId]
) -> dict[JobId, str]:
    """Bring running ``jobs`` to pending and held; why not, for those that are not.

    All get the checkpoint signal at once and share one grace. A job may leave by itself, with
    the site's RequeueExitHold code; one that still runs afterwards is requeued. A job that ended
    is left alone, since a requeue would run it again, unless nothing but our signal ended it.
    """
    errors: dict[JobId, str] = {}
    jobs = _among(watch.jobs(), jobs, _ON_NODES)
    for job in jobs:
        with refusals(errors, job):  # a job that just ended refuses; its state is looked at below
            adapter.signal(job, settings.checkpoint_signal, settings.signal_scope)
    seen = watch.until(lambda now: not _among(now, jobs, _ON_NODES), settings.grace_seconds)
    errors.clear()
    for job in jobs:
        if job in seen and (
            seen[job].state in _ON_NODES - {SlurmState.COMPLETING}
            or _ended_by(seen[job], settings.checkpoint_signal)
        ):
            with refusals(errors, job):
                adapter.requeue_hold(job)
    seen = watch.until(lambda now: not _among(now, jobs, _ON_NODES), settings.stop_timeout_seconds)
    for job in _among(seen, jobs, _ON_NODES):
        errors.setdefault(job, f"still {seen[job].state_text} after the requeue")
    return errors


def _among(seen: Jobs, jobs: Collection[JobId], states: Collection[SlurmState]) -> list[JobId]:
    return [job for job in jobs if job in seen and seen[job].state in states]


def _ended_by(job: JobReading, name: str) -> bool:
    """True where the job's script had no handler for the signal and died of it.

    A shell reports a child that died of signal n as exit code 128 + n.
    """
    number = int(signal.Signals[f"SIG{name}"])
    died = job.exit_signal == number or job.exit_code == 128 + number
    return job.state is SlurmState.FAILED and died
