"""`auto` uses pyslurm if it fits the site's Slurm, and otherwise says why it does not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hopsd.config.schema import PortName, SlurmConfig
from hopsd.errors import SlurmError
from hopsd.slurm import port_choice, pyslurm_adapter
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.scontrol import ScontrolAdapter


class Site(SlurmCommands):
    """Commands of a site with Slurm 25.11."""

    def run(self, *arguments: str) -> str:
        if arguments == ("scontrol", "show", "config"):
            return "KillWait                = 90 sec\n"
        assert arguments == ("scontrol", "--version")
        return "slurm 25.11.3\n"


@pytest.fixture
def pyslurm_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, ...] | None], None]:
    """Pretend that pyslurm of a certain release is installed, or none."""

    def pretend(release: tuple[int, ...] | None) -> None:
        def load(_: SlurmCommands) -> Any:
            if release is None:
                raise SlurmError("pyslurm does not load: No module named 'pyslurm'")
            return SimpleNamespace(slurm_api_version=lambda: release)

        class Adapter(ScontrolAdapter):
            name = "pyslurm"

        monkeypatch.setattr(pyslurm_adapter, "load_pyslurm", load)
        monkeypatch.setattr(pyslurm_adapter, "PyslurmAdapter", Adapter)

    return pretend


@pytest.mark.parametrize(
    ("name", "pyslurm_version", "expected_port", "reason"),
    [
        (PortName.AUTO, (25, 11, 3), "pyslurm", "fits Slurm 25.11"),
        (PortName.AUTO, (26, 5, 0), "scontrol", "built for Slurm 26.05: install the one for 25.11"),
        (PortName.AUTO, None, "scontrol", "No module named"),
        (PortName.SCONTROL, (25, 11, 3), "scontrol", "as configured"),
        (PortName.PYSLURM, (25, 11, 0), "pyslurm", "as configured"),
        (PortName.SHADOW, (25, 11, 3), "shadow", "reads through pyslurm"),
        (PortName.SHADOW, None, "shadow", "reads through scontrol"),
    ],
)
def test_auto_chooses_pyslurm_if_it_fits(
    pyslurm_of: Callable[[tuple[int, ...] | None], None],
    name: PortName,
    pyslurm_version: tuple[int, ...] | None,
    expected_port: str,
    reason: str,
) -> None:
    pyslurm_of(pyslurm_version)
    port, sentence = port_choice.choose_port(SlurmConfig(port=name), Site())
    assert port.name == expected_port
    assert reason in sentence


@pytest.mark.parametrize("pyslurm_version", [(24, 11, 5), None])
def test_a_required_pyslurm_that_does_not_fit_is_an_error(
    pyslurm_of: Callable[[tuple[int, ...] | None], None], pyslurm_version: tuple[int, ...] | None
) -> None:
    pyslurm_of(pyslurm_version)
    with pytest.raises(SlurmError, match="pyslurm"):
        port_choice.choose_port(SlurmConfig(port=PortName.PYSLURM), Site())


def test_scontrol_never_imports_pyslurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it without a slurm.conf ends the process."""

    def load(_: SlurmCommands) -> Any:
        raise AssertionError("loaded")

    monkeypatch.setattr(pyslurm_adapter, "load_pyslurm", load)
    port, _ = port_choice.choose_port(SlurmConfig(port=PortName.SCONTROL), Site())
    assert port.name == "scontrol"


def test_settings_come_from_the_configuration() -> None:
    config = SlurmConfig(
        checkpoint_signal="USR2", checkpoint_grace_seconds=7.0, cpus_per_gpu=3, kept_cores=2
    )
    settings = port_choice.apply_settings(config)
    assert settings.checkpoint_signal == "USR2"
    assert settings.grace_seconds == 7.0
    assert settings.cpus_per_gpu == 3
    assert settings.kept_cores == 2


def test_a_long_kill_wait_extends_the_stop_timeout() -> None:
    """Regression: a job that Slurm kills only after 90 s was given up after 60 s."""
    seconds = port_choice.kill_wait(Site())
    assert seconds == 90.0
    assert port_choice.apply_settings(SlurmConfig(), seconds).stop_timeout_seconds == 120.0
    assert port_choice.apply_settings(SlurmConfig()).stop_timeout_seconds == 60.0
