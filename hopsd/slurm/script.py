"""Hashes of batch scripts: a job with a changed script is a different workload."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import JobId, UserName
from hopsd.model.isolation import in_turn
from hopsd.model.reading import JobReading, SlurmState
from hopsd.slurm.command import ScontrolSession, SlurmCommands

DIGITS = 12

READING_SECONDS = 10.0
"""After a start of hopsd or a rush of submissions there are thousands of scripts, and a busy
slurmctld may take 0.06 s for each: scripts not read within this time wait for the next reading."""

_NOT_WRITTEN = "failed to open file"

_Key = tuple[JobId, UserName, str]


class Scripts:
    """Reads batch scripts' hashes, once per job or array: a submitted script never changes.

    Operators may read every script (`scontrol write batch_script`, 22.05 to 26.05). The hash is
    empty for a job without a script (salloc, srun), and for a job whose comment names its workload,
    since its script is not needed.
    """

    def __init__(
        self, commands: SlurmCommands, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._monotonic = monotonic
        self._hashes: dict[_Key, str] = {}

    def for_jobs(self, jobs: Sequence[JobReading], *, learn: bool) -> Mapping[JobId, str | None]:
        """Return the hashes by job; None if not read yet, for lack of time or of ``learn``.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
        """
        keys = {job.id: _key(job) for job in jobs if "workload" not in job.comment}
        new = {keys[job.id]: job for job in jobs if job.id in keys}
        new = {key: job for key, job in new.items() if key not in self._hashes}
        if new and learn:
            self._learn(new)
        self._hashes = {key: self._hashes[key] for key in keys.values() if key in self._hashes}
        return {job: self._hashes.get(key) for job, key in keys.items()}

    def _learn(self, jobs: Mapping[_Key, JobReading]) -> None:
        """Read scripts for :data:`READING_SECONDS`. Known hashes are kept if Slurm fails."""
        deadline = self._monotonic() + READING_SECONDS
        try:
            with (
                tempfile.TemporaryDirectory(prefix="hops-") as folder,
                closing(ScontrolSession(self._commands)) as session,
            ):
                # Users take turns, so that nobody waits for thousands of scripts of somebody else.
                by_urgency = sorted(jobs.items(), key=lambda item: _urgency(item[1]))
                for key, job in in_turn(by_urgency, lambda item: item[1].user):
                    if self._monotonic() >= deadline:
                        break
                    self._hashes[key] = _hash(session, job, Path(folder) / "script")
        except OSError as error:
            raise SlurmUnavailableError(f"batch scripts cannot be read: {error}") from error


def _urgency(job: JobReading) -> int:
    """Slurm soon forgets ended jobs; waiting ones are planned only once their script is read."""
    return 0 if job.state.finished else 1 if job.state is SlurmState.PENDING else 2


def _hash(session: ScontrolSession, job: JobReading, path: Path) -> str:
    """Hash the script, which scontrol writes to ``path``, and its arguments; "" without a script.

    Raises:
        SlurmUnavailableError, OSError: the script cannot be read. If the disk is full, scontrol
            leaves an empty file or none, but its exit code is 0 (22.05 to 26.05).
    """
    try:
        session.run("write", "batch_script", job.array or job.id, str(path))
    except SlurmUnavailableError:
        raise
    except SlurmError as error:
        if _NOT_WRITTEN in str(error):
            raise OSError(str(error)) from error
        return ""  # the job has no script, or has ended meanwhile
    text = path.read_bytes().decode(errors="replace")
    path.unlink()
    if not text:
        raise OSError(f"scontrol wrote nothing to {path.parent}: is the disk full?")
    arguments = job.command.partition(" ")[2]
    data = f"{text}\0{arguments}".encode(errors="replace")
    return hashlib.sha256(data).hexdigest()[:DIGITS]


def _key(job: JobReading) -> _Key:
    """Return more than the id, since Slurm reuses ids after the highest one."""
    return job.array or job.id, job.user, job.command
