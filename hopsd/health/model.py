"""Estimate how slow each node is by a mixed model of all measurements at once.

    value = cell + type's common course + slowness of the slowest node + run + noise

Cells have free levels. A node's slowness is constant within an *epoch* and, for most nodes, close
to their type's usual: it is Student's t with an estimated spread, so that a few slow nodes do not
move the others. Other differences between runs of a workload have a variance for each kind of
measurement, which is estimated, too; single runs unlike all others count less (again Student's t).
A node is judged without any assumption about itself (`Fit.judge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse import csr_array
from scipy.special import stdtr

from hopsd.health.measurements import ALONE, KINDS, MIN_RATIO, Units
from hopsd.health.robust import (
    FIRM_CLIP,
    Floats,
    Ints,
    distinct_counts,
    extra_variance,
    extra_variances,
    group,
    group_means,
    group_medians,
    group_quantiles,
    moderate,
)

USUAL_RUN_DEVIATION = 0.003
USUAL_SPREAD = 0.003
USUAL_WEIGHT = 4.0
"""Before anything is measured, runs and healthy nodes are assumed to differ by 0.3 %. USUAL_WEIGHT
is the weight of that assumption, in degrees of freedom."""

MIN_DEVIATION = 0.001
"""The least standard deviation between runs, and between nodes."""

MAX_SPREAD = 0.01
"""If nodes differ by more than this standard deviation, they are not all healthy."""

FREEDOM_RUN, FREEDOM_NODE = 5.0, 3.0
"""Degrees of freedom of Student's t for single runs and for nodes."""

COURSE_NODES = 3
"""A common course needs at least this many nodes; times with two still add to a smooth course."""

COURSE_TIMES = 1000
"""A smooth course is estimated from this many newest times: memory takes their number's square."""

COURSE_DEVIATIONS = (0.002, 0.006, 0.02)
"""Candidates for how much all nodes vary together, as standard deviations."""

COURSE_CLIP = 1.5
"""Standard deviations at which a node's hour is clipped when a common course is estimated."""

NOISY = 0.25
"""A run whose noise (standard deviation) is this part of a slowness or more says nothing of it."""

ROUNDS = 8
"""How many rounds of reweighting there are."""

VAGUE, MAX_ERROR = 1e-4, 0.1
"""The precision that stands for knowing nothing about a node, and the largest standard error at
which its slowness counts as known."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A node's slowness (natural logarithm) in its last epoch, and its standard deviation.

    ``spread`` is the variance of healthy nodes; ``freedom`` the degrees of freedom of the sum of
    that and the slowness's variance. ``records`` is how many records the estimate rests on.
    ``deviations`` are those of the node's runs from their workloads' usual speed, ascending.
    ``has_controls`` says that one of these runs was measured before the epoch, too. ``kind`` is how
    the first measurement was made.
    """

    slowness: float
    error: float
    spread: float
    freedom: float
    records: int
    deviations: Floats
    has_controls: bool
    kind: int

    @property
    def single(self) -> bool:
        """Whether a single run is all that is known, so that the run itself may be slow."""
        return len(self.deviations) == 1 and not self.has_controls

    @property
    def probability(self) -> float:
        """The probability that a healthy node would seem as slow (Student's t)."""
        deviation = float(np.hypot(self.error, np.sqrt(self.spread)))
        return float(stdtr(self.freedom, -self.slowness / deviation))


@dataclass(frozen=True, slots=True)
class Rows:
    """Which unit measures which node, as a share of a full measurement; columns."""

    unit: Ints
    node: Ints
    share: Floats


