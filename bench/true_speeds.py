"""True speeds of simulated workloads that differ from what any estimator can know.

Equations 1 to 5 with a random error per shape, as large as on Pollux's data (docs/estimator.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from hopsd.core.speed.throughput import BasicTimes, Communication, IterationModel, theory_per_gpu
from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.knowledge import Bandwidth, Knowledge, Theory
from hopsd.sim.information.knowledge import MEASURED_SPEED_ERROR
from hopsd.sim.models import MODELS, basic_times
from hopsd.sim.presets import Preset

MODEL = IterationModel(communication=Communication.SWITCHED)


@dataclass(frozen=True, slots=True)
class TrueSpeeds:
    """Equations 1 to 5 with a random error per shape, drawn from ``name`` and ``seed``."""

    times: BasicTimes
    name: str
    seed: int

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """The true speed."""
        right = theory_per_gpu(self.times, gpus, nodes, MODEL)
        if gpus == 1:
            return right
        rng = random.Random(f"{self.seed} {self.name} {gpus} {nodes}")  # a simulation, not a secret
        return right * exp(rng.gauss(0.0, MEASURED_SPEED_ERROR))

    def interval(self, gpus: int, nodes: int) -> tuple[float, float]:
        """The true speed twice: it has no uncertainty."""
        return self.per_gpu(gpus, nodes), self.per_gpu(gpus, nodes)

    def source(self, gpus: int, nodes: int) -> str:  # noqa: ARG002
        """Empty source: nobody measured this."""
        return "truth"


Times = dict[tuple[WorkloadName, GpuType], BasicTimes]


def times_of(scenario: Preset) -> Times:
    return {
        (model.name, hardware.gpu_type): basic_times(model, hardware)
        for model in MODELS
        for hardware, _, _ in scenario.groups
    }


def known_at_first(scenario: Preset, times: Times, *, is_calibrated: bool) -> Knowledge:
    links = scenario.cluster().links
    bandwidth = [Bandwidth(t, link.b_link, link.b_net) for t, link in links.items()]
    return Knowledge(
        theory=tuple(_theories(times)), bandwidth=tuple(bandwidth) if is_calibrated else ()
    )


def _theories(times: Times) -> Iterator[Theory]:
    for (name, gpu_type), theory_times in times.items():
        data = theory_times.t_d
        yield Theory(
            name,
            gpu_type,
            inference=False,
            pattern=int(theory_times.pattern),
            batch_size=float(theory_times.batch_size),
            params=theory_times.params,
            t_f=theory_times.t_f,
            t_b=theory_times.t_b,
            t_u=theory_times.t_u,
            p_cache=data.p_cache,
            mu_cache=data.mu_cache,
            sigma_cache=data.sigma_cache,
            mu_load=data.mu_load,
            sigma_load=data.sigma_load,
            w_cache=0.0,
            w_load=0.0,
            records=4,
            iterations=80,
            at=0.0,
        )
