"""What hops remembers of a job beyond what Slurm does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.reading import SlurmState


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job's life so far. Slurm's requeue resets its submit time; ``submit`` here is the first.

    ``wait_seconds``: eligible but not running, over all restarts. ``allocation_since`` is when
    ``allocation`` began; of a job without one when it lost its last, where Slurm told. ``end``
    is None until the job finished. ``released``: given back to plain Slurm by an operator, hops
    leaves it alone. ``run_seconds_by_type``: what of ``run_seconds`` was spent on which GPU type.
    ``app_seconds``: the number of apps that were present (a job without one counts as one), summed
    over the seconds from ``submit`` to ``seen``. ``app_gpu_seconds``: what jobs of the same app
    that have ended since ``submit`` spent. ``program``: hash of the script that it trains with, as
    it reported, "" so far unknown. ``saved``: whether it was seen to save, None: it reported
    nothing.
    """

    id: JobId
    user: UserName
    name: str
    comment: str
    workload: WorkloadName
    submit: float
    seen: float
    state: SlurmState
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    attained_gpu_seconds: float = 0.0
    restarts: int = 0
    samples_done: float = 0.0
    restart_seconds: float = 0.0
    allocation: Allocation = field(default_factory=Allocation)
    allocation_since: float | None = None
    profiling: bool = False
    age_seconds: float | None = None
    end: float | None = None
    released: bool = False
    run_seconds_by_type: Mapping[GpuType, float] = field(default_factory=dict)
    app_seconds: float = 0.0
    app_gpu_seconds: float = 0.0
    program: str = ""
    saved: bool | None = None

    @property
    def latency_ratio(self) -> float | None:
        """Waiting over expected run time (eq. 8); None before the age is known."""
        return self.wait_seconds / self.age_seconds if self.age_seconds else None
