"""Draws for few playouts: each job's are spread evenly over its distribution, in random order.

The median of 16 independent draws is off by a third of their standard deviation. Of even ones it is
the distribution's (Latin hypercube sampling, McKay, Beckman and Conover 1979); that jobs are drawn
independently of each other stays true.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np

from hopsd.model.arrays import Floats


def shares(samples: int, jobs: int, rng: np.random.Generator) -> Floats:
    """Between 0 and 1, (samples, jobs): the middles of equal parts, each once for every job."""
    return _in_random_order((np.arange(samples) + 0.5) / samples, jobs, rng)


def normals(samples: int, jobs: int, rng: np.random.Generator) -> Floats:
    """The same of a standard normal distribution."""
    return _in_random_order(normal_points(samples), jobs, rng)


@cache
def normal_points(samples: int) -> Floats:
    """The middles of equally likely parts of a standard normal distribution, ascending."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse((k + 0.5) / samples) for k in range(samples)])


def _in_random_order(points: Floats, jobs: int, rng: np.random.Generator) -> Floats:
    rows: Floats = rng.permuted(np.broadcast_to(points, (jobs, len(points))), axis=1).T
    return rows
