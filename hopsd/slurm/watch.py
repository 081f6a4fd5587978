"""Polls jobs while a plan is applied; the settings of ``apply``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading
from hopsd.slurm.adapter import Adapter, SignalScope

Jobs = Mapping[JobId, JobReading]

# One slow answer is often a hiccup of slurmctld and says little about the next one.
_MAX_REST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """How jobs are asked to leave and how long Slurm may take.

    ``grace_seconds`` is the time from the checkpoint signal to the requeue, unless the script asks
    for another, which is at most ``longest_grace_seconds``. ``stop_timeout_seconds`` is the time
    from the requeue to pending, KillWait and epilog included. One call polls for at most
    ``patience_seconds``; steps that have not finished by then are under way. Each GPU comes with
    ``cpus_per_gpu``; on a CPU node the CPUs share all cores but ``kept_cores``.
    """

    checkpoint_signal: str = "USR1"
    signal_scope: SignalScope = SignalScope.BATCH
    grace_seconds: float = 60.0
    longest_grace_seconds: float = 300.0
    stop_timeout_seconds: float = 60.0
    start_timeout_seconds: float = 30.0
    cpus_per_gpu: int = 1
    kept_cores: int = 1
    poll_seconds: float = 0.1
    patience_seconds: float = inf


class Watch:
    """Polls the hops jobs until a condition holds or time runs out.

    It polls by cheap glances, and reads the jobs in full only when the condition seems to hold:
    nothing is decided by a glance. Between two polls it pauses for ``poll_seconds``, or for as long
    as the previous one took if that is longer, up to 5 s. With thousands of jobs a poll takes
    seconds, in which Slurm should start jobs rather than list them.
    """

    def __init__(
        self,
        adapter: Adapter,
        poll_seconds: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._adapter = adapter
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._rest_until = -inf
        self.reading_seconds = 0.0
        """How long the last full reading of the jobs took."""

    def now(self) -> float:
        """The wall-clock time, for display: the clock may be set at any moment."""
        return self._clock()

    def ticks(self) -> float:
        """Monotonic seconds, for waiting."""
        return self._monotonic()

    def rest_until(self, moment: float, longest_seconds: float) -> None:
        """Sleep until ``moment``, but at most ``longest_seconds``."""
        seconds = min(moment - self._clock(), longest_seconds)
        if seconds > 0:
            self._sleep(seconds)

    def jobs(self) -> Jobs:
        """The hops jobs by id."""
        start = self._monotonic()
        with self._time_reading():
            by_id = {job.id: job for job in self._adapter.jobs()}
        self.reading_seconds = self._monotonic() - start
        return by_id

    def until(self, jobs: Collection[JobId], holds: Callable[[Jobs], bool], seconds: float) -> Jobs:
        """Poll until ``holds`` is true for ``jobs`` or ``seconds`` have passed; returns all hops
        jobs, read after that.

        ``holds`` may use only what :meth:`Adapter.glance` reports, and only for ``jobs``.
        """
        deadline = self._monotonic() + seconds
        self._pause(deadline)
        while True:
            is_last = self._monotonic() >= deadline
            if is_last or holds(self.glance(jobs)):
                by_id = self.jobs()
                if holds(by_id) or is_last:
                    return by_id
            self._sleep(self._poll_seconds)
            self._pause(deadline)

    def glance(self, jobs: Collection[JobId]) -> Jobs:
        """Poll ``jobs`` by :meth:`Adapter.glance`."""
        with self._time_reading():
            return self._adapter.glance(jobs)

    @contextmanager
    def _time_reading(self) -> Iterator[None]:
        start = self._monotonic()
        yield
        end = self._monotonic()
        self._rest_until = end + min(end - start, _MAX_REST_SECONDS)

    def _pause(self, deadline: float) -> None:
        seconds = min(self._rest_until, deadline) - self._monotonic()
        if seconds > 0:
            self._sleep(seconds)


@contextmanager
def refusals(errors: dict[JobId, str], job: JobId) -> Iterator[None]:
    """Record Slurm's refusal for ``job`` and continue; if Slurm is unavailable, the apply ends."""
    try:
        yield
    except SlurmUnavailableError:
        raise
    except SlurmError as error:
        errors[job] = str(error)
