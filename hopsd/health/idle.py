"""Find jobs that hold GPUs and do nothing: no step of a training, and no processor time.

Both must hold for minutes. A process that computes on a GPU gives it work all the time, which takes
processor time; a process that takes none does nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import JobId

IDLE_SECONDS = 200.0
"""Idle jobs are reported within 5 min: hopsd looks every minute, and Slurm samples every 30 s."""

BUSY_SHARE = 0.01
"""The share of one processor that counts as busy: daemons, loggers and Gloo's loop take less."""


@dataclass(frozen=True, slots=True)
class Use:
    """A job's use at ``at``: the steps of its trainings, 0 if none reports, and the processor time
    of its processes in seconds, None if Slurm does not gather it.
    """

    at: float
    steps: int
    processor_seconds: float | None


@dataclass(frozen=True, slots=True)
class IdleJob:
    """A job that has done nothing for ``seconds``, in which it used ``processor_seconds``, after
    ``steps`` steps of its trainings.
    """

    seconds: float
    processor_seconds: float
    steps: int

    @property
    def text(self) -> str:
        progress = f", after {self.steps:,} steps of a training" if self.steps else ""
        return (
            f"does nothing with what it holds: no step and {self.processor_seconds:.0f} s of"
            f" processor time in {self.seconds / 60:.0f} min{progress}"
        )


@dataclass(frozen=True, slots=True)
class PartialUse:
    """A job whose trainings use ``gpus_in_use`` of ``gpus_held`` GPUs. ``agreed_seconds`` is how
    long the driver has seen no process on the other GPUs, either; 0 if it does not confirm that.
    """

    gpus_in_use: int
    gpus_held: int
    agreed_seconds: float

    @property
    def text(self) -> str:
        text = f"its trainings use {self.gpus_in_use} of the {self.gpus_held} GPUs that it holds"
        if not self.agreed_seconds:
            return text
        minutes = f"{self.agreed_seconds / 60:.0f} min"
        return f"{text}, and the driver has seen no process on the others for {minutes}"


@dataclass(slots=True)
class IdleWatch:
    """Watches one run of a job for idleness."""

    _uses: deque[Use] = field(default_factory=deque)

    def note(self, use: Use) -> IdleJob | None:
        """Add a look; return the job's idleness, None if the job works or that is unknown."""
        uses = self._uses
        if use.processor_seconds is None or (uses and _works(uses[-1], use)):
            uses.clear()
        if use.processor_seconds is None:
            return None
        uses.append(use)
        while len(uses) > 1 and _works(uses[0], use):
            uses.popleft()
        first = uses[0]
        if use.at - first.at < IDLE_SECONDS:
            return None
        seconds = use.processor_seconds - (first.processor_seconds or 0.0)
        return IdleJob(use.at - first.at, seconds, use.steps)


def _works(before: Use, after: Use) -> bool:
    """Whether the job did something between two looks. Slurm counts whole seconds."""
    seconds = (after.processor_seconds or 0.0) - (before.processor_seconds or 0.0)
    limit = 1.0 + BUSY_SHARE * (after.at - before.at)
    return after.steps != before.steps or not 0.0 <= seconds <= limit


def update_watches(
    watches: dict[tuple[JobId, int], IdleWatch], uses: Mapping[tuple[JobId, int], Use]
) -> dict[JobId, IdleJob]:
    """Update ``watches`` with the latest looks, drop those of other runs, and return idle jobs."""
    for run in watches.keys() - uses.keys():
        del watches[run]
    idle = {}
    for run, use in uses.items():
        idle_job = watches.setdefault(run, IdleWatch()).note(use)
        if idle_job is not None:
            idle[run[0]] = idle_job
    return idle