@dataclass(slots=True)
class Summaries:
    """Units joined by run, cell and epoch; columns of length n.

    ``variance`` is that of the noise, ``freedom`` its degrees of freedom. ``share`` is each one's
    part of a full measurement: a job at normal speed on four nodes is a quarter for each node.
    ``course`` is the standard deviation of the error in the common course, by cause (n, causes).
    ``records`` is how many records were joined, ``repeats`` how many summaries of the same run and
    epoch deviate together. ``effect`` numbers the runs whose node changed meanwhile, and is -1 for
    other runs.
    """

    value: Floats
    variance: Floats
    freedom: Floats
    share: Floats
    cell: Ints
    kind: Ints
    program: Ints
    run: Ints
    epoch: Ints
    epochs: int
    programs: int
    course: csr_array
    records: Ints
    repeats: Floats
    effect: Ints

    def __len__(self) -> int:
        return len(self.value)

    def program_of_effect(self) -> Ints:
        """The program of each split run (effects,)."""
        split = self.effect >= 0
        programs = np.zeros(int(self.effect.max(initial=-1)) + 1, np.int64)
        programs[self.effect[split]] = self.program[split]
        return programs

    def design(self) -> csr_array:
        """Which epoch's slowness and which split run's deviation each summary has (n, both)."""
        rows = np.arange(len(self))
        split = self.effect >= 0
        columns = np.concatenate([self.epoch, self.epochs + self.effect[split]])
        entries = np.ones(len(columns))
        shape = len(self), self.epochs + int(self.effect.max(initial=-1)) + 1
        return csr_array((entries, (np.concatenate([rows, rows[split]]), columns)), shape=shape)


