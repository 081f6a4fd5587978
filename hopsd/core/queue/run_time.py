"""Expected run time of a job whose user declared none, or one that is too short.

It comes from the job's training loops, or from a distribution of past runs: those of the most
similar kind with enough runs, which are the user's jobs of the same workload, of the same name, all
of the user's jobs, or jobs of the same account. The expectation of a running job is the mean of the
distribution above what the job has done (as in 3Sigma, EuroSys'18), so a job that outlives the
short runs is soon expected to be a long one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, fsum, isfinite, log, sqrt
from statistics import NormalDist

from hopsd.model.ids import UserName, WorkloadName
from hopsd.model.knowledge import PastRun
from hopsd.model.reason import count_of

SPREAD = 0.5
"""Assumed standard deviation of ln(run time) while a kind has a single run, and the maximum
smoothing of a run: half of a lognormal's mass is within a factor of 1.4."""

POINTS = 9
"""Number of points that represent one smoothed run, each with the same weight."""

LONGER_RUN_WEIGHT = 0.02
"""Weight, in runs, of an additional run twice as long as expected. It matters if few past runs were
as long."""

MIN_REMAINING = 0.01
"""A job is expected to continue for at least this share of what it has run."""

LAST_STEP = 0.01
"""Share by which a job's last step may exceed its samples: the step may be short, but reports count
steps of the usual size. 14,000 samples in steps of 96 are 146 steps, or 14,016.
"""

TAIL_MEAN_FACTOR = 2.0
"""Expected total relative to the amount done if no past run was as long: that of a Pareto tail of
index 2, as commonly found for run times. Its 10 and 90 % quantiles are :data:`_TAIL`."""

_TAIL = (0.9**-0.5, 0.1**-0.5)

MAX_UNDERSTATEMENT = 5.0
"""Cap on k in :func:`by_declared`. Compared with the truth, jobs that declare a thousandth of their
samples end 1.2 times sooner with a cap of 1, at the same time with 3, a tenth later with 5, and up
to three times later with 10 (Sia's traces, bench/results/lies.md).
"""

MIN_SAME_NAME, MIN_SAME_USER, MIN_SAME_ACCOUNT, MIN_ACCOUNT_USERS = 2, 4, 8, 3
"""Minimum number of runs of the same name, user and account, and of users in the account."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The smoothed distribution of the amounts of work of past runs.

    ``points`` are ascending; ``weight`` and ``mass`` are, for each point, the total weight and the
    weighted sum of all points from that one on.
    """

    points: Sequence[float]
    weight: Sequence[float]
    mass: Sequence[float]

    @staticmethod
    def from_amounts(
        amounts: Sequence[float], weights: Sequence[float] | None = None
    ) -> Distribution:
        """Build from the ``amounts`` (above 0) of at least one run; ``weights`` are 1 by default.

        Each run becomes a lognormal kernel whose mean is the amount of the run. Its width follows
        Silverman's rule, from the spread of the runs and one run's worth of :data:`SPREAD`.
        """
        weights = weights or [1.0] * len(amounts)
        logs = [log(amount) for amount in amounts]
        count = len(logs)
        mean = fsum(logs) / count
        deviation = sqrt((SPREAD**2 + fsum((value - mean) ** 2 for value in logs)) / count)
        width = min(deviation, SPREAD) * count**-0.2
        factors = [exp(width * z) for z in _Z]
        scale = POINTS / fsum(factors)
        kernel_points = sorted(
            (amount * factor * scale, weight / POINTS)
            for amount, weight in zip(amounts, weights, strict=True)
            for factor in factors
        )
        descending_points = kernel_points[::-1]
        weight = [*accumulate(w for _, w in descending_points)][::-1]
        mass = [*accumulate(w * point for point, w in descending_points)][::-1]
        return Distribution([point for point, _ in kernel_points], weight, mass)

    def total(self, amount: float) -> float:
        """Return the expected final amount of a run that has done ``amount``; never less."""
        first = bisect_right(self.points, amount)
        if first == len(self.points):
            return TAIL_MEAN_FACTOR * amount
        weight = self.weight[first]
        mean = max(amount, self.mass[first] / weight)
        return mean * (weight + LONGER_RUN_WEIGHT * TAIL_MEAN_FACTOR) / (weight + LONGER_RUN_WEIGHT)

    def interval(self, amount: float) -> tuple[float, float]:
        """Return the 80 % interval of the final amount of a run that has done ``amount``."""
        first = bisect_right(self.points, amount)
        if first == len(self.points):
            return _TAIL[0] * amount, _TAIL[1] * amount
        return self._quantile(first, 0.1), self._quantile(first, 0.9)

    def _quantile(self, first: int, share: float) -> float:
        """Return a quantile of the points from ``first`` on."""
        weight_above = (1.0 - share) * self.weight[first]
        index = bisect_right(self.weight, -weight_above, lo=first, key=lambda weight: -weight)
        return self.points[max(first, min(index, len(self.points)) - 1)]


_Z = tuple(NormalDist().inv_cdf((k + 0.5) / POINTS) for k in range(POINTS))


@dataclass(frozen=True, slots=True)
class RunTimeQuery:
    """A job to predict, and what it has done so far.

    ``mean_gpus``: R_avg of eq. 9. ``most_seconds``: the time until its limit, None if unlimited.
    """

    user: UserName
    account: str
    name: str
    workload: WorkloadName
    mean_gpus: float
    run_seconds: float = 0.0
    gpu_seconds: float = 0.0
    samples: float = 0.0
    most_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """A job's expected run time, in seconds with its mean requirement (eq. 9) or in samples.

    Either ``seconds`` or ``samples`` is None. ``low`` and ``high``: the ends of the 80 % interval,
    relative to the expectation. ``source``: where it comes from, in words.
    """

    seconds: float | None
    samples: float | None
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """Similar runs. ``comparable``: whether their samples and GPU time can be compared, too."""

    runs: Sequence[PastRun]
    source: str
    comparable: bool


