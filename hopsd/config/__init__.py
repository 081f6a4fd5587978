"""hopsd.toml: one typed schema; parser, `config show`, reference file and docs derive from it."""

from __future__ import annotations

from hopsd.config.load import DEFAULT_PATH, load, parse
from hopsd.config.mail_route import MailRoute
from hopsd.config.schema import (
    ApiConfig,
    Config,
    DaemonConfig,
    DatabaseConfig,
    HealthConfig,
    KnowledgeConfig,
    LogFormat,
    LogLevel,
    MetricsConfig,
    NotifyConfig,
    PlanConfig,
    PortName,
    ProfilingConfig,
    SignalTarget,
    SlurmConfig,
    WebConfig,
)

__all__ = [
    "DEFAULT_PATH",
    "ApiConfig",
    "Config",
    "DaemonConfig",
    "DatabaseConfig",
    "HealthConfig",
    "KnowledgeConfig",
    "LogFormat",
    "LogLevel",
    "MailRoute",
    "MetricsConfig",
    "NotifyConfig",
    "PlanConfig",
    "PortName",
    "ProfilingConfig",
    "SignalTarget",
    "SlurmConfig",
    "WebConfig",
    "load",
    "parse",
]