@dataclass(slots=True)
class Fit:
    """The fitted model.

    ``cells`` are the cells' levels. ``slowness`` (epochs,) was estimated with the prior
    ``precision`` (epochs,) of each epoch; ``covariance`` is that of the slowness and of split runs'
    deviations. ``design``, ``weight`` and ``strangeness`` (`_strangeness`) belong to the
    ``summaries``. ``spread`` is the variance of healthy nodes' slowness, with ``spread_freedom``
    degrees of freedom. ``usual_run_variance`` is by kind (KINDS,); ``run_variance`` and its degrees
    of ``freedom`` are by program (programs,): runs of some differ more than those of others.
    """

    cells: Floats
    slowness: Floats
    precision: Floats
    covariance: Floats
    summaries: Summaries
    design: csr_array
    weight: Floats
    strangeness: Floats
    usual_run_variance: Floats
    run_variance: Floats
    freedom: Floats
    spread: float
    spread_freedom: float

    def judge(self, epochs: Sequence[int]) -> Estimate | None:
        """Estimate a node's slowness in the last of its ``epochs``; None if nothing compares to it.

        The prior of that epoch is removed, so that only comparisons with other measurements count.
        A node's earlier epochs may serve as its own control, but not as the only one.
        """
        indices = list(epochs)
        if self._last_free(indices, range(len(indices)))[1] > MAX_ERROR**2:
            return None
        mean, variance = self._last_free(indices, [len(indices) - 1])
        rows = self.summaries.epoch == indices[-1]
        gain = self._gain(indices[-1])
        variance += float(((self.summaries.course.T @ gain) ** 2).sum())
        level = self.cells[self.summaries.cell[rows]]
        estimate = Estimate(
            slowness=mean,
            error=float(np.sqrt(variance)),
            spread=self.spread,
            freedom=self._freedom(indices[-1], gain, self.spread, self.spread_freedom),
            records=int(self.summaries.records[rows].sum()),
            deviations=by_run(self.summaries.value[rows] - level, self.summaries.run[rows]),
            has_controls=bool((self.summaries.effect[rows] >= 0).any()),
            kind=int(self.summaries.kind[rows][0]) if rows.any() else ALONE,
        )
        if estimate.single or self.spread <= MAX_SPREAD**2:
            return estimate
        # MAX_SPREAD is a bound, not an estimate: its degrees of freedom are infinite.
        freedom = self._freedom(indices[-1], gain, MAX_SPREAD**2, np.inf)
        return replace(estimate, spread=MAX_SPREAD**2, freedom=freedom)

    def _gain(self, epoch: int) -> Floats:
        """How much each summary moves the slowness of ``epoch``, without its prior (n,)."""
        cell, own = self.summaries.cell, self.covariance[epoch]
        own = own / (1.0 - (self.precision[epoch] - VAGUE) * own[epoch])
        moved = self.design @ own
        level = group_means(moved, self.weight, cell, len(self.cells))
        gain: Floats = self.weight * (moved - level[cell])
        return gain

    def _freedom(self, epoch: int, gain: Floats, spread: float, spread_freedom: float) -> float:
        """Degrees of freedom of the sum of an epoch's variance of slowness and the ``spread`` of
        healthy nodes (Satterthwaite, 1946).

        ``gain`` is that of `_gain`, and gives the parts of noise, runs and nodes in the variance.
        """
        summaries = self.summaries
        between_runs = self.run_variance[summaries.program] * summaries.repeats
        between_runs = np.where(summaries.effect >= 0, 0.0, between_runs)
        part = gain**2 / (self.weight * (summaries.variance + between_runs))
        noise = part * summaries.variance
        runs = np.bincount(summaries.program, part * between_runs, summaries.programs)
        moved = self.design.T @ gain
        effects = moved[summaries.epochs :]
        program_of_effect = summaries.program_of_effect()
        effect_variance = self.run_variance[program_of_effect] * effects**2
        runs += np.bincount(program_of_effect, effect_variance, summaries.programs)
        nodes = np.delete(moved[: summaries.epochs] ** 2 / self.precision, epoch)
        spread += float(nodes.sum())
        total = float(noise.sum() + runs.sum()) + spread
        # All parts of the noise rest on one estimate per workload, so their errors add up.
        error2 = float((noise / np.sqrt(summaries.freedom)).sum()) ** 2
        error2 += float((runs**2 / self.freedom).sum()) + spread**2 / spread_freedom
        return total**2 / error2

    def seems_slow(self, errors: float) -> NDArray[np.bool_]:
        """Whether each epoch's slowness exceeds so many standard ``errors`` (epochs,).

        Judged without the epoch's prior, with which a node with a single run always seems healthy.
        """
        epochs = self.summaries.epochs
        inner = self.covariance[:epochs, :epochs]
        slowness, information = _without_own_prior(self.slowness, inner, self.precision)
        return (information > MAX_ERROR**-2) & (slowness * np.sqrt(information) > errors)

    def changes(self, epochs: Sequence[int]) -> Floats:
        """How clearly, in standard errors, each of ``epochs`` after the first differs from the one
        before it: the larger of the values without any prior, and without only the later epoch's
        prior, which must not look as if a slow node recovered.
        """
        indices = list(epochs)
        clear = np.zeros(len(indices) - 1)
        for index in range(len(clear)):
            for free in (range(len(indices)), [index + 1]):
                mean, covariance = self._free_epochs(indices, free)
                pair = covariance[index : index + 2, index : index + 2]
                variance = pair[0, 0] + pair[1, 1] - 2.0 * pair[0, 1]
                change = abs(mean[index + 1] - mean[index]) / np.sqrt(max(variance, 1e-12))
                clear[index] = max(clear[index], change)
        return clear

    def _last_free(self, epochs: Sequence[int], free: Sequence[int]) -> tuple[float, float]:
        """The last epoch's slowness and variance, without priors on ``epochs[i]``, i in free."""
        mean, covariance = self._free_epochs(epochs, free)
        variance = float(covariance[-1, -1])
        return float(mean[-1]), variance if variance > 0.0 else np.inf

    def _free_epochs(self, epochs: Sequence[int], free: Sequence[int]) -> tuple[Floats, Floats]:
        indices = list(epochs)
        inner = np.linalg.inv(self.covariance[np.ix_(indices, indices)])
        assumed_precision = np.zeros(len(indices))
        assumed_precision[list(free)] = self.precision[indices][list(free)] - VAGUE
        covariance = np.linalg.inv((inner + inner.T) / 2.0 - np.diag(assumed_precision)).astype(
            np.float64
        )
        return covariance @ (inner @ self.slowness[indices]), covariance

    def strange_runs(self, slowness: float, kind: int) -> float:
        """The share of a kind's runs that were slower by ``slowness`` than others on their node,
        among runs with too little noise to be that slow by chance.
        """
        alone = (self.summaries.share == 1.0) & (self.summaries.kind == kind)
        alone &= np.sqrt(self.summaries.variance) < NOISY * slowness
        strange = self.strangeness[alone] > slowness
        return float(strange.mean()) if len(strange) else 0.0


