"""How far off past runs were about jobs' work, relative to the spread that they told.

Where a workload's runs are all alike, few of them tell less than they could; where users change
what they train, more. The ratio is learnt from each job once: of the work left when past runs first
told it of the running job. It is robust, by the median (Hampel, JASA 1974): a run that was broken
off says nothing of the others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import hypot, log
from statistics import NormalDist, median

from hopsd.model.ids import JobId
from hopsd.predict.situation import RunTimeSource, Situation

COMMON_ERROR = 0.2
"""Standard deviation of the error of ln(work) common to all jobs."""

PRIOR_JOBS = 5
"""What the spread as told counts before any job has ended, in jobs."""

MAX_JOBS = 500
"""Newest jobs that count."""

_NORMAL = NormalDist()
_USUAL = tuple(_NORMAL.inv_cdf(0.5 + 0.5 * (k + 0.5) / PRIOR_JOBS) for k in range(PRIOR_JOBS))
"""Evenly spread over what a standard normal distribution is off by, without the sign."""


@dataclass(slots=True)
class _Run:
    """Of a running job: ``expected`` work and the ``spread`` of its logarithm as first told, work
    ``done`` since, until ``at``, and work per second from then on.
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
    """Errors of ended jobs in standard deviations as told."""

    _errors: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_JOBS))
    _runs: dict[JobId, _Run] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """By how much the spread that past runs tell is to be multiplied."""
        return median((*_USUAL, *self._errors)) / _NORMAL.inv_cdf(0.75)

    def watch(self, situation: Situation) -> None:
        """Note what running jobs are expected to need, and go on with them."""
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
        """The job has done all of its work."""
        if (run := self._runs.pop(job, None)) is not None:
            run.go_on(time)
            if run.done > 0.0:
                self._errors.append(abs(log(run.done / run.expected)) / run.spread)

    def forget(self, job: JobId) -> None:
        """The job was cancelled."""
        self._runs.pop(job, None)
