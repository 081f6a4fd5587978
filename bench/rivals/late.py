"""Significance of a single run of a trace: repeats it with each job submitted a little later.

If a policy's figures vary by some percent between such draws, a difference of that size between two
policies in a single run means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from bench.spread import interval, mean_and_spread
from hopsd.model.scenario import Workload

Figures = Sequence[float]


def later(load: Workload, seconds: float, seed: int) -> Workload:
    """Return ``load`` with each job submitted up to ``seconds`` later."""
    random = Random(seed)
    jobs = [replace(job, submit=job.submit + random.uniform(0.0, seconds)) for job in load.jobs]
    return replace(load, jobs=tuple(sorted(jobs, key=lambda job: job.submit)))


def rows(figures_by_policy: Mapping[str, Sequence[Figures]]) -> Iterator[tuple[str, str]]:
    """Yield rows by policy: mean and standard deviation of each figure over the seeds; then
    geometric mean and 95 % interval of the ratio of the first policy to each other one.

    ``figures_by_policy`` has a policy's figures by seed.
    """
    for policy, runs in figures_by_policy.items():
        cells = [mean_and_spread(values, ".3g") for values in zip(*runs, strict=True)]
        yield f"`{policy}`", " | ".join(cells)
    first, *rivals = figures_by_policy
    for rival in rivals:
        pairs = zip(
            zip(*figures_by_policy[first], strict=True),
            zip(*figures_by_policy[rival], strict=True),
            strict=True,
        )
        ratios = [interval(numerators, denominators) for numerators, denominators in pairs]
        yield (
            f"`{first}` over `{rival}`",
            " | ".join(f"{ratio.mean:.2f} ({ratio})" for ratio in ratios),
        )
