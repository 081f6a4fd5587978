"""Placements that were never measured: six applications on T4 servers with 4 GPUs.

Basic times from the 1-GPU rows, B_link and B_net from one shape each, all other placements
predicted. The measurements are Pollux's (petuum/adaptdl, branch osdi21-artifact): one CSV an
application, ``placement,local_bsz,step_time,sync_time``; placement 13 is 1 GPU on one server
and 3 on another.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, minimize_scalar

from hopsd.model.arrays import Floats

BACKWARD_SHARE = 2 / 3
"""Backward's share of a 1-GPU step: it costs twice the forward; the rows do not separate them."""

EXPOSED_SHARE = 0.2
LINK = "4"
"""Placement that calibrates B_link: a whole server."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measured placements of one application: one row per placement and batch size, (n,) each.

    ``seconds`` are per step, ``alone`` those on a single GPU; ``gpus`` and ``servers`` are counts,
    and ``largest_share`` is the number of GPUs on the server with the most.
    """

    placement: npt.NDArray[np.str_]
    seconds: Floats
    alone: Floats
    gpus: Floats
    servers: Floats
    largest_share: Floats

    def select(self, mask: npt.NDArray[np.bool_]) -> Measurements:
        return Measurements(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def read(folder: Path) -> dict[str, Measurements]:
    """Applications by name.

    Raises:
        OSError: a file is missing.
    """
    return {path.stem: _application(path) for path in sorted(folder.glob("*.csv"))}


def _application(path: Path) -> Measurements:
    with path.open() as file:
        rows = [
            (r["placement"], r["local_bsz"], float(r["step_time"])) for r in csv.DictReader(file)
        ]
    alone = {batch: seconds for placement, batch, seconds in rows if placement == "1"}
    usable_rows = [
        (p, s, alone[b], [int(n) for n in p]) for p, b, s in rows if b in alone and p != "1"
    ]
    return Measurements(
        np.array([p for p, *_ in usable_rows]),
        np.array([s for _, s, *_ in usable_rows]),
        np.array([a for *_, a, _ in usable_rows]),
        *(np.array([float(f(n)) for *_, n in usable_rows]) for f in (sum, len, max)),
    )


Shape = Callable[[Measurements, Floats], Floats]
"""Communication over the network, relative to two GPUs on two servers, given its exponents."""


def paper(rows: Measurements, _: Floats) -> Floats:
    return np.ones(len(rows.gpus))


def ring(rows: Measurements, _: Floats) -> Floats:
    return ring_paths(rows, np.array([0.5]))


def ring_alone(rows: Measurements, _: Floats) -> Floats:
    transfers: Floats = 2 * (rows.gpus - 1) / rows.gpus
    return transfers


def ring_paths(rows: Measurements, exponents: Floats) -> Floats:
    relative: Floats = ring_alone(rows, exponents) * (2 / rows.servers) ** exponents[0]
    return relative


def ring_paths_sharing(rows: Measurements, exponents: Floats) -> Floats:
    """Form in which the GPUs of one server share its network."""
    relative: Floats = ring_paths(rows, exponents) * rows.largest_share ** exponents[1]
    return relative


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of communication; the search for its exponents starts at ``begin``."""

    name: str
    shape: Shape
    begin: tuple[float, ...] = ()


CANDIDATES = (
    Candidate("paper: 1", paper),
    Candidate("2(N-1)/N", ring_alone),
    Candidate("ring: 2(N-1)/N (2/K)^0.5", ring),
    Candidate("2(N-1)/N (2/K)^q, q fitted", ring_paths, (0.5,)),
    Candidate("2(N-1)/N (2/K)^q m^r, q and r fitted", ring_paths_sharing, (0.5, 0.1)),
)


def step_seconds(rows: Measurements, t_c: Floats) -> Floats:
    """Eq. 1 without data and update, which these rows do not separate."""
    t_b = BACKWARD_SHARE * rows.alone
    return rows.alone - t_b + np.maximum(t_b + EXPOSED_SHARE * t_c, t_c)


def fit_bandwidth(rows: Measurements, relative: Floats) -> float:
    """Fit params / B: the seconds that, times ``relative``, best explain these rows."""

    def error(log_seconds: float) -> float:
        predicted_seconds = step_seconds(rows, np.exp(log_seconds) * relative)
        return float(np.abs(np.log(predicted_seconds / rows.seconds)).sum())

    grid = np.linspace(-12.0, 3.0, 301)
    best = int(np.argmin([error(x) for x in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return float(np.exp(minimize_scalar(error, bounds=bounds, method="bounded").x))


def predictions(
    rows: Measurements, shape: Shape, exponents: Floats, net: str
) -> tuple[Floats, Measurements]:
    """Predicted step seconds of placements not used for calibration, and those placements."""
    link_rows = rows.select(rows.placement == LINK)
    link = fit_bandwidth(link_rows, (link_rows.gpus - 1) / link_rows.gpus)
    network_rows = rows.select(rows.placement == net)
    network = fit_bandwidth(network_rows, shape(network_rows, exponents))
    unseen_rows = rows.select((rows.placement != LINK) & (rows.placement != net))
    t_c = np.where(
        unseen_rows.servers == 1,
        link * (unseen_rows.gpus - 1) / unseen_rows.gpus,
        network * shape(unseen_rows, exponents),
    )
    return step_seconds(unseen_rows, t_c), unseen_rows


def throughput_errors(rows: Measurements, shape: Shape, exponents: Floats, net: str) -> Floats:
    """Relative errors of predicted throughput, signed."""
    predicted_seconds, unseen_rows = predictions(rows, shape, exponents, net)
    return unseen_rows.seconds / predicted_seconds - 1.0


def fit_exponents(candidate: Candidate, train: Sequence[Measurements], net: str) -> Floats:
    """Fit the exponents to the applications of ``train``."""
    if not candidate.begin:
        return np.zeros(0)

    def error(exponents: Floats) -> float:
        errors = [throughput_errors(r, candidate.shape, exponents, net) for r in train]
        return float(np.mean([np.mean(np.abs(np.log1p(e))) for e in errors]))

    options = {"maxiter": 40, "xatol": 0.01, "fatol": 0.001}
    optimum = minimize(error, candidate.begin, method="Nelder-Mead", options=options).x
    return np.asarray(optimum, dtype=float)


@dataclass(frozen=True, slots=True)
class Result:
    """Absolute errors by application of a candidate calibrated on shape ``net``."""

    candidate: str
    net: str
    errors: dict[str, Floats]
    exponents: tuple[tuple[float, ...], ...]

    @property
    def all_errors(self) -> Floats:
        return np.concatenate(list(self.errors.values()))


def cross_validated(
    applications: dict[str, Measurements], candidate: Candidate, net: str
) -> Result:
    """Predict each application with exponents fitted to the others."""
    errors, exponents = {}, []
    for test_name, rows in applications.items():
        train = [measurements for name, measurements in applications.items() if name != test_name]
        fit = fit_exponents(candidate, train, net)
        exponents.append(tuple(round(float(x), 2) for x in fit))
        errors[test_name] = np.abs(throughput_errors(rows, candidate.shape, fit, net))
    return Result(candidate.name, net, errors, tuple(exponents))