def by_run(values: Floats, runs: Ints) -> Floats:
    """Return the mean of the ``values`` of each run, sorted ascending."""
    number = group(runs)
    count = int(number.max()) + 1 if len(number) else 0
    return np.sort(group_means(values, np.ones(len(values)), number, count))


def initial_cells(units: Units) -> Floats:
    """Return each cell's usual value (cells,): the median over targets.

    For jobs on several nodes it is the lower tercile, since many of them may have met a slow node.
    """
    pair = group(units.cell, units.target)
    count = int(pair.max()) + 1
    means = group_means(units.value, 1.0 / units.variance, pair, count)
    cell, several = np.zeros(count, np.int64), np.zeros(units.cells, bool)
    cell[pair] = units.cell
    several[units.cell] = units.widths > 1
    median = group_medians(means, cell, units.cells)
    return np.nan_to_num(
        np.where(several, group_quantiles(means, cell, units.cells, 1.0 / 3.0), median)
    )


def common_course(
    units: Units,
    rows: Rows,
    residuals: Floats,
    run_variance: Floats,
    groups: Ints,
    width: float,
    scales: Sequence[float] = (),
) -> tuple[Floats, Floats]:
    """Estimate what nodes have in common at the time of each unit (heat, a busy file server, new
    code) and its variance (n,).

    ``groups`` (n,) is the group of units within which nodes are compared, -1 for none.
    ``residuals`` are those of each row. Units within ``width`` seconds share a time; ``scales`` are
    candidate lengths of the course, in widths. Differences between times that may be chance are
    left out.
    """
    course, uncertain = np.zeros(len(units)), np.zeros(len(units))
    compared_units = np.flatnonzero(groups >= 0)
    row = np.flatnonzero(groups[rows.unit] >= 0)
    if not len(row):
        return course, uncertain
    time = np.floor(units.middle / width)
    period = np.full(len(units), -1)
    period[compared_units] = group(groups[compared_units], time[compared_units])
    count = int(period.max()) + 1
    unit, share = rows.unit[row], rows.share[row]
    pair = group(period[unit], rows.node[row])
    pairs = int(pair.max()) + 1
    weights = share / units.variance[unit]
    means = group_means(residuals[row], weights, pair, pairs)
    run_part = group_means(run_variance[units.kind[unit]] / share, weights, pair, pairs)
    variance = 1.0 / np.bincount(pair, weights, pairs) + run_part
    pair_periods = np.zeros(pairs, np.int64)
    pair_periods[pair] = period[unit]
    usual, error2 = _robust_means(means, variance, pair_periods, count)
    # The effective number of nodes: a single node that dominates the mean shows no common course.
    squares = np.maximum(np.bincount(pair_periods, variance**-2.0, count), 1e-300)
    nodes = np.bincount(pair_periods, 1.0 / variance, count) ** 2 / squares
    first = np.zeros(count, np.int64)
    first[period[compared_units]] = compared_units
    group_of, group_count = groups[first], int(groups.max()) + 1
    several = distinct_counts(rows.node[row], groups[unit], group_count)[group_of] >= COURSE_NODES
    value, varies_by = np.zeros(count), np.zeros(count)
    for number in np.unique(group_of[several]) if scales else ():
        members = np.flatnonzero(group_of == number)
        members = members[np.argsort(time[first[members]], kind="stable")][-COURSE_TIMES:]
        value[members], varies_by[members] = _smooth_course(
            usual[members], error2[members], time[first[members]], nodes[members], scales
        )
    # Times with enough nodes may deviate from the smooth course.
    enough = np.flatnonzero(several & (np.rint(nodes) >= COURSE_NODES))
    rest, error = (usual - value)[enough], error2[enough]
    freedom = np.bincount(group_of[enough], minlength=group_count).astype(np.float64)
    extra = extra_variances(rest, error, group_of[enough], freedom)[group_of[enough]]
    own = np.maximum(extra, rest**2 - 4.0 * error)
    value[enough] += rest * own / (own + error)
    varies_by[enough] += own
    # No smaller than a time's own mean allows, since the deviations of runs last, too.
    variance = varies_by * error2 / (varies_by + error2)
    course[compared_units] = value[period[compared_units]]
    uncertain[compared_units] = variance[period[compared_units]]
    return course, uncertain


