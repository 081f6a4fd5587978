"""The basic times of one iteration, for equations 1 to 5 of the paper (section 3.5)."""

from __future__ import annotations

from hops_profiler.timing.counts import Counts

QUICKEST = 0.05
"""Share of the backward passes taken as those that waited for nobody."""


def pattern(wall: float, data: float, forward: float, backward_update: float) -> int:
    """1: data loading overlaps with backward pass and update; 2: nothing does.

    Both forms of equation 1 from the measured parts; the one nearer to the measured wall time.
    Parts so small that both say the same are pattern 1.
    """
    overlapped = max(data, backward_update) + forward
    sequential = data + backward_update + forward
    return 2 if abs(sequential - wall) < abs(overlapped - wall) else 1


def basics(
    counts: Counts, world: int, communication: float | None, wait: float | None = None
) -> dict[str, object]:
    """Mean seconds of each part; where the GPU's clock was read, computing by that clock.

    ``t_w`` is ``wait`` where the ranks told each other, else the mean backward pass less a quick
    one; with one process there is nobody to wait for. ``t_c`` is ``communication`` less that wait,
    None where nobody knows; it lies within ``t_b``. ``t_d`` is what the loop waited for data, by
    the CPU's clock.
    """
    device = counts.on_device["forward"].count > 0
    parts = counts.on_device if device else counts.phases
    forward, backward, update = (parts[p].mean for p in ("forward", "backward", "update"))
    data = counts.phases["data"].mean
    # On a CPU all parts follow each other; on a GPU the rest is the CPU's and may overlap.
    wall = counts.iteration.mean - (0.0 if device else counts.phases["rest"].mean)
    if world == 1:
        wait = 0.0
    elif wait is None:
        wait = max(0.0, backward - parts["backward"].quantile(QUICKEST))
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
