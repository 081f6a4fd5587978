"""Settings of a round, derived from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hopsd.config import Config, PortName
from hopsd.core.interactive.settings import SessionSettings
from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.core.speed.throughput import Communication, IterationModel
from hopsd.model.plan import PlanSettings


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """``seconds``: a round's length. ``requirements_max``: R_num, number of counts in a range."""

    seconds: float
    plan: PlanSettings = field(default_factory=PlanSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    profiling: ProfilingSettings = field(default_factory=ProfilingSettings)
    requirements_max: int = 8
    sessions: SessionSettings = field(default_factory=SessionSettings)


def round_settings(config: Config) -> RoundSettings:
    """Extract the settings of a round from the configuration."""
    return RoundSettings(
        seconds=config.daemon.round_seconds,
        plan=config.plan.settings,
        snapshot=SnapshotSettings(
            estimator=EstimatorSettings(
                min_records=config.knowledge.min_records,
                half_life_seconds=config.knowledge.half_life_days * 86400.0,
                assumed_sensitivity=config.knowledge.assumed_sensitivity,
                assumed_gpu_speedup=config.knowledge.assumed_gpu_speedup,
                model=IterationModel(
                    config.knowledge.exposed_share,
                    config.plan.paper_exact,
                    Communication.PAPER
                    if config.plan.paper_exact
                    else config.knowledge.communication,
                ),
                bandwidth=tuple(config.bandwidth.values()),
            ),
            default_age_seconds=config.knowledge.default_age_seconds,
            predicted=not config.plan.paper_exact,
            restart_cost=config.plan.restart_cost and not config.plan.paper_exact,
            assumed_restart_seconds=config.knowledge.assumed_restart_seconds,
            pinned=config.plan.pinned and not config.plan.paper_exact,
            unsaved=config.plan.unsaved,
            signal=config.slurm.checkpoint_signal,
            racks={node: rack for rack, nodes in config.racks.items() for node in nodes},
            cpus_per_gpu=config.slurm.cpus_per_gpu,
        ),
        # A shadow starts nothing: a run that it only plans would count as a failed one.
        profiling=replace(
            config.profiling.settings,
            enabled=config.profiling.enabled and config.slurm.port is not PortName.SHADOW,
            new_workloads=config.profiling.new_workloads or config.plan.paper_exact,
        ),
        requirements_max=config.plan.requirements_max,
        sessions=config.interactive.settings,
    )
