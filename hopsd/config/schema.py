# ruff: noqa: RUF009 - option() is dataclasses.field with a description
"""The sections of hopsd.toml. Each field is one setting; the file's key is its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from hopsd.config.listen import ListenAddress
from hopsd.config.option import option
from hopsd.config.policy_name import PolicyName
from hopsd.core.pinning import Unsaved
from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.core.speed.throughput import Communication, IterationModel
from hopsd.model.ids import GpuType, NodeName, RackName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Bandwidth
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.model.privacy import Private

_PLAN = PlanSettings()

# Timers of the operating system accept at most some weeks.
_DAY = 86400.0


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


class PortName(StrEnum):
    AUTO = "auto"
    PYSLURM = "pyslurm"
    SCONTROL = "scontrol"
    SHADOW = "shadow"


class SignalScope(StrEnum):
    BATCH = "batch"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """The daemon itself: how often it looks and plans, and how it is reached."""

    refresh_seconds: float = option(
        30.0,
        "How often the cluster is read and free GPUs are planned for.",
        minimum=1,
        maximum=_DAY,
    )
    round_seconds: float = option(
        1800.0,
        "Length of a round: running jobs compete again when one begins.",
        minimum=1,
        maximum=7 * _DAY,
    )
    socket: Path = option(
        Path("/run/hops/hopsd.sock"), "Unix socket on which every user may read the status."
    )
    private_data: tuple[str, ...] = option(
        (),
        "Hidden from ordinary users (others' jobs, nodes, others' usage), in addition to what"
        " slurm.conf's PrivateData hides.",
        choices=tuple(kind.value for kind in Private),
    )
    controllers: tuple[str, ...] = option(
        (),
        "Who may pause, resume and release beside root and hopsd's own account: Slurm's operators;"
        " coordinators of an account release its jobs.",
        choices=("operators", "coordinators"),
    )
    log_level: LogLevel = option(LogLevel.INFO, "The least severe messages that are logged.")
    log_format: LogFormat = option(
        LogFormat.JSON, "One JSON object a line, or text for a person at a console."
    )


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """How Slurm is read and changed, and how a job is asked to save its work."""

    port: PortName = option(
        PortName.AUTO,
        "auto takes pyslurm where it fits the site's Slurm, else scontrol;"
        " shadow reads and plans but changes nothing.",
    )
    partitions: tuple[str, ...] = option(
        (), "Partitions whose jobs and nodes hops manages; empty: all."
    )
    checkpoint_signal: str = option(
        "USR1",
        "Sent to a job before it is moved, so that it writes a checkpoint.",
        choices=("USR1", "USR2", "HUP", "INT", "TERM", "ALRM", "URG", "XCPU"),
    )
    signal_scope: SignalScope = option(
        SignalScope.BATCH, "The signal goes to the batch script alone, or to all its steps."
    )
    checkpoint_grace_seconds: float = option(
        60.0,
        "Time a job has after the signal, before it is requeued; what a script asks for by"
        " --signal=SIG@seconds goes before it.",
        minimum=0,
    )
    longest_grace_seconds: float = option(
        300.0,
        "The most that a script gets by --signal, since hopsd does nothing else meanwhile.",
        minimum=0,
    )
    stop_timeout_seconds: float = option(
        60.0,
        "A requeued job that is still on its nodes by then is placed by a later plan."
        " Slurm's KillWait and the epilog are in it.",
        above=0,
    )
    start_timeout_seconds: float = option(
        30.0, "A released job that has not started by then is held again.", above=0
    )
    cpus_per_gpu: int = option(1, "CPU cores given to a job with each GPU.", minimum=1)
    kept_cores: int = option(
        1,
        "Cores that hops leaves unused on each CPU node (type cpu); its CPUs share the rest.",
        minimum=0,
    )
    command_timeout_seconds: float = option(
        30.0, "A Slurm command or call that takes longer has failed.", above=0, maximum=_DAY
    )


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """PostgreSQL 15 or newer."""

    dsn: str = option(
        "dbname=hops",
        "libpq connection string or URI. Keep a password out of it: use peer"
        " authentication or a passfile.",
        secret=True,
    )
    retention_days: float = option(
        90.0, "Finished jobs, rounds, plans and events older than this are deleted.", above=0
    )


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """Settings of planning; the same keys as ``settings`` in a snapshot file, and more."""

    lam: float = option(
        _PLAN.lam,
        "Weight of priority: 0 is efficiency alone, large is fairness.",
        key="lambda",
        minimum=0,
    )
    sigma: float = option(_PLAN.sigma, "A job is sensitive to spreading above this ratio.", above=0)
    gap: float = option(
        _PLAN.gap,
        "Relative gap at which the solver stops: (bound - objective) / bound.",
        minimum=0,
        maximum=1,
    )
    time_limit_seconds: float = option(
        _PLAN.time_limit_seconds,
        "Seconds for one whole plan.",
        key="time_limit",
        above=0,
        maximum=_DAY,
    )
    priority: PriorityName = option(
        _PLAN.priority,
        "Order of the queue. fair_share, qos: the latency ratio times Slurm's fair-share factor, or"
        " the QOS' priority; fair_share_first, qos_first: these, among equals the latency ratio.",
    )
    policy: PolicyName = option(PolicyName(_PLAN.policy), "The scheduling policy.")
    paper_exact: bool = option(
        _PLAN.paper_exact, "Plan as the paper prints it, without what was added since."
    )
    seed: int = option(_PLAN.seed, "Seed of every random choice.", minimum=0)
    filter_share: float = option(
        _PLAN.filter_share,
        "Of themis: the share of apps, those nearest to fair, that an auction leaves out (f).",
        minimum=0,
        maximum=1,
    )
    lease_seconds: float = option(
        _PLAN.lease_seconds,
        "Of themis and its rivals: GPUs are offered again after so long, at a round's start.",
        minimum=0,
    )
    alpha: float = option(
        _PLAN.alpha,
        "Of allox: share of the users, those with least progress, whose jobs it looks at.",
        minimum=0,
        maximum=1,
    )
    patience_seconds: float = option(
        _PLAN.patience_seconds,
        "Of allox+: a job that waited longer comes before shorter ones.",
        minimum=0,
    )
    restart_cost: bool = option(
        True, "A running job pays for a move with the time that its restart takes."
    )
    pinned: bool = option(True, "A job submitted with preempt=no keeps its GPUs to its end.")
    unsaved: Unsaved = option(
        Unsaved.STAYS_IF_SEEN,
        "A running job that asks for no warning (--signal, trap) and was not seen to save: stays,"
        " stays if its PyTorch training is seen, or moves.",
    )
    requirements_max: int = option(
        8, "GPU counts that a range such as reqs=1-16 is cut to.", minimum=2, maximum=65536
    )

    @property
    def settings(self) -> PlanSettings:
        return PlanSettings(
            lam=self.lam,
            sigma=self.sigma,
            gap=self.gap,
            time_limit_seconds=self.time_limit_seconds,
            priority=self.priority,
            policy=self.policy,
            paper_exact=self.paper_exact,
            seed=self.seed,
            filter_share=self.filter_share,
            lease_seconds=self.lease_seconds,
            alpha=self.alpha,
            patience_seconds=self.patience_seconds,
        )


@dataclass(frozen=True, slots=True)
class KnowledgeConfig:
    """How fast jobs run: when measurements count, and what holds where nothing is known."""

    min_records: int = option(
        3, "Reports of one shape before measurements outweigh the model.", minimum=1
    )
    half_life_days: float = option(7.0, "A report counts half as much after this time.", above=0)
    report_dir: Path = option(
        Path("/var/spool/hops/reports"), "Where jobs leave the throughput that they measured."
    )
    default_age_seconds: float = option(
        3600.0,
        "Expected run time of a job without samples, comparable past runs or a time limit.",
        above=0,
    )
    assumed_sensitivity: float = option(
        1.5, "Slowdown by spreading that is assumed for a job that was never measured.", minimum=1
    )
    assumed_gpu_speedup: float = option(
        4.0, "Speed of a GPU against a CPU that is assumed where one was never measured.", above=0
    )
    assumed_restart_seconds: float = option(
        30.0,
        "Time that a move costs a job whose restart was never measured; a job that may stay where"
        " it is stays. With paper_exact or without plan.restart_cost nothing is assumed.",
        minimum=0,
    )
    communication: Communication = option(
        Communication.SWITCHED,
        "Time of gradients between servers: paper is params / b_net whatever the shape; ring and"
        " switched also count GPUs and servers, see docs/estimator.md. With paper_exact always"
        " paper.",
    )
    exposed_share: float = option(
        IterationModel().exposed_share,
        "Part of the communication that never overlaps with the backward pass.",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True, slots=True)
class ProfilingConfig:
    """First runs on one GPU, in which new workloads are measured before they compete."""

    enabled: bool = option(
        True, "Measure a workload on each GPU type before its first job competes there."
    )
    iterations: int = option(
        20,
        "Most iterations that a profile run measures; it ends sooner when their mean is sure.",
        minimum=10,
        maximum=50,
    )
    time_limit_seconds: float = option(
        120.0, "A profile run that has not measured enough by then has failed.", above=0
    )
    retry_hours: float = option(
        24.0,
        "After a failed profile run its workload is not profiled on that GPU type for so long.",
        minimum=0,
    )
    share: float = option(
        0.1,
        "Share of each GPU type that profile runs may take at a time; one GPU at least.",
        minimum=0,
        maximum=1,
    )
    runs_per_user: int = option(
        4, "Profile runs that jobs of one user may have at a time.", minimum=1
    )

    @property
    def settings(self) -> ProfilingSettings:
        return ProfilingSettings(
            enabled=self.enabled,
            iterations=self.iterations,
            time_limit_seconds=self.time_limit_seconds,
            retry_seconds=self.retry_hours * 3600.0,
            share=self.share,
            runs_per_user=self.runs_per_user,
        )


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Figures shown by hopsctl status, and for Prometheus."""

    listen: ListenAddress = option(
        ListenAddress(""),
        "Where Prometheus may read /metrics: a Unix socket's path, or an address of this machine's"
        " own; empty: nowhere. Needs hops[metrics].",
    )
    raqlr_hours: float = option(
        24.0, "RAQLR is the mean latency ratio of jobs that ended in these hours.", above=0
    )


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The web page: docs/web.md. Needs hops[web]."""

    listen: ListenAddress = option(
        ListenAddress(""),
        "Where the page is served: a Unix socket's path, or an address of this machine's own;"
        " empty: nowhere.",
    )
    names: tuple[str, ...] = option(
        (),
        "Names by which a browser may call the page, besides localhost and this machine's own"
        " addresses; on a socket every name is accepted.",
    )
    user_header: str = option(
        "",
        "On a socket: the header in which a reverse proxy says who has logged in. Without it, every"
        " reader sees what a user without jobs may see.",
    )


@dataclass(frozen=True, slots=True)
class Config:
    """A validated hopsd.toml; ``Config()`` is the default of everything.

    ``throughput``: the operator's tables, samples per second per GPU, final.
    ``bandwidth``: the operator's, instead of what `hopsctl calibrate` found.
    ``racks``: nodes of each rack.
    ``given``: dotted paths of the keys that the file sets; ``path``: the file.
    """

    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    profiling: ProfilingConfig = field(default_factory=ProfilingConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    web: WebConfig = field(default_factory=WebConfig)
    throughput: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]] = field(
        default_factory=dict
    )
    bandwidth: Mapping[GpuType, Bandwidth] = field(default_factory=dict)
    racks: Mapping[RackName, tuple[NodeName, ...]] = field(default_factory=dict)
    given: frozenset[str] = field(default=frozenset(), compare=False)
    path: Path | None = field(default=None, compare=False)


SECTIONS: Mapping[str, type] = {
    "daemon": DaemonConfig,
    "slurm": SlurmConfig,
    "database": DatabaseConfig,
    "plan": PlanConfig,
    "knowledge": KnowledgeConfig,
    "profiling": ProfilingConfig,
    "metrics": MetricsConfig,
    "web": WebConfig,
}