def _robust_means(
    values: Floats, variances: Floats, groups: Ints, count: int
) -> tuple[Floats, Floats]:
    """Return the mean of each group (count,) and its variance; outliers count less. An empty group
    has the mean 0 and a large variance.
    """
    middle = np.nan_to_num(group_medians(values, groups, count))
    deviation = COURSE_CLIP * np.sqrt(variances)
    for _ in range(3):
        deviations = np.clip(values - middle[groups], -deviation, deviation)
        middle = middle + group_means(deviations, 1.0 / variances, groups, count)
    return middle, 1.0 / np.maximum(np.bincount(groups, 1.0 / variances, count), 1e-300)


def _smooth_course(
    usual: Floats, error2: Floats, times: Floats, nodes: Floats, scales: Sequence[float]
) -> tuple[Floats, Floats]:
    """Fit the likeliest Gaussian process to the means ``usual`` over ``nodes``, with variances
    ``error2``. Returns the smooth course at ``times`` (n,) and its variance (n,), both 0 if no
    process is likelier than none.
    """
    course, varies_by = np.zeros(len(usual)), np.zeros(len(usual))
    has_mean, enough = nodes > 1.0 + 1e-6, np.rint(nodes) >= COURSE_NODES
    mean, error = usual[has_mean], error2[has_mean]
    varies = extra_variance(usual[enough], error2[enough], float(enough.sum()))
    limit = 3.0 * np.sqrt(varies + error)
    clipped_mean = np.clip(mean, -limit, limit)
    likeliest = -0.5 * float((clipped_mean**2 / error + np.log(error)).sum())
    distance = np.abs(times[:, None] - times[has_mean])
    for scale in scales:
        for deviation in COURSE_DEVIATIONS:
            likelihood, fitted_course = _process(
                deviation**2, distance / scale, clipped_mean, error, has_mean
            )
            if likelihood > likeliest:
                likeliest, course = likelihood, fitted_course
                varies_by = np.full(len(usual), deviation**2)
    return course, varies_by


def _process(
    variance: float, distance: Floats, mean: Floats, error2: Floats, has_mean: NDArray[np.bool_]
) -> tuple[float, Floats]:
    """Return the log likelihood and the course of a Matern process of order 3/2."""
    covariance = variance * (1.0 + np.sqrt(3.0) * distance) * np.exp(-np.sqrt(3.0) * distance)
    factor = cho_factor(covariance[has_mean] + np.diag(error2), lower=True)
    weights = cho_solve(factor, mean)
    likelihood = -0.5 * float(mean @ weights) - float(np.log(np.diag(factor[0])).sum())
    return likelihood, covariance @ weights


