"""How much one run of a trace says: the same jobs, each submitted a little later.

A policy that decides the same in nearly the same situation has nearly the same figures. Where they
differ by some percent from one draw to the next, a difference of that size between two policies
says nothing in a single run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from bench.spread import interval, mean_and_spread
from hopsd.model.scenario import Workload

Figures = Sequence[float]


def later(load: Workload, seconds: float, seed: int) -> Workload:
    """``load`` with each job submitted up to ``seconds`` later."""
    random = Random(seed)
    jobs = [replace(job, submit=job.submit + random.uniform(0.0, seconds)) for job in load.jobs]
    return replace(load, jobs=tuple(sorted(jobs, key=lambda job: job.submit)))


def rows(played: Mapping[str, Sequence[Figures]]) -> Iterator[tuple[str, str]]:
    """By policy, each figure's mean and standard deviation over the seeds; then, for the first
    policy over each other, the ratio's geometric mean and 95 % interval. ``played``: a policy's
    figures by seed.
    """
    for policy, runs in played.items():
        cells = [mean_and_spread(values, ".3g") for values in zip(*runs, strict=True)]
        yield f"`{policy}`", " | ".join(cells)
    first, *others = played
    for other in others:
        pairs = zip(zip(*played[first], strict=True), zip(*played[other], strict=True), strict=True)
        ratios = [interval(own, of) for own, of in pairs]
        yield (
            f"`{first}` over `{other}`",
            " | ".join(f"{ratio.mean:.2f} ({ratio})" for ratio in ratios),
        )
