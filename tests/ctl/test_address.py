"""Where hopsctl looks for hopsd."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopsd.ctl import address
from hopsd.ctl.address import default_address, parse_address
from hopsd.errors import InputError
from hopsd.rest.client import Server


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on which no hopsd runs."""
    for name in (address.SOCKET_VARIABLE, address.SERVER_VARIABLE, address.MUNGE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(address, "CLIENT_FILE", tmp_path / "hopsctl.toml")
    monkeypatch.setattr(address, "DEFAULT_SOCKET", tmp_path / "hopsd.sock")
    return tmp_path


def test_one_line_names_the_server(host: Path) -> None:
    assert default_address() == host / "hopsd.sock"
    (host / "hopsctl.toml").write_text('server = "ctl1:6822"\n')
    assert default_address() == Server("ctl1", 6822)


def test_hopsctl_prefers_the_socket_on_hopsds_host(host: Path) -> None:
    (host / "hopsctl.toml").write_text('server = "ctl1:6822"\n')
    (host / "hopsd.sock").touch()
    assert default_address() == host / "hopsd.sock"


def test_environment_variables_override_the_file(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = 'munge_socket = "/run/m"\naccount = "slurm"\n'
    (host / "hopsctl.toml").write_text(f'server = "ctl1:6822"\n{settings}')
    monkeypatch.setenv("HOPS_SERVER", "[::1]:7")
    assert default_address() == Server("::1", 7, "/run/m", "slurm")
    monkeypatch.setenv("HOPS_MUNGE_SOCKET", "/run/n")
    assert default_address() == Server("::1", 7, "/run/n", "slurm")
    monkeypatch.setenv("HOPS_SOCKET", "/run/s")
    assert default_address() == Path("/run/s")


def test_an_address_is_a_path_or_a_host_with_a_port() -> None:
    assert parse_address("/run/a:7") == Path("/run/a:7")
    assert parse_address("hopsd.sock") == Path("hopsd.sock")
    assert parse_address("ctl1:7") == Server("ctl1", 7)


@pytest.mark.parametrize("text", [":7", "ctl1:", "ctl1:0", "ctl1:65536", "ctl1:x", "ctl1:7²"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="give HOST:PORT, as in ctl1:6822"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('host = "ctl1"', "host: accepted keys are server, munge_socket, account"),
        ("server = 7", "server: give a string"),
        ("server = ", "hopsctl.toml: "),
        ('server = "ctl1"', "hopsctl.toml: server: 'ctl1'; give HOST:PORT"),
    ],
)
def test_an_invalid_file_is_named(host: Path, text: str, message: str) -> None:
    (host / "hopsctl.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        default_address()
