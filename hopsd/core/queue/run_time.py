"""How long a job runs whose user did not say, or said too little: as its own loops show, or from
past runs.

Past runs give a distribution. The nearest kind of past runs that there are enough of decides: the
same workload, jobs of the same name, all jobs (of the same user), else of the same account. What is
expected of a running job is the mean of the distribution above what it has done (as in 3Sigma,
EuroSys'18), so a job that outlives the short runs of its past is soon expected to be one of the
long ones.
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
"""Standard deviation of ln(run time) assumed of one kind of run before there is a second one, and
the most that a run is smoothed by: half of a lognormal's mass is within a factor of 1.4."""

POINTS = 9
"""Points that stand for one smoothed run, each with the same weight."""

UNSEEN = 0.02
"""Weight, in runs, of one twice as long as expected. It counts once few runs seen are as long."""

LEAST_LEFT = 0.01
"""A job is expected to run on for at least this share of what it has run."""

AS_LONG_AGAIN = 2.0
"""Expected total over what was done where no past run was as long: that of a Pareto tail of index
2, the usual finding for run times. Its 10 and 90 % quantiles are :data:`_TAIL`."""

_TAIL = (0.9**-0.5, 0.1**-0.5)

SHORT_AGAIN_MOST = 5.0
"""The most that k counts in :func:`by_declared`. With 1, jobs that declare a thousandth end 1.2
times sooner than with the truth, with 3 at the same time, with 5 a tenth later, with 10 up to three
times later (Sia's traces, docs/lies.md).
"""

OWN_NAMED, OWN, OTHERS, OTHER_USERS = 2, 4, 8, 3
"""Runs needed of jobs of the same name, of the same user, of the account; of how many users."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Amounts of work of past runs, smoothed: ``points`` ascending, with the weight and the
    weighted sum of all from each on.
    """

    points: Sequence[float]
    weight: Sequence[float]
    mass: Sequence[float]

    @staticmethod
    def of(amounts: Sequence[float], weights: Sequence[float] | None = None) -> Distribution:
        """From at least one run; ``amounts`` above 0. ``weights``: 1 each by default.

        Each run is a lognormal kernel around its amount, so its mean is the amount. Its width is
        Silverman's, from the runs' own spread and one run's worth of :data:`SPREAD`.
        """
        weights = weights or [1.0] * len(amounts)
        logs = [log(amount) for amount in amounts]
        count = len(logs)
        mean = fsum(logs) / count
        deviation = sqrt((SPREAD**2 + fsum((each - mean) ** 2 for each in logs)) / count)
        width = min(deviation, SPREAD) * count**-0.2
        factors = [exp(width * z) for z in _Z]
        scale = POINTS / fsum(factors)
        spread = sorted(
            (amount * factor * scale, weight / POINTS)
            for amount, weight in zip(amounts, weights, strict=True)
            for factor in factors
        )
        descending = spread[::-1]
        weight = [*accumulate(w for _, w in descending)][::-1]
        mass = [*accumulate(w * point for point, w in descending)][::-1]
        return Distribution([point for point, _ in spread], weight, mass)

    def total(self, done: float) -> float:
        """The expected amount of a run that has ``done`` so much: at least that."""
        first = bisect_right(self.points, done)
        if first == len(self.points):
            return AS_LONG_AGAIN * done
        weight = self.weight[first]
        mean = max(done, self.mass[first] / weight)
        return mean * (weight + UNSEEN * AS_LONG_AGAIN) / (weight + UNSEEN)

    def between(self, done: float) -> tuple[float, float]:
        """The 80 % interval of the amount of a run that has ``done`` so much."""
        first = bisect_right(self.points, done)
        if first == len(self.points):
            return _TAIL[0] * done, _TAIL[1] * done
        return self._quantile(first, 0.1), self._quantile(first, 0.9)

    def _quantile(self, first: int, share: float) -> float:
        """Of the points from ``first`` on."""
        above = (1.0 - share) * self.weight[first]
        at = bisect_right(self.weight, -above, lo=first, key=lambda weight: -weight)
        return self.points[max(first, min(at, len(self.points)) - 1)]


_Z = tuple(NormalDist().inv_cdf((k + 0.5) / POINTS) for k in range(POINTS))


