"""Settings of the snapshot: what is assumed about jobs, and which user requests are honoured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.core.snapshot.pinning import Unsaved
from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.model.ids import NodeName, RackName


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Settings of the snapshot.

    ``default_age_seconds``: the run time assumed for a job about which nothing else is known.
    ``predicted``: whether the run time of a job without samples is predicted from past runs;
    otherwise its time limit is used, if it has one. ``pinned``: whether ``preempt=no`` is honoured.
    ``unsaved``: what happens to a running job that was not seen to save. ``signal``: sent before a
    move to jobs that ask for no other. ``racks``: by node, where known.
    ``assumed_restart_seconds``: for jobs whose restart was never measured. ``cpus_per_gpu``: cores
    per GPU for jobs that ask for none.
    """

    estimator: EstimatorSettings = field(default_factory=EstimatorSettings)
    default_age_seconds: float = 3600.0
    predicted: bool = True
    restart_cost: bool = True
    assumed_restart_seconds: float = 0.0
    pinned: bool = True
    unsaved: Unsaved = Unsaved.STAYS
    signal: str = "USR1"
    racks: Mapping[NodeName, RackName] = field(default_factory=dict)
    cpus_per_gpu: int = 1
