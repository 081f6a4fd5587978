# ruff: noqa: RUF009 - option() is dataclasses.field with a description
"""The sections of hopsd.toml. Each field is one setting; the file's key is its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hopsd.config.listen import ListenAddress, NetworkAddress
from hopsd.config.mail_route import MailRoute
from hopsd.config.option import option
from hopsd.config.policy_name import PolicyName
from hopsd.config.secret_url import SecretUrl
from hopsd.core.interactive.settings import EndingSettings, SessionSettings
from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.core.snapshot.pinning import Unsaved
from hopsd.core.speed.throughput import Communication, IterationModel
from hopsd.model.ids import GpuType, NodeName, RackName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Bandwidth
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.model.privacy import Private

_PLAN = PlanSettings()

DEFAULT_POLICY = PolicyName("hops+")
PAPERS_POLICY = PolicyName(_PLAN.policy)
"""Also the default of snapshot files and library calls."""

# The operating system's timers accept at most a few weeks.
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


class WebhookFormat(StrEnum):
    SLACK = "slack"
    MATRIX = "matrix"


class SignalTarget(StrEnum):
    BATCH = "batch"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """The daemon: how often it reads Slurm and plans, and its socket."""

    refresh_seconds: float = option(
        30.0,
        "How often hopsd reads the cluster and plans for free GPUs.",
        minimum=1,
        maximum=_DAY,
    )
    wake_seconds: float = option(
        2.0,
        "How often hopsd asks slurmctld's counters (sdiag) whether a job was submitted while GPUs"
        " are idle, or ended while jobs wait; then it plans at once. 0: never.",
        minimum=0,
        maximum=_DAY,
    )
    round_seconds: float = option(
        1800.0,
        "Length of a round: running jobs compete again when one begins. Under hops+ it may end"
        " early (docs/policies.md), but not before 1/6 of its length and 60 s.",
        minimum=1,
        maximum=7 * _DAY,
    )
    socket: Path = option(
        Path("/run/hops/hopsd.sock"), "Unix socket through which every user may read the status."
    )
    private_data: tuple[str, ...] = option(
        (),
        "What ordinary users may not see, in addition to what slurm.conf's PrivateData hides:"
        " others' jobs, the nodes, others' usage.",
        choices=tuple(kind.value for kind in Private),
    )
    controllers: tuple[str, ...] = option(
        (),
        "Who has rights besides root and hopsd's own account: operators of Slurm may pause, resume"
        " and release; coordinators of an account may release its jobs.",
        choices=("operators", "coordinators"),
    )
    log_level: LogLevel = option(LogLevel.INFO, "The minimum severity of logged messages.")
    log_format: LogFormat = option(
        LogFormat.JSON, "json: one object per line; console: text for people."
    )


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """How hops reads and changes Slurm, and how it asks a job to save its work."""

    port: PortName = option(
        PortName.AUTO,
        "auto uses pyslurm if it fits the site's Slurm, else scontrol;"
        " shadow also plans for plain jobs, keeps a diary and changes nothing.",
    )
    partitions: tuple[str, ...] = option(
        (), "Partitions whose jobs and nodes hops manages; empty: all."
    )
    checkpoint_signal: str = option(
        "USR1",
        "Sent to a job before a move, so that it saves."
        " Unless USR1, set signal in hops_site.lua, too.",
        choices=("USR1", "USR2", "HUP", "INT", "TERM", "ALRM", "URG", "XCPU"),
    )
    signal_scope: SignalTarget = option(
        SignalTarget.BATCH, "Who gets the signal: the batch script alone, or all steps of the job."
    )
    checkpoint_grace_seconds: float = option(
        60.0,
        "Time between the signal and the requeue; a script's own --signal=SIG@seconds takes"
        " precedence.",
        minimum=0,
    )
    longest_grace_seconds: float = option(
        300.0,
        "Upper limit on the time that a script may request with --signal: the jobs that get its"
        " GPUs wait that long.",
        minimum=0,
    )
    stop_timeout_seconds: float = option(
        60.0,
        "How long a requeued job may take to leave its nodes, including Slurm's KillWait and the"
        " epilog; after that a later plan handles it.",
        above=0,
    )
    start_timeout_seconds: float = option(
        30.0,
        "How long a released job may take to start, counted from the last release or start of its"
        " plan, and at most a minute longer in total; after that hops holds it again and postpones"
        " jobs not yet released to the next plan.",
        above=0,
    )
    cpus_per_gpu: int = option(1, "CPU cores that a job gets for each GPU.", minimum=1)
    kept_cores: int = option(
        1,
        "Cores left unused on each CPU node (type cpu); the others are shared among its CPUs.",
        minimum=0,
    )
    command_timeout_seconds: float = option(
        30.0, "A Slurm command or call that takes longer counts as failed.", above=0, maximum=_DAY
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
        "hops and its variants, not hops+: weight of priority. 0 plans for efficiency alone, large"
        " values for fairness.",
        key="lambda",
        minimum=0,
    )
    sigma: float = option(
        _PLAN.sigma,
        "Jobs that spreading slows down by more than this factor stay on one server if one can hold"
        " them; hops+ spreads where it pays.",
        above=0,
    )
    gap: float = option(
        _PLAN.gap,
        "Relative gap at which the solver stops: (bound - objective) / bound.",
        minimum=0,
        maximum=1,
    )
    time_limit_seconds: float = option(
        _PLAN.time_limit_seconds,
        "Time limit of a whole plan, in seconds.",
        key="time_limit",
        above=0,
        maximum=_DAY,
    )
    priority: PriorityName = option(
        _PLAN.priority,
        "Order of the queue. fair_share, qos: the latency ratio times Slurm's fair-share factor, or"
        " the QOS' priority; fair_share_first, qos_first: these first, then the latency ratio."
        " hops+ adds the square to other terms: there sjf, srtf and las are too small to count.",
    )
    policy: PolicyName = option(
        DEFAULT_POLICY, "The scheduling policy; with paper_exact the default is hops."
    )
    paper_exact: bool = option(
        _PLAN.paper_exact,
        "Plan exactly as the paper describes, without later additions. Not with hops+, which the"
        " paper does not have.",
    )
    seed: int = option(_PLAN.seed, "Seed of every random choice.", minimum=0)
    filter_share: float = option(
        _PLAN.filter_share,
        "themis: share of the apps, those closest to a fair finish, that auctions leave out (f).",
        minimum=0,
        maximum=1,
    )
    lease_seconds: float = option(
        _PLAN.lease_seconds,
        "themis and its rivals: how long GPUs are leased; then the next round offers them again.",
        minimum=0,
    )
    alpha: float = option(
        _PLAN.alpha,
        "allox: share of the users, those with the least progress, whose jobs it considers.",
        minimum=0,
        maximum=1,
    )
    overdue_ratio: float = option(
        _PLAN.overdue_ratio,
        "fair_share_first, qos_first: jobs with a latency ratio above this come before them, on a"
        " tenth of the GPUs.",
        minimum=0,
    )
    tail_weight: float = option(
        _PLAN.tail_weight,
        "hops+: weight of the job that will end last. Above 0 the makespan and the 99th"
        " percentile are shorter, but a job can gain by having more to do (docs/policies.md).",
        minimum=0,
        maximum=10,
    )
    restart_cost: bool = option(
        True, "Count the time that a restart takes against moving a running job."
    )
    pinned: bool = option(True, "A job submitted with preempt=no keeps its GPUs until it ends.")
    unsaved: Unsaved = option(
        Unsaved.STAYS,
        "Running jobs that handle no signal (--signal, trap) and were never seen to save: they stay"
        " in place, even if hops sees no training; stay only if hops sees their PyTorch training;"
        " or may be moved.",
    )
    requirements_max: int = option(
        8,
        "Maximum number of GPU counts kept of a range such as reqs=1-16.",
        minimum=2,
        maximum=65536,
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
            overdue_ratio=self.overdue_ratio,
            tail_weight=self.tail_weight,
        )


@dataclass(frozen=True, slots=True)
class KnowledgeConfig:
    """Job speeds: when measurements count, and assumptions without them."""

    min_records: int = option(
        3, "Reports of one shape before measurements outweigh the model.", minimum=1
    )
    half_life_days: float = option(7.0, "A report counts half as much after this time.", above=0)
    report_dir: Path = option(
        Path("/var/spool/hops/reports"), "Folder in which jobs store their throughput reports."
    )
    default_age_seconds: float = option(
        3600.0,
        "Expected run time of a job without samples, comparable past runs or a time limit.",
        above=0,
    )
    assumed_sensitivity: float = option(
        1.5, "Assumed slowdown by spreading of a job that was never measured.", minimum=1
    )
    assumed_gpu_speedup: float = option(
        4.0, "Assumed speed of a GPU relative to a CPU, if one was never measured.", above=0
    )
    assumed_restart_seconds: float = option(
        30.0,
        "Assumed time of a restart where none was measured, so that no move is free."
        " Ignored with paper_exact or without plan.restart_cost.",
        minimum=0,
    )
    communication: Communication = option(
        Communication.SWITCHED,
        "Model of the time that gradients take between servers: paper uses params / b_net for"
        " every shape; ring and switched also count GPUs and servers (docs/estimator.md). With"
        " paper_exact always paper.",
    )
    exposed_share: float = option(
        IterationModel().exposed_share,
        "Part of the communication that never overlaps with the backward pass.",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True, slots=True)
class InteractiveConfig:
    """Sessions (interactive in the comment): srun, salloc, Jupyter. They start before others."""

    reserve: int = option(
        0,
        "GPUs that only jobs seen to save may hold besides the sessions, so that a session finds"
        " room within seconds: about as many as sessions ask for in a minute.",
        minimum=0,
    )
    user_gpus: int = option(4, "The most GPUs that one user's sessions hold.", minimum=1)
    share: float = option(
        0.25,
        "Share of the GPUs that all sessions together may hold; at least one GPU.",
        above=0,
        maximum=1,
    )
    idle_minutes: float = option(
        0.0,
        "A session that uses no processor time for this long is warned, then ended if still idle."
        " 0: never. Set JobAcctGatherType=jobacct_gather/cgroup in slurm.conf: /linux does not"
        " count programs that begin and end between two readings, as a shell's do.",
        minimum=0,
    )
    hours: float = option(
        0.0, "A session that has run for this long is warned and ended. 0: never.", minimum=0
    )
    warning_minutes: float = option(
        5.0, "Time between a session's warning (scontrol notify) and its end.", minimum=1
    )

    @property
    def settings(self) -> SessionSettings:
        return SessionSettings(self.reserve, self.user_gpus, self.share)

    @property
    def ending(self) -> EndingSettings:
        return EndingSettings(
            self.idle_minutes * 60.0, self.hours * 3600.0, self.warning_minutes * 60.0
        )


@dataclass(frozen=True, slots=True)
class ProfilingConfig:
    """Short runs on one GPU that measure a workload before its first job competes."""

    enabled: bool = option(
        True, "Measure the workloads of jobs that ask for it (profile=yes) on each GPU type first."
    )
    new_workloads: bool = option(
        False,
        "Measure every new workload first, as the Hops paper does (section 3.2). The first job of"
        " each then starts once more on each GPU type and is stopped; its script must tolerate"
        " that.",
    )
    iterations: int = option(
        20,
        "Maximum iterations that a profile run measures; it ends once their mean is known.",
        minimum=10,
        maximum=50,
    )
    time_limit_seconds: float = option(
        120.0, "A profile run without enough measurements by then counts as failed.", above=0
    )
    retry_hours: float = option(
        24.0,
        "How long after a failed profile run its workload is not profiled on that GPU type again.",
        minimum=0,
    )
    share: float = option(
        0.1,
        "Share of each GPU type that profile runs may use at a time; at least one GPU.",
        minimum=0,
        maximum=1,
    )
    runs_per_user: int = option(
        4, "Profile runs that one user's jobs may have at a time.", minimum=1
    )

    @property
    def settings(self) -> ProfilingSettings:
        return ProfilingSettings(
            enabled=self.enabled,
            new_workloads=self.new_workloads,
            iterations=self.iterations,
            time_limit_seconds=self.time_limit_seconds,
            retry_seconds=self.retry_hours * 3600.0,
            share=self.share,
            runs_per_user=self.runs_per_user,
        )


def _listen(purpose: str, needs: str) -> Any:
    """The setting of an address that only this machine can reach."""
    address = "the path of a Unix socket, or a port on a loopback address; empty: off."
    return option(ListenAddress(""), f"{purpose}: {address} {needs}")


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Figures for hopsctl status and Prometheus."""

    listen: ListenAddress = _listen("Where Prometheus may read /metrics", "Needs hops[metrics].")
    raqlr_hours: float = option(
        24.0,
        "RAQLR is the mean latency ratio of jobs that ended within this many hours.",
        above=0,
    )


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """What hops does about nodes that break jobs, hung and idle jobs: docs/health.md."""

    drain: bool = option(
        False,
        "Drain nodes that break jobs: more runs failed there than by chance, of at least two"
        " workloads. Each node at most once in 30 days.",
    )
    drain_nodes_max: int = option(
        1, "No node is drained while this many that break jobs take no work.", minimum=1
    )
    avoid: bool = option(
        False,
        "Start no job on nodes that break jobs, where other nodes can hold it: at most a tenth of"
        " the nodes of each GPU type, or one of two to nine. What runs there stays.",
    )
    requeue_hung_minutes: float = option(
        0.0,
        "Requeue a training that hangs and uses no processor time for this many minutes; 0: never.",
        minimum=0.0,
    )
    requeue_idle_minutes: float = option(
        0.0,
        "Requeue a job whose processes do nothing for this many minutes; 0: never. Its user is"
        " told ten minutes before.",
        minimum=0.0,
    )
    shrink_unused_minutes: float = option(
        0.0,
        "Requeue an elastic job for fewer GPUs if its trainings use only some for this many"
        " minutes, and the driver sees no process on the others; 0: never. Its user is told ten"
        " minutes before.",
        minimum=0.0,
    )


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The web page: docs/web.md."""

    listen: ListenAddress = _listen("Where the page is served", "Needs hops[web].")
    names: tuple[str, ...] = option(
        (),
        "Host names under which a browser may open the page, besides localhost and this machine's"
        " own addresses; on a socket every name is accepted.",
    )
    user_header: str = option(
        "",
        "On a socket: the header in which a reverse proxy passes the logged-in user. Without it,"
        " readers see only what a user without jobs may see.",
    )
    job_links: tuple[str, ...] = option(
        (),
        "Links on a job's page, each a title and an address, such as"
        " 'GPUs https://grafana.site/d/gpus?var-job={job}&from={start}&to={end}' or"
        " 'Log https://ondemand.site/pun/sys/files/fs{log}'; {user} is accepted, too.",
        link_fields=("job", "user", "log", "start", "end"),
    )
    node_links: tuple[str, ...] = option(
        (), "The same on a node's page, with {node}.", link_fields=("node",)
    )


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """hopsctl on other hosts, and programs: docs/rest.md."""

    listen: NetworkAddress = option(
        NetworkAddress(""),
        "Where hopsd answers other hosts, whose users it knows by MUNGE: an IP address and a port;"
        " empty: off. Needs hops[web].",
    )
    munge_socket: str = option("", "munged's socket; empty: libmunge's default.")


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """What hops tells a chat, users and admins by itself: docs/notify.md."""

    webhook: SecretUrl = option(
        SecretUrl(""),
        "URL that messages about jobs are posted to; empty: off. It is a secret: let only hopsd's"
        " account read the file.",
        secret=True,
    )
    format: WebhookFormat = option(
        WebhookFormat.SLACK,
        "slack: incoming webhooks of Slack, Mattermost and the like; matrix: a generic webhook of"
        " matrix-hookshot.",
    )
    kinds: tuple[str, ...] = option(
        ("failed", "stuck"),
        "What to report: jobs that are done, failed, run on fewer GPUs than before, or are stuck.",
        choices=("done", "failed", "fewer", "stuck"),
    )
    stuck_hours: float = option(
        24.0,
        "A job is stuck if, after this time, it waits for a limit or cannot run at all.",
        above=0,
    )
    mail: MailRoute = option(
        MailRoute(""),
        "How mails are sent: an SMTP server, or a program that is called as mail(1) and needs no"
        " setuid helper (docs/notify.md); empty: no mails. Users get what `hopsctl notify` or"
        " --mail-type says.",
    )
    mail_from: str = option("hops", "Sender of mails by SMTP.")
    mails_per_hour: int = option(
        6, "Mails to one user; further messages wait, and go in one mail.", minimum=1
    )
    admins: tuple[str, ...] = option(
        (), "Addresses that get a mail about the last day: use, ends, nodes, stuck jobs."
    )
    digest_hour: int = option(
        7, "Hour of the day (local time) from which the admins get it.", minimum=0, maximum=23
    )


@dataclass(frozen=True, slots=True)
class Config:
    """A validated hopsd.toml; ``Config()`` is the default of everything.

    ``throughput``: the operator's tables (samples per second per GPU), never overridden.
    ``bandwidth``: the operator's values, which override those of `hopsctl calibrate`.
    ``racks``: nodes of each rack.
    ``explicit_keys``: dotted paths of the keys that the file sets; ``path``: the file.
    ``warnings``: messages about keys that have no effect.
    """

    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    interactive: InteractiveConfig = field(default_factory=InteractiveConfig)
    profiling: ProfilingConfig = field(default_factory=ProfilingConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    web: WebConfig = field(default_factory=WebConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
    throughput: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]] = field(
        default_factory=dict
    )
    bandwidth: Mapping[GpuType, Bandwidth] = field(default_factory=dict)
    racks: Mapping[RackName, tuple[NodeName, ...]] = field(default_factory=dict)
    explicit_keys: frozenset[str] = field(default=frozenset(), compare=False)
    path: Path | None = field(default=None, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)


REMOVED_KEYS = frozenset({"plan.try_shapes"})
"""Settings of earlier releases that have no effect now; a file with one gets a warning."""


SECTIONS: Mapping[str, type] = {
    "daemon": DaemonConfig,
    "slurm": SlurmConfig,
    "database": DatabaseConfig,
    "plan": PlanConfig,
    "knowledge": KnowledgeConfig,
    "interactive": InteractiveConfig,
    "profiling": ProfilingConfig,
    "metrics": MetricsConfig,
    "health": HealthConfig,
    "web": WebConfig,
    "api": ApiConfig,
    "notify": NotifyConfig,
}
