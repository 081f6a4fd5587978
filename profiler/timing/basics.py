"""The basic times of one iteration, for equations 1 to 5 of the paper (section 3.5)."""

from __future__ import annotations

from hops_profiler.timing.counts import Counts

NO_WAIT_SHARE = 0.05
"""Share of the backward passes assumed not to have waited for other ranks."""


def pattern(wall: float, data: float, forward: float, backward_update: float) -> int:
    """Return 1 if data loading overlaps with backward pass and update, 2 if nothing overlaps.

    Chooses the form of equation 1 whose result for the measured parts is closer to the measured
    wall time, and 1 if both are equally close.
    """
    overlap = max(data, backward_update) + forward
    sequential = data + backward_update + forward
    return 2 if abs(sequential - wall) < abs(overlap - wall) else 1


def basics(
    counts: Counts, world: int, communication: float | None, wait: float | None = None
) -> dict[str, object]:
    """Mean seconds of each part, by the GPU's clock where there is one.

    ``t_w`` is ``wait`` if the ranks exchanged their times, else the mean backward pass minus its 5
    % quantile; it is 0 for a single process. ``t_c``, a part of ``t_b``, is ``communication`` minus
    ``t_w``, or None if unknown. ``t_d`` is how long the loop waited for data, by the CPU's clock.
    """
    device = counts.on_device["forward"].count > 0
    parts = counts.on_device if device else counts.phases
    forward, backward, update = (parts[p].mean for p in ("forward", "backward", "update"))
    data = counts.phases["data"].mean
    # On a CPU all parts are sequential; with a GPU the rest is CPU time and may overlap.
    wall = counts.iteration.mean - (0.0 if device else counts.phases["rest"].mean)
    if world == 1:
        wait = 0.0
    elif wait is None:
        times = counts.backward_on_device if device else counts.backward
        wait = max(0.0, backward - times.quantile(NO_WAIT_SHARE))
    wait = min(wait, backward)
    return {
        "clock": "cuda" if device else "cpu",
        "pattern": pattern(wall, data, forward, backward + update),
        "t_iter": counts.iteration.mean,
        "t_d": data,
        "t_f": forward,
        "t_b": backward - wait,
        "t_c": None if communication is None else max(0.0, communication - wait),
        "t_u": update,
        "t_w": wait,
    }