@dataclass(frozen=True, slots=True)
class Asked:
    """The job whose run time is asked for, and what it has done so far.

    ``mean_gpus``: R_avg of eq. 9. ``most_seconds``: left until its time limit, None: it has none.
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
    """A job's expected run time, in seconds with its mean requirement (eq. 9) or in samples: one
    of ``seconds`` and ``samples`` is None. ``low`` and ``high``: the ends of the 80 % interval,
    relative to it. ``source``: in words.
    """

    seconds: float | None
    samples: float | None
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """Comparable runs. ``alike``: they may be compared by samples and GPU time."""

    runs: Sequence[PastRun]
    source: str
    alike: bool


_Unit = Callable[[PastRun], float]


def by_loops(planned: float, done: float) -> Expectation:
    """Of a training whose loops will end after ``planned`` samples, ``done`` of them done.

    A loop says when it ends at the latest; how often one ends before is not known.
    """
    total = max(planned, (1.0 + LEAST_LEFT) * done)
    return Expectation(None, total, 1.0, 1.0, "from its training loop")


def by_declared(declared: float, done: float) -> float:
    """Samples expected in all of a job that ``declared`` some: those, until it has done more.

    If they were k times too few, k times what was ``done`` is expected to be left, so a job that
    declares too few is ranked as a long one, not as one that is about to end.
    """
    if done <= declared:
        return declared
    return done * (1.0 + min(done / declared, SHORT_AGAIN_MOST))


class RunTimes:
    """Past runs by what they have in common with a job."""

    def __init__(self, runs: Iterable[PastRun]) -> None:
        self._kinds: dict[tuple[str, ...], list[PastRun]] = defaultdict(list)
        self._made: dict[tuple[tuple[str, ...], str], Distribution] = {}
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

    def expect(self, job: Asked) -> Expectation | None:
        """None where too few runs are known."""
        found = self._nearest(job)
        if found is None:
            return None
        key, kind = found
        counted = kind.alike and all(run.samples > 0.0 for run in kind.runs)
        if key[0] == "workload" and counted and (job.samples > 0.0 or job.run_seconds <= 0.0):
            made = self._distribution(key, "samples", kind, lambda run: run.samples)
            return _in_samples(made, job.samples, kind.source)
        if kind.alike and all(run.gpu_seconds > 0.0 for run in kind.runs):
            made = self._distribution(key, "gpu_seconds", kind, lambda run: run.gpu_seconds)
            return _in_seconds(made, job.gpu_seconds, job, 1.0 / job.mean_gpus, kind.source)
        made = self._distribution(key, "seconds", kind, lambda run: run.seconds)
        return _in_seconds(made, job.run_seconds, job, 1.0, kind.source)

    def _nearest(self, job: Asked) -> tuple[tuple[str, ...], _Kind] | None:
        by = f"by {job.user}"
        for key, least, what in (
            (("workload", job.user, job.workload), 1, f"of this workload {by}"),
            (("name", job.user, job.name), OWN_NAMED, f"of jobs named {job.name} {by}"),
            (("user", job.user), OWN, by),
        ):
            runs = self._kinds.get(key, ())
            if len(runs) >= least:
                return key, _Kind(
                    runs, f"from {count_of(len(runs), 'runs')} {what}", key[0] != "user"
                )
        runs = self._kinds.get(("account", job.account), ()) if job.account else ()
        users = len({run.user for run in runs})
        if len(runs) < OTHERS or users < OTHER_USERS:
            return None
        source = f"from {len(runs)} runs by {users} users of account {job.account}"
        return ("account", job.account), _Kind(runs, source, alike=False)

    def _distribution(
        self, key: tuple[str, ...], unit: str, kind: _Kind, amount: _Unit
    ) -> Distribution:
        if (key, unit) not in self._made:
            amounts = [amount(run) for run in kind.runs]
            weights = _one_each_user(kind.runs) if key[0] == "account" else None
            self._made[key, unit] = Distribution.of(amounts, weights)
        return self._made[key, unit]


def _one_each_user(runs: Sequence[PastRun]) -> list[float]:
    """Weights by which every user counts alike, however many jobs he submits."""
    of_user: dict[UserName, int] = defaultdict(int)
    for run in runs:
        of_user[run.user] += 1
    return [1.0 / of_user[run.user] for run in runs]


def _in_seconds(
    made: Distribution, done: float, job: Asked, scale: float, source: str
) -> Expectation:
    """``scale``: seconds of run time for a unit of what ``made`` counts."""
    total = made.total(done)
    most = job.most_seconds if job.most_seconds is not None else float("inf")
    least = LEAST_LEFT * job.run_seconds
    seconds = job.run_seconds + max(min((total - done) * scale, most), least)
    low, high = (
        (job.run_seconds + max(min((end - done) * scale, most), least)) / seconds
        for end in made.between(done)
    )
    return Expectation(seconds, None, low, high, source)


def _in_samples(made: Distribution, done: float, source: str) -> Expectation:
    total = max(made.total(done), (1.0 + LEAST_LEFT) * done)
    low, high = (end / total for end in made.between(done))
    return Expectation(None, total, low, high, source)