def summarize(
    units: Units, rows: Rows, values: Floats, course: csr_array, epoch: Ints, epochs: int
) -> Summaries:
    """Join what each run says of the same epoch. ``values`` (n,) are those of units, less a course
    that may be off by ``course`` (n, causes); ``epoch`` is that of each row.
    """
    number = group(units.run[rows.unit], units.cell[rows.unit], epoch)
    count = int(number.max()) + 1 if len(number) else 0
    weight = 1.0 / units.variance[rows.unit]
    first = np.zeros(count, np.int64)
    first[number] = np.arange(len(number))
    head = rows.unit[first]
    run, cell, kind, epoch = units.run[head], units.cell[head], units.kind[head], epoch[first]
    # Hours of a run's ranks, and neighbours, deviate together though they are in different cells.
    epoch_of_run = group(run, epoch)
    # A run whose node changes while it runs is its own control.
    part = group(run, cell, kind)
    split = (np.bincount(part)[part] > 1) & (kind == ALONE) & (rows.share[first] == 1.0)
    effect = np.full(count, -1)
    effect[split] = group(part[split])
    return Summaries(
        value=group_means(values[rows.unit], weight, number, count),
        variance=1.0 / np.maximum(np.bincount(number, weight, count), 1e-300),
        freedom=units.freedom[head],
        share=group_means(rows.share, weight, number, count),
        cell=cell,
        kind=kind,
        program=units.program[head],
        run=run,
        epoch=epoch,
        epochs=epochs,
        programs=units.programs,
        course=_shares(weight, number, count) @ course[rows.unit],
        records=np.bincount(number, units.records[rows.unit], count).astype(np.int64),
        repeats=np.where(kind == ALONE, 1.0, np.bincount(epoch_of_run)[epoch_of_run]),
        effect=effect,
    )


def _shares(weights: Floats, groups: Ints, count: int) -> csr_array:
    """Return the share of each of ``weights`` (n,) in its group's sum: (count, n)."""
    shares = weights / np.bincount(groups, weights, count)[groups]
    return csr_array((shares, (groups, np.arange(len(groups)))), shape=(count, len(groups)))


def fit(summaries: Summaries, cells: int) -> Fit:
    """Estimate everything in a few rounds of reweighting."""
    usual = np.full(KINDS, USUAL_RUN_DEVIATION**2)
    run_variance = np.full(summaries.programs, USUAL_RUN_DEVIATION**2)
    freedom = np.full(summaries.programs, USUAL_WEIGHT)
    epochs, split = summaries.epochs, summaries.effect >= 0
    repeats = np.where(split, 0.0, summaries.repeats)
    precision = np.full(epochs, 1.0 / USUAL_SPREAD**2)
    robust = np.ones(len(summaries))
    program_of_effect = summaries.program_of_effect()
    design = summaries.design()
    for _ in range(ROUNDS):
        between_runs = run_variance[summaries.program]
        variance = summaries.variance + between_runs * repeats
        weight = summaries.share * robust / variance
        assumed_precision = np.concatenate([precision, 1.0 / run_variance[program_of_effect]])
        solution, covariance, level = _solve(summaries, design, weight, assumed_precision, cells)
        slowness = solution[:epochs]
        deviations = summaries.value - level[summaries.cell]
        # With weights that follow from it, a variance that is too small would hide what it misses.
        usual_variance = summaries.variance + usual[summaries.kind] * repeats
        usual_weight = summaries.share * robust / usual_variance
        residuals, free = _within_epochs(summaries, deviations, usual_weight, cells)
        apart, others, apart_free = _from_others(
            summaries, residuals, usual_weight, variance, cells
        )
        for kind in range(KINDS):
            rows = np.flatnonzero((summaries.kind == kind) & ~split)
            total = float(free[rows].sum())
            extra = extra_variance(residuals[rows], summaries.variance[rows], total)
            usual[kind] = max(_blend(extra, USUAL_RUN_DEVIATION**2, total), MIN_DEVIATION**2)
            run_variance[kind::KINDS], freedom[kind::KINDS] = _by_program(
                apart[rows],
                summaries.variance[rows] + others[rows],
                apart_free[rows],
                free[rows],
                summaries.program[rows] // KINDS,
                usual[kind],
                len(run_variance[kind::KINDS]),
            )
        # With few runs in a cell, a slow node's runs move the level that others are measured from.
        middle = group_medians(summaries.value - slowness[summaries.epoch], summaries.cell, cells)
        strange = _strangeness(summaries, summaries.value - middle[summaries.cell])
        squares = strange**2 / (summaries.variance + between_runs)
        robust = np.minimum((FREEDOM_RUN + 1.0) / (FREEDOM_RUN + squares), 1.0)
        inner = covariance[:epochs, :epochs]
        spread, spread_freedom = _spread(slowness, inner, precision)
        healthy = min(spread, MAX_SPREAD**2)
        precision = (FREEDOM_NODE + 1.0) / (FREEDOM_NODE * healthy + slowness**2)
        precision = np.minimum(precision, 1.0 / healthy)
    return Fit(
        cells=level,
        slowness=slowness,
        precision=assumed_precision[:epochs],
        covariance=covariance,
        summaries=summaries,
        design=design,
        weight=weight,
        strangeness=strange,
        usual_run_variance=usual,
        run_variance=run_variance,
        freedom=freedom,
        spread=spread,
        spread_freedom=spread_freedom,
    )


