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
"""Of the 1-GPU step: the rows do not tell the parts, and backward costs twice the forward."""

EXPOSED_SHARE = 0.2
LINK = "4"
"""The shape that gives B_link: a whole server."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measured placements of one application, one row a placement and batch size, (n,) each.

    ``seconds`` of a step, ``alone`` of one on a single GPU; ``gpus``, ``servers`` and
    ``most``, the GPUs on the server that has most of them.
    """

    placement: npt.NDArray[np.str_]
    seconds: Floats
    alone: Floats
    gpus: Floats
    servers: Floats
    most: Floats

    def where(self, mask: npt.NDArray[np.bool_]) -> Measurements:
        return Measurements(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def read(folder: Path) -> dict[str, Measurements]:
    """Applications by name.

    Raises:
        OSError: no such file.
    """
    return {path.stem: _application(path) for path in sorted(folder.glob("*.csv"))}


def _application(path: Path) -> Measurements:
    with path.open() as file:
        rows = [
            (r["placement"], r["local_bsz"], float(r["step_time"])) for r in csv.DictReader(file)
        ]
    alone = {batch: seconds for placement, batch, seconds in rows if placement == "1"}
    kept = [(p, s, alone[b], [int(n) for n in p]) for p, b, s in rows if b in alone and p != "1"]
    return Measurements(
        np.array([p for p, *_ in kept]),
        np.array([s for _, s, *_ in kept]),
        np.array([a for *_, a, _ in kept]),
        *(np.array([float(f(n)) for *_, n in kept]) for f in (sum, len, max)),
    )


Shape = Callable[[Measurements, Floats], Floats]
"""Communication over the network, relative to two GPUs on two servers; with its exponents."""


def paper(rows: Measurements, _: Floats) -> Floats:
    return np.ones(len(rows.gpus))


def ring(rows: Measurements, _: Floats) -> Floats:
    return ring_paths(rows, np.array([0.5]))


def ring_alone(rows: Measurements, _: Floats) -> Floats:
    sent: Floats = 2 * (rows.gpus - 1) / rows.gpus
    return sent


def ring_paths(rows: Measurements, exponents: Floats) -> Floats:
    relative: Floats = ring_alone(rows, exponents) * (2 / rows.servers) ** exponents[0]
    return relative


def ring_paths_sharing(rows: Measurements, exponents: Floats) -> Floats:
    """GPUs of one server share its network."""
    relative: Floats = ring_paths(rows, exponents) * rows.most ** exponents[1]
    return relative


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of communication; ``begin``: where the search for its exponents starts."""

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
    """Eq. 1 without data and update, which these rows do not tell apart."""
    t_b = BACKWARD_SHARE * rows.alone
    return rows.alone - t_b + np.maximum(t_b + EXPOSED_SHARE * t_c, t_c)


def calibrated(rows: Measurements, relative: Floats) -> float:
    """params / B: the seconds that, times ``relative``, explain these rows best."""

    def error(log_seconds: float) -> float:
        told = step_seconds(rows, np.exp(log_seconds) * relative)
        return float(np.abs(np.log(told / rows.seconds)).sum())

    grid = np.linspace(-12.0, 3.0, 301)
    best = int(np.argmin([error(x) for x in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return float(np.exp(minimize_scalar(error, bounds=bounds, method="bounded").x))


def predictions(
    rows: Measurements, shape: Shape, exponents: Floats, net: str
) -> tuple[Floats, Measurements]:
    """Seconds a step of the placements that calibration did not see, and those placements."""
    one = rows.where(rows.placement == LINK)
    link = calibrated(one, (one.gpus - 1) / one.gpus)
    other = rows.where(rows.placement == net)
    network = calibrated(other, shape(other, exponents))
    unseen = rows.where((rows.placement != LINK) & (rows.placement != net))
    t_c = np.where(
        unseen.servers == 1,
        link * (unseen.gpus - 1) / unseen.gpus,
        network * shape(unseen, exponents),
    )
    return step_seconds(unseen, t_c), unseen


def throughput_errors(rows: Measurements, shape: Shape, exponents: Floats, net: str) -> Floats:
    """Relative errors of predicted throughput, signed."""
    told, unseen = predictions(rows, shape, exponents, net)
    return unseen.seconds / told - 1.0


def fitted(candidate: Candidate, train: Sequence[Measurements], net: str) -> Floats:
    """The exponents that explain the applications of ``train`` best."""
    if not candidate.begin:
        return np.zeros(0)

    def error(exponents: Floats) -> float:
        found = [throughput_errors(r, candidate.shape, exponents, net) for r in train]
        return float(np.mean([np.mean(np.abs(np.log1p(e))) for e in found]))

    options = {"maxiter": 40, "xatol": 0.01, "fatol": 0.001}
    found = minimize(error, candidate.begin, method="Nelder-Mead", options=options).x
    return np.asarray(found, dtype=float)


@dataclass(frozen=True, slots=True)
class Result:
    """Of a candidate calibrated on shape ``net``: absolute errors by application."""

    candidate: str
    net: str
    errors: dict[str, Floats]
    exponents: tuple[tuple[float, ...], ...]

    @property
    def all(self) -> Floats:
        return np.concatenate(list(self.errors.values()))


def cross_validated(
    applications: dict[str, Measurements], candidate: Candidate, net: str
) -> Result:
    """Each application predicted with exponents fitted to the others."""
    errors, exponents = {}, []
    for held, rows in applications.items():
        others = [other for name, other in applications.items() if name != held]
        chosen = fitted(candidate, others, net)
        exponents.append(tuple(round(float(x), 2) for x in chosen))
        errors[held] = np.abs(throughput_errors(rows, candidate.shape, chosen, net))
    return Result(candidate.name, net, errors, tuple(exponents))
