"""Learns how wrong past runs were about jobs' work, relative to the spread that they predicted.

If all runs of a workload are alike, the spread estimated from a few of them is too large; if users
change what they train, it is too small. The ratio is learnt once per job, from the work remaining
when past runs first predicted it for the running job. The median makes it robust (Hampel, JASA
1974): an aborted run has no influence on the others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import hypot, isfinite, log
from statistics import NormalDist, median

from hopsd.model.ids import JobId
from hopsd.predict.situation import RunTimeSource, Situation

COMMON_ERROR = 0.2
"""Standard deviation of the error of ln(work) common to all jobs."""

PRIOR_JOBS = 5
"""Weight of the predicted spread before any job has ended, in jobs."""

MAX_JOBS = 500
"""Number of newest jobs that count."""

_NORMAL = NormalDist()
_USUAL = tuple(_NORMAL.inv_cdf(0.5 + 0.5 * (k + 0.5) / PRIOR_JOBS) for k in range(PRIOR_JOBS))
"""Absolute deviations at evenly spaced quantiles of a standard normal distribution."""


@dataclass(slots=True)
class _Run:
    """A running job: ``expected`` work and the ``spread`` of its logarithm when first predicted,
    work ``done`` from then until ``at``, and the ``rate`` of work per second since ``at``.
    """

    expected: float
    spread: float
    done: float
    at: float
    rate: float = 0.0

    def go_on(self, time: float) -> None:
        self.done += self.rate * (time - self.at)
        self.at = time


@dataclass(slots=True)
class PastRunErrors:
    """Errors of ended jobs, in predicted standard deviations."""

    _errors: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_JOBS))
    _runs: dict[JobId, _Run] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Factor by which the spread predicted from past runs has to be multiplied."""
        return median((*_USUAL, *self._errors)) / _NORMAL.inv_cdf(0.75)

    def watch(self, situation: Situation) -> None:
        """Note the expected work of newly running jobs, and update the others."""
        for index, job in enumerate(situation.ids):
            run, runs = self._runs.get(job), situation.gpus_held[index] > 0.0
            if run is None:
                is_told = situation.sources[index] is RunTimeSource.PAST_RUNS
                if not runs or not is_told or situation.spread[index] <= 0.0:
                    continue
                run = _Run(
                    float(situation.remaining_work[index]),
                    hypot(situation.spread[index], COMMON_ERROR),
                    0.0,
                    situation.now,
                )
                self._runs[job] = run
            run.go_on(situation.now)
            run.rate = float(situation.rate[index]) if runs else 0.0

    def end(self, job: JobId, time: float) -> None:
        """Note that the job has done all of its work."""
        if (run := self._runs.pop(job, None)) is not None:
            run.go_on(time)
            if run.done > 0.0:
                self._errors.append(abs(log(run.done / run.expected)) / run.spread)

    def forget(self, job: JobId) -> None:
        """Drop a cancelled job."""
        self._runs.pop(job, None)

    def as_list(self) -> list[float]:
        """The errors that survive a restart, as JSON; running jobs are watched anew."""
        return [round(error, 4) for error in self._errors]

    def restore(self, state: object) -> None:
        """Restore from :meth:`as_list`; anything that is not an error is skipped."""
        if isinstance(state, list):
            self._errors.extend(
                error
                for error in state
                if isinstance(error, float | int) and isfinite(error) and error >= 0.0
            )