def _strangeness(summaries: Summaries, deviations: Floats) -> Floats:
    """How far each summary is from its epoch's median (n,); 0 if the epoch has less than three.

    This does not depend on the node's prior: a slow node's runs are not strange.
    """
    count = np.bincount(summaries.epoch, minlength=summaries.epochs)
    middle = group_medians(deviations, summaries.epoch, summaries.epochs)
    return np.where(count[summaries.epoch] >= 3, deviations - middle[summaries.epoch], 0.0)


def _solve(
    summaries: Summaries, design: csr_array, weight: Floats, assumed_precision: Floats, cells: int
) -> tuple[Floats, Floats, Floats]:
    """Solve for epochs' slowness and split runs' deviations, their covariance, and cells' levels.

    By weighted least squares; cells, which have no prior, are eliminated.
    """
    cell, value, split = summaries.cell, summaries.value, summaries.effect >= 0
    total = np.maximum(np.bincount(cell, weight, cells), 1e-300)
    mean = np.bincount(cell, weight * value, cells) / total
    row, column = design.nonzero()
    shares = (weight / np.sqrt(total)[cell])[row]
    in_cells = csr_array((shares, (cell[row], column)), shape=(cells, design.shape[1]))
    # The design's entries are one: its products with itself are sums of weights.
    normal = np.diag(assumed_precision + design.T @ weight) - (in_cells.T @ in_cells).toarray()
    effect = summaries.epochs + summaries.effect[split]
    np.add.at(normal, (effect, summaries.epoch[split]), weight[split])
    covariance = _inverse(normal)
    solution = covariance @ (design.T @ (weight * (value - mean[cell])))
    level = mean - np.bincount(cell, weight * (design @ solution), cells) / total
    return solution, covariance, level


def _inverse(matrix: Floats) -> Floats:
    """Invert a positive definite ``matrix`` (n, n), whose upper half is not read, in a third of the
    operations for any matrix.
    """
    half: Floats = dpotri(dpotrf(matrix, lower=1)[0], lower=1)[0]
    return np.tril(half) + np.tril(half, -1).T


def _within_epochs(
    summaries: Summaries, deviations: Floats, weight: Floats, cells: int
) -> tuple[Floats, Floats]:
    """How far each summary is from its epoch's mean, and its degrees of freedom, 0 to 1; (n,).

    This does not depend on priors: a node with one run says nothing about how much runs differ.
    """
    cell, epoch = summaries.cell, summaries.epoch
    in_cell = np.maximum(np.bincount(cell, weight, cells), 1e-300)[cell]
    in_epoch = np.maximum(np.bincount(epoch, weight, summaries.epochs), 1e-300)[epoch]
    mean = group_means(deviations, weight, epoch, summaries.epochs)[epoch]
    free = (1.0 - weight / in_cell) * (1.0 - weight / in_epoch)
    return deviations - mean, summaries.share * np.clip(free, 0.0, 1.0)


