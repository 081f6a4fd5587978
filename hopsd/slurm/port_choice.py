"""Chooses the site's port: pyslurm, scontrol or shadow."""

from __future__ import annotations

import re
from collections.abc import Callable

from hopsd.config.schema import PortName, SlurmConfig
from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.slurm.adapter import Adapter, SignalScope
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.ask import slurm_conf
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.fenced import FencedAdapter
from hopsd.slurm.port import Port
from hopsd.slurm.probe.clock import SlurmClock
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.shadow.port import ShadowPort
from hopsd.slurm.steps.vacate import SaveWatch
from hopsd.slurm.watch import ApplySettings

Release = tuple[int, int]

EPILOG_SECONDS = 30.0
"""Time allowed for the epilog of a job that used all of KillWait."""

PATIENCE_SECONDS = 3.0
"""How long one tick waits while its steps are carried out. Most jobs have started by then."""


def choose_port(
    config: SlurmConfig,
    commands: SlurmCommands | None = None,
    *,
    assure: Callable[[], None] | None = None,
    note_answer: Callable[[], None] = lambda: None,
    saves: SaveWatch = lambda job: None,  # noqa: ARG005
) -> tuple[Port, str]:
    """Return the port that ``config.port`` selects, and a sentence that says which it is and why.

    ``assure`` is called before each write to Slurm; an error from it ends the apply.
    ``note_answer`` is called before ``assure`` and after each reading. ``saves`` tells when jobs
    save.

    Raises:
        SlurmError: pyslurm is configured but cannot be used; the message says why.
        SlurmUnavailableError: Slurm's commands are missing or have no configuration.
    """
    commands = commands or SlurmCommands(config.command_timeout_seconds)
    release = site_release(commands)
    clock = SlurmClock(commands)
    adapter, reason = _adapter(config, commands, release, clock)
    if assure is not None:
        adapter = FencedAdapter(adapter, assure, note_answer)
    settings = apply_settings(config, kill_wait(commands))
    port = SlurmPort(adapter, settings, clock=clock, saves=saves)
    if config.port is PortName.SHADOW:
        return ShadowPort(port), f"shadow, as configured: reads through {reason}, changes nothing"
    return port, reason


def kill_wait(commands: SlurmCommands) -> float:
    """Seconds between SIGTERM and SIGKILL when Slurm ends a job (KillWait in slurm.conf(5)); 0 if
    slurmctld does not answer.
    """
    try:
        text = slurm_conf(commands).get("KillWait", "")
    except SlurmUnavailableError:  # hopsd starts all the same
        return 0.0
    return float(text.split()[0]) if text[:1].isdigit() else 0.0


def apply_settings(config: SlurmConfig, kill_wait: float = 0.0) -> ApplySettings:
    """The settings of ``apply`` from the configuration. A requeue is given up only after all of
    Slurm's ``kill_wait`` seconds and time for an epilog.
    """
    return ApplySettings(
        checkpoint_signal=config.checkpoint_signal,
        signal_scope=SignalScope(config.signal_scope.value),
        grace_seconds=config.checkpoint_grace_seconds,
        longest_grace_seconds=config.longest_grace_seconds,
        stop_timeout_seconds=max(config.stop_timeout_seconds, kill_wait + EPILOG_SECONDS),
        start_timeout_seconds=config.start_timeout_seconds,
        cpus_per_gpu=config.cpus_per_gpu,
        kept_cores=config.kept_cores,
        patience_seconds=PATIENCE_SECONDS,
    )


def site_release(commands: SlurmCommands) -> Release:
    """Year and month of the site's Slurm, such as (22, 5)."""
    output = commands.run("scontrol", "--version")
    match = re.search(r"(\d+)\.(\d+)", output)
    if match is None:
        raise SlurmError(f"scontrol --version: no release in {output.strip()!r}")
    return int(match[1]), int(match[2])


def _adapter(
    config: SlurmConfig, commands: SlurmCommands, release: Release, clock: SlurmClock
) -> tuple[Adapter, str]:
    version = _version_text(release)
    if config.port is PortName.SCONTROL:
        return _scontrol(config, commands, clock), f"scontrol, as configured, with Slurm {version}"
    try:
        adapter = _pyslurm(config, commands, release, clock)
    except SlurmUnavailableError:
        raise
    except SlurmError as error:
        if config.port is PortName.PYSLURM:
            raise
        return _scontrol(config, commands, clock), f"scontrol with Slurm {version}: {error}"
    if config.port is PortName.PYSLURM:
        return adapter, f"pyslurm, as configured, with Slurm {version}"
    return adapter, f"pyslurm: it fits Slurm {version}"


def _scontrol(config: SlurmConfig, commands: SlurmCommands, clock: SlurmClock) -> ScontrolAdapter:
    return ScontrolAdapter(
        commands, partitions=config.partitions, clock=clock, shadow=_shadow(config)
    )


def _pyslurm(
    config: SlurmConfig, commands: SlurmCommands, release: Release, clock: SlurmClock
) -> Adapter:
    """Return an adapter whose library is built for the site's release.

    Raises:
        SlurmError: pyslurm is missing, does not load or was built for another release.
    """
    # Imported here: pyslurm is optional, and its adapter is useless without it.
    from hopsd.slurm.pyslurm_adapter import PyslurmAdapter, load_pyslurm  # noqa: PLC0415

    module = load_pyslurm(commands)
    made_for = tuple(module.slurm_api_version()[:2])
    if made_for != release:
        raise SlurmError(
            f"pyslurm was built for Slurm {_version_text(made_for)}: install the one for"
            f" {_version_text(release)}"
        )
    return PyslurmAdapter(
        commands, partitions=config.partitions, clock=clock, shadow=_shadow(config)
    )


def _shadow(config: SlurmConfig) -> bool:
    return config.port is PortName.SHADOW


def _version_text(release: tuple[int, ...]) -> str:
    return f"{release[0]}.{release[1]:02}"