_Unit = Callable[[PastRun], float]


def by_loops(total_samples: float, samples_done: float) -> Expectation:
    """Return the expectation for a job whose training loops end after ``total_samples``.

    A loop shows when it ends at the latest; how often loops end earlier is unknown.
    """
    total = max(total_samples, (1.0 + MIN_REMAINING) * samples_done)
    return Expectation(None, total, 1.0, 1.0, "from its training loop")


def by_declared(declared_samples: float, samples_done: float) -> float:
    """Return the expected total samples of a job: ``declared_samples``, until it has done more.

    A little more, up to :data:`LAST_STEP`, is no sign of a longer job: the last step counts in
    full. Once the job has done k times the declared number, hops expects k times ``samples_done``
    to remain, so a job that declares too few samples ranks as a long one, not as one about to end.
    """
    if samples_done <= (1.0 + LAST_STEP) * declared_samples:
        return max(declared_samples, samples_done)
    return samples_done * (1.0 + min(samples_done / declared_samples, MAX_UNDERSTATEMENT))


class RunTimes:
    """Past runs, indexed by what a job can have in common with them."""

    def __init__(self, runs: Iterable[PastRun]) -> None:
        self._kinds: dict[tuple[str, ...], list[PastRun]] = defaultdict(list)
        self._distributions: dict[tuple[tuple[str, ...], str], Distribution] = {}
        for run in runs:
            if run.seconds <= 0.0 or not isfinite(run.seconds + run.gpu_seconds + run.samples):
                continue
            for key in (
                ("workload", run.user, run.workload),
                ("name", run.user, run.name),
                ("user", run.user),
                ("account", run.account),
            ):
                self._kinds[key].append(run)

    def expect(self, job: RunTimeQuery) -> Expectation | None:
        """Return the expectation from the most similar past runs; None if there are too few."""
        nearest = self._nearest(job)
        if nearest is None:
            return None
        key, kind = nearest
        has_samples = kind.comparable and all(run.samples > 0.0 for run in kind.runs)
        if key[0] == "workload" and has_samples and (job.samples > 0.0 or job.run_seconds <= 0.0):
            distribution = self._distribution(key, "samples", kind, lambda run: run.samples)
            return _in_samples(distribution, job.samples, kind.source)
        if kind.comparable and all(run.gpu_seconds > 0.0 for run in kind.runs):
            distribution = self._distribution(key, "gpu_seconds", kind, lambda run: run.gpu_seconds)
            return _in_seconds(distribution, job.gpu_seconds, job, 1.0 / job.mean_gpus, kind.source)
        distribution = self._distribution(key, "seconds", kind, lambda run: run.seconds)
        return _in_seconds(distribution, job.run_seconds, job, 1.0, kind.source)

    def _nearest(self, job: RunTimeQuery) -> tuple[tuple[str, ...], _Kind] | None:
        by_user = f"by {job.user}"
        for key, minimum, description in (
            (("workload", job.user, job.workload), 1, f"of this workload {by_user}"),
            (("name", job.user, job.name), MIN_SAME_NAME, f"of jobs named {job.name} {by_user}"),
            (("user", job.user), MIN_SAME_USER, by_user),
        ):
            runs = self._kinds.get(key, ())
            if len(runs) >= minimum:
                return key, _Kind(
                    runs, f"from {count_of(len(runs), 'runs')} {description}", key[0] != "user"
                )
        runs = self._kinds.get(("account", job.account), ()) if job.account else ()
        users = len({run.user for run in runs})
        if len(runs) < MIN_SAME_ACCOUNT or users < MIN_ACCOUNT_USERS:
            return None
        source = f"from {len(runs)} runs by {users} users of account {job.account}"
        return ("account", job.account), _Kind(runs, source, comparable=False)

    def _distribution(
        self, key: tuple[str, ...], unit: str, kind: _Kind, amount: _Unit
    ) -> Distribution:
        if (key, unit) not in self._distributions:
            amounts = [amount(run) for run in kind.runs]
            weights = _equal_user_weights(kind.runs) if key[0] == "account" else None
            self._distributions[key, unit] = Distribution.from_amounts(amounts, weights)
        return self._distributions[key, unit]


def _equal_user_weights(runs: Sequence[PastRun]) -> list[float]:
    """Return weights that give every user the same total, however many jobs they submit."""
    runs_by_user: dict[UserName, int] = defaultdict(int)
    for run in runs:
        runs_by_user[run.user] += 1
    return [1.0 / runs_by_user[run.user] for run in runs]


def _in_seconds(
    distribution: Distribution, amount: float, job: RunTimeQuery, scale: float, source: str
) -> Expectation:
    """Return the expectation in seconds; ``scale``: seconds of run time per unit of the amounts."""
    total = distribution.total(amount)
    maximum = job.most_seconds if job.most_seconds is not None else float("inf")
    minimum = MIN_REMAINING * job.run_seconds
    seconds = job.run_seconds + max(min((total - amount) * scale, maximum), minimum)
    low, high = (
        (job.run_seconds + max(min((end - amount) * scale, maximum), minimum)) / seconds
        for end in distribution.interval(amount)
    )
    return Expectation(seconds, None, low, high, source)


def _in_samples(distribution: Distribution, amount: float, source: str) -> Expectation:
    total = max(distribution.total(amount), (1.0 + MIN_REMAINING) * amount)
    low, high = (end / total for end in distribution.interval(amount))
    return Expectation(None, total, low, high, source)