def _from_others(
    summaries: Summaries, residuals: Floats, weight: Floats, variance: Floats, cells: int
) -> tuple[Floats, Floats, Floats]:
    """How far each summary is from the mean of its epoch's others, the variance of that mean, and
    which part of the summary's own variance shows; all (n,), 0 without others.

    ``residuals`` are those from the mean of all, ``variance`` is that of each value.
    """
    epoch, epochs = summaries.epoch, summaries.epochs
    total = np.bincount(epoch, weight, epochs)[epoch]
    others = total - weight
    has_others = others > 1e-9 * total
    others = np.where(has_others, others, np.inf)
    squares = np.bincount(epoch, weight**2 * variance, epochs)[epoch] - weight**2 * variance
    in_cell = np.maximum(np.bincount(summaries.cell, weight, cells), 1e-300)[summaries.cell]
    part = np.where(has_others, summaries.share * (1.0 - weight / in_cell), 0.0)
    return residuals * total / others, np.maximum(squares, 0.0) / others**2, part


def _by_program(
    residuals: Floats,
    variances: Floats,
    part: Floats,
    free: Floats,
    programs: Ints,
    usual: float,
    count: int,
) -> tuple[Floats, Floats]:
    """Return the variance between the runs of each program (count,) and its degrees of freedom.

    ``residuals``, ``variances`` and ``part`` (n,) are those of `_from_others`, with noise, and
    ``free`` (n,) are their degrees of freedom; ``usual`` is the variance between the runs of all. A
    program with few runs may differ from the others as much as these do from each other.
    """
    own = np.bincount(programs, free, count).astype(np.float64)
    deviations = residuals / np.sqrt(variances + usual)
    shown = np.bincount(programs, part, count).astype(np.float64)
    ratios = extra_variances(deviations, np.zeros(len(deviations)), programs, shown)
    ratio, freedom = moderate(np.maximum(ratios, MIN_RATIO), own)
    if (ratio == ratio[:1]).all():
        return np.full(count, usual), np.full(count, USUAL_WEIGHT + own.sum())
    noise = group_means(variances, free, programs, count)
    extra = np.maximum(ratios * (noise + usual) - noise, 0.0)
    # The more noise there is, the less residuals say about runs.
    known = own * (usual / (noise + usual)) ** 2
    prior = freedom - own
    variance = (prior * usual + known * extra) / (prior + known)
    return np.maximum(variance, MIN_DEVIATION**2), prior + known


def _blend(extra: float, usual: float, freedom: float) -> float:
    return (USUAL_WEIGHT * usual + freedom * extra) / (USUAL_WEIGHT + freedom)


def _spread(slowness: Floats, covariance: Floats, precision: Floats) -> tuple[float, float]:
    """Return the variance of healthy nodes' slowness and its degrees of freedom, from estimates of
    each node without its prior.
    """
    flat, information = _without_own_prior(slowness, covariance, precision)
    is_informed = information > 0.01 * precision
    freedom = max(float(is_informed.sum()) - 1.0, 0.0)
    extra = extra_variance(flat[is_informed], 1.0 / information[is_informed], freedom, FIRM_CLIP)
    variance = max(_blend(extra, USUAL_SPREAD**2, freedom), MIN_DEVIATION**2)
    return variance, USUAL_WEIGHT + freedom


def _without_own_prior(
    slowness: Floats, covariance: Floats, precision: Floats
) -> tuple[Floats, Floats]:
    """Return each epoch's slowness without its own prior (epochs,), and the inverse of its
    variance, which is 0 if nothing is known.
    """
    inner = 1.0 / np.diag(covariance)
    information = np.maximum(inner - precision, 0.0)
    return slowness * inner / np.maximum(information, VAGUE), information
