"""Pollux's throughput model (Qiao et al., OSDI 2021, section 3.2), fitted as its authors fit it.

    T_grad = a_c + b_c * batch,  T_sync = 0 for one GPU, a_r + b_r max(0, N - 2) in one server,
    a_n + b_n max(0, N - 2) over several,  T_iter = (T_grad^g + T_sync^g)^(1 / g)

The fit minimizes root mean squares of log errors, of T_iter and of T_grad; a small penalty prefers
small g, b_r / a_r and b_n / a_n; parameters that no row determines are fixed near zero
(adaptdl, goodput.py). With one batch size T_grad is one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from hopsd.model.arrays import Floats

EPSILON, MAX_OVERLAP = 1e-8, 10.0


@dataclass(frozen=True, slots=True)
class PolluxModel:
    """``values``: T_grad, a_n, b_n, a_r, b_r, g."""

    values: tuple[float, ...]

    def seconds(self, gpus: Floats, servers: Floats) -> Floats:
        """T_iter, (n,)."""
        return _seconds(np.array(self.values), gpus, servers)


def fit(shapes: Sequence[tuple[int, int]], seconds: Sequence[float]) -> PolluxModel:
    """Fit to step times of one batch size; ``shapes``: GPUs and servers, the first one (1, 1)."""
    n, k = np.array(shapes, dtype=float).T
    step, alone = np.log(np.array(seconds, dtype=float)), np.log(seconds[0])
    start = np.array([seconds[0], 1e-1, 1e-2, 1e-1, 1e-2, 1.001])
    bounds = [(EPSILON, None)] * 5 + [(1.0, MAX_OVERLAP)]
    unknown = []
    if not (k > 1).any():
        unknown += [1, 2]
    if not ((k == 1) & (n > 1)).any():
        unknown += [3, 4]
    if not (n > 2).any():
        unknown += [2, 4]
    for index in unknown:
        start[index], bounds[index] = EPSILON, (EPSILON, EPSILON)

    def error(values: Floats) -> float:
        residuals = np.log(_seconds(values, n, k)) - step
        compute = np.log(values[0]) - alone
        slow = (values[2] / values[1]) ** 2 + (values[4] / values[3]) ** 2
        penalty = 0.0 if {1, 3} <= set(unknown) else 1e-2 * slow
        return float(
            np.sqrt((residuals**2).mean()) + abs(compute) + 1e-3 * (values[5] - 1.0) ** 2 + penalty
        )

    free = [i for i in range(6) if bounds[i][0] != bounds[i][1]]

    def from_logs(logs: Floats) -> Floats:
        values = start.copy()
        low = np.array([bounds[i][0] for i in free])
        high = np.array([bounds[i][1] or np.inf for i in free])
        values[free] = np.clip(np.exp(logs), low, high)
        return values

    # The default start is far off for steps of milliseconds, so also start at their scale.
    tries = []
    for scale in (1.0, seconds[0], 10.0 * seconds[0]):
        begin = np.log(np.maximum(start[free], EPSILON))
        for place, index in enumerate(free):
            if 1 <= index <= 4:
                begin[place] += np.log(scale)
        result = minimize(lambda x: error(from_logs(x)), begin, method="L-BFGS-B")
        tries.append((float(result.fun), tuple(from_logs(result.x).tolist())))
    return PolluxModel(min(tries)[1])


def _seconds(values: Floats, gpus: Floats, servers: Floats) -> Floats:
    grad, a_n, b_n, a_r, b_r, overlap = values
    extra_gpus = np.maximum(gpus - 2, EPSILON)
    sync = np.where(
        servers > 1, a_n + b_n * extra_gpus, np.where(gpus > 1, a_r + b_r * extra_gpus, EPSILON)
    )
    larger = np.maximum(grad, sync)
    # Divide by the larger term: milliseconds to the power of 10 underflow.
    whole: Floats = larger * ((grad / larger) ** overlap + (sync / larger) ** overlap) ** (
        1 / overlap
    )
    return whole
