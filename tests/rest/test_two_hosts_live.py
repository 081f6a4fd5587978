"""hopsctl on another host with its own network and munged, no Slurm, and the site's key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("flask")
from daemon_site import Site
from munged import run_munged

from examples.demo.cluster import free_ports
from hopsd.rest.contract import operations

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.getuid() != 0 or which("ip") is None or which("curl") is None,
        reason="needs root, ip (package iproute2) and curl",
    ),
]
HOPSCTL = Path(sys.executable).parent / "hopsctl"
_NUMBERS = count(1)


@dataclass
class Host:
    """A network namespace whose address only this machine reaches."""

    pid: int
    address: str
    """This machine's address, as the other host sees it."""
    environment: Mapping[str, str]

    def run(self, *words: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--net=/proc/{self.pid}/ns/net", *self._user_prefix(user), *words],
            env={"PATH": os.environ["PATH"], **self.environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @staticmethod
    def _user_prefix(user: int) -> list[str]:
        return ["setpriv", f"--reuid={user}", "--clear-groups"] if user else []

    def output_of(self, *words: str, user: int = 0) -> str:
        result = self.run(*words, user=user)
        assert result.returncode == 0, result.stderr
        return result.stdout


@contextmanager
def host(environment: Mapping[str, str]) -> Iterator[Host]:
    link = f"hops{os.getpid() % 100000}x{next(_NUMBERS)}"
    peer_link, own_link = f"{link}a", f"{link}b"
    net = f"10.{os.getpid() % 200 + 20}.{next(_NUMBERS)}"
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; exec sleep 600"], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                pytest.skip("this machine lets nobody make a network namespace")
            for words in (
                f"link add {own_link} type veth peer name {peer_link} netns {process.pid}",
                f"addr add {net}.1/24 dev {own_link}",
                f"link set {own_link} up",
            ):
                subprocess.run(["ip", *words.split()], check=True)
            remote_host = Host(process.pid, f"{net}.1", environment)
            remote_host.output_of("ip", "addr", "add", f"{net}.2/24", "dev", peer_link)
            remote_host.output_of("ip", "link", "set", peer_link, "up")
            yield remote_host
        finally:
            process.kill()
            subprocess.run(["ip", "link", "del", own_link], check=False, capture_output=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def port(site: Site) -> int:
    """The port of hopsd's API, on all addresses."""
    (port,) = free_ports(1)
    socket = site.folder / "munge.sock"
    site.hopsd.configure(tables=f'[api]\nlisten = "0.0.0.0:{port}"\nmunge_socket = "{socket}"\n')
    site.hopsd.start()
    return port


@pytest.mark.long
def test_hopsctl_works_on_another_host(site: Site, port: int, folder: Path) -> None:
    job = site.submit("hops:reqs=1", 600.0)
    site.hopsd.wait_for(lambda status: len(status["running"]) == 1)
    key = (site.folder / "munge.key").read_bytes()
    with (
        run_munged(folder / "munge", key) as socket,
        host({"HOPS_MUNGE_SOCKET": socket}) as remote_host,
    ):
        server = f"{remote_host.address}:{port}"
        remote_host.environment = {**remote_host.environment, "HOPS_SERVER": server}
        status = json.loads(remote_host.output_of(str(HOPSCTL), "status", "--json"))
        assert [row["id"] for row in status["running"]] == [job]
        assert job in remote_host.output_of(str(HOPSCTL), "explain", job)
        assert (
            "no hopsd answers"
            in remote_host.run(str(HOPSCTL), "status", "--socket=/nowhere").stderr
        )
        # Users who may pause hopsd here may also pause it from there, and nobody else may.
        assert "paused" in remote_host.output_of(str(HOPSCTL), "pause")
        assert site.hopsd.status()["mode"] == "paused"
        remote_host.output_of(str(HOPSCTL), "resume")
        # An ordinary user with curl.
        ask = (
            "curl --silent --fail-with-body --header"
            f' "Authorization: MUNGE $(printf "GET $0" | munge --socket={socket})"'
            f' "http://{server}$0"'
        )
        curl = remote_host.run("bash", "-c", ask, "/v1/status?most=1", user=65534)
        assert json.loads(curl.stdout)["totals"]["running"] == 1
        post = ask.replace('"GET', '"POST').replace("--silent", "--silent --request POST")
        result = remote_host.run("bash", "-c", post, "/v1/pause", user=65534)
        assert result.returncode != 0
        assert "pause is for root" in json.loads(result.stdout)["error"]


def test_a_host_without_the_key_gets_nothing(site: Site, port: int, folder: Path) -> None:
    with (
        run_munged(folder / "munge", b"x" * 64) as socket,
        host({"HOPS_MUNGE_SOCKET": socket}) as remote_host,
    ):
        remote_host.environment = {
            **remote_host.environment,
            "HOPS_SERVER": f"{remote_host.address}:{port}",
        }
        result = remote_host.run(str(HOPSCTL), "status")
        assert (result.returncode, result.stdout) == (4, "")
        assert "Invalid credential" in result.stderr


@pytest.mark.usefixtures("port")
def test_every_command_of_the_socket_is_in_the_api(site: Site) -> None:
    from hopsd.ctl.daemon_client import ask  # noqa: PLC0415
    from hopsd.errors import InputError  # noqa: PLC0415

    with pytest.raises(InputError) as error:
        ask(site.hopsd.socket, "nothing")
    commands = str(error.value).partition("accepted: ")[2].split(", ")
    assert set(commands) == set(operations())
