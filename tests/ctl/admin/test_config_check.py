"""`hopsctl config check` names settings that are valid alone but useless or harmful."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hopsd.ctl.admin import config as command
from hopsd.ctl.admin import config_check
from hopsd.ctl.admin.config import config
from hopsd.errors import SlurmError, SlurmUnavailableError

PARTITIONS = "PartitionName=gpu Default=YES\nPartitionName=night Default=NO\n"
NODES = "NodeName=n0 Gres=gpu:a100:4\nNodeName=n1 Gres=gpu:v100:2,nvme:1\n"
CONF = (
    "ClusterName = lab\nJobAcctGatherType = jobacct_gather/none\nSlurmctldPort = 6817-6819\n"
    "SlurmdPort = 6828\n"
)


class Slurm:
    """A Slurm whose scontrol answers."""

    def __init__(self, _seconds: float) -> None: ...

    def run(self, *words: str) -> str:
        return {"partition": PARTITIONS, "node": NODES, "config": CONF}[words[2]]


class NoSlurm(Slurm):
    """Slurm is not installed on this machine."""

    def run(self, *words: str) -> str:
        raise SlurmUnavailableError(f"{' '.join(words)}: No such file or directory")


@pytest.fixture(autouse=True)
def slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SlurmCommands", Slurm)


def check(folder: Path, text: str, mode: int = 0o644) -> Result:
    path = folder / "hopsd.toml"
    path.write_text(text)
    path.chmod(mode)
    return CliRunner().invoke(config, ["check", "--account=nobody-here", str(path)])


MISTAKES = {
    '[slurm]\npartitions = ["gpus"]': (
        "slurm.partitions: Slurm has no partition gpus; did you mean gpu?"
    ),
    '[racks]\nr1 = "n[0-3]"': "racks.r1: Slurm has no node n2 and 1 more",
    '[racks]\nr1 = "x9"': "racks.r1: Slurm has no node x9; it has n0, n1",
    '[database]\ndsn = "dbnam=hops"': "database.dsn is not a libpq connection string or URI",
    '[database]\ndsn = "dbname=hops password=geheim"': (
        "database.dsn has a password, and every user may read the file"
    ),
    '[metrics]\nlisten = "127.0.0.1:7007"\n[web]\nlisten = "127.0.0.1:7007"': (
        "metrics.listen and web.listen are the same address, 127.0.0.1:7007"
    ),
    '[metrics]\nlisten = "127.0.0.1:7007"\n[api]\nlisten = "0.0.0.0:7007"': (
        "metrics.listen and api.listen are the same address, 0.0.0.0:7007"
    ),
    '[daemon]\nsocket = "/run/a"\n[web]\nlisten = "/run/a"': (
        "daemon.socket and web.listen are the same address, /run/a"
    ),
    "[slurm]\ncheckpoint_grace_seconds = 400": (
        "slurm.checkpoint_grace_seconds is 400; accepted: at most longest_grace_seconds = 300"
    ),
    "[daemon]\nround_seconds = 60\n[plan]\ntime_limit = 90": (
        "plan.time_limit is 90; accepted: at most daemon.round_seconds = 60"
    ),
    '[web]\nlisten = "127.0.0.1:7007"\nuser_header = "X-User"': (
        "web.user_header has no effect: web.listen is 127.0.0.1:7007"
    ),
    '[web]\nlisten = "/run/w"\nnames = ["gpus.site"]': (
        "web.names has no effect: web.listen is a socket, where every name is accepted"
    ),
    '[web]\nnames = ["gpus.site"]': "web.names has no effect: web.listen is empty",
    '[notify]\nadmins = ["hpc@site"]': "notify.admins has no effect: notify.mail is empty",
    '[notify]\nmail = "smtp://mail"\nadmins = ["hpc@site, me@site"]': (
        "notify.admins: 'hpc@site, me@site' is not a mail address"
    ),
    '[notify]\nmail = "/usr/bin/mial"': (
        "notify.mail: /usr/bin/mial is not a program on this machine"
    ),
    '[notify]\nmail = "/usr/bin"': "notify.mail: /usr/bin is not a program on this machine",
    '[notify]\nwebhook = "http://chat.site/geheim"\nkinds = []': (
        "notify.webhook has no effect: notify.kinds is empty"
    ),
    "[bandwidth.a10]\nb_link = 1.0\nb_net = 1.0": (
        "bandwidth.a10: Slurm has no GPU type a10; did you mean a100?"
    ),
    '[throughput.bert.h200]\naggregated = { "1" = 9.0 }': (
        "throughput.bert.h200: Slurm has no GPU type h200; it has a100, v100"
    ),
    '[web]\nlisten = "127.0.0.1:80"': (
        "web.listen is 127.0.0.1:80: hopsd is not root; give a port from 1024"
    ),
    '[api]\nlisten = "203.0.113.9:6822"': (
        "api.listen is 203.0.113.9:6822: this machine cannot listen there"
    ),
    '[api]\nlisten = "0.0.0.0:6818"': (
        "api.listen is 0.0.0.0:6818: that is slurm.conf's SlurmctldPort; give another port"
    ),
    '[api]\nlisten = "127.0.0.1:6822"\nmunge_socket = "/none"': (
        "api.munge_socket: /none is not a socket; give munged's"
    ),
    '[web]\nlisten = "/run/w"\nuser_header = "X User:"': (
        "web.user_header: 'X User:' is not the name of an HTTP header"
    ),
    "[interactive]\nreserve = 6": (
        "interactive.reserve is 6 and the cluster has 6 GPUs: no job that was not seen to save"
    ),
    "[interactive]\nidle_minutes = 30": (
        "interactive.idle_minutes has no effect: slurm.conf has"
        " JobAcctGatherType=jobacct_gather/none"
    ),
    "[health]\nrequeue_idle_minutes = 30": (
        "health.requeue_idle_minutes has no effect: slurm.conf has"
        " JobAcctGatherType=jobacct_gather/none"
    ),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named(tmp_path: Path, text: str) -> None:
    result = check(tmp_path, text)
    assert (result.exit_code, MISTAKES[text] in result.output) == (2, True), result.output
    assert "good" not in result.output
    assert "geheim" not in result.output


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[slurm]\npartitions = ["night", "gpu"]\n[racks]\nr1 = "n0"\nr2 = "n1"',
        '[metrics]\nlisten = "127.0.0.1:7007"\n[web]\nlisten = "127.0.0.1:7008"',
        '[metrics]\nlisten = "127.0.0.1:7007"\n[web]\nlisten = "127.0.0.2:7007"',
        '[web]\nlisten = "/run/w"\nuser_header = "X-User"',
        '[notify]\nmail = "/bin/sh"\nadmins = ["root", "hpc@site.example"]',
        "[bandwidth.v100]\nb_link = 1.0\nb_net = 1.0\n[interactive]\nreserve = 5",
        '[throughput.bert.a100]\naggregated = { "1" = 9.0 }',
    ],
)
def test_a_good_file_is_good(tmp_path: Path, text: str) -> None:
    result = check(tmp_path, text)
    assert (result.exit_code, ": good, " in result.output) == (0, True), result.output
    assert "Slurm" not in result.output


@pytest.mark.parametrize("text", ["", '[slurm]\npartitions = ["nowhere"]'])
def test_a_file_checked_without_slurm_is_good_with_reservations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(command, "SlurmCommands", NoSlurm)
    result = check(tmp_path, text)
    assert result.exit_code == 0
    assert "cannot ask Slurm: scontrol show config: No such file" in result.output
    assert "good as far as can be said without Slurm" in result.output


@pytest.mark.parametrize("section", ["web", "api", "metrics"])
def test_a_server_without_its_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    text = f'[{section}]\nlisten = "127.0.0.1:7007"'
    assert check(tmp_path, text).exit_code == 0
    monkeypatch.setattr(config_check, "find_spec", lambda _: None)
    result = check(tmp_path, text)
    assert (result.exit_code, f"{section}.listen needs " in result.output) == (2, True), (
        result.output
    )


def test_a_missing_pyslurm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file requires pyslurm, hopsd would not start."""

    def missing(*_: object) -> None:
        raise SlurmError("pyslurm is not installed")

    monkeypatch.setattr(config_check, "choose_port", missing)
    result = check(tmp_path, '[slurm]\nport = "pyslurm"')
    assert (result.exit_code, "slurm.port is pyslurm: pyslurm is not" in result.output) == (2, True)


def test_a_password_readable_by_few_is_accepted(tmp_path: Path) -> None:
    assert check(tmp_path, '[database]\ndsn = "password=geheim"', 0o640).exit_code == 0


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    text = '[slurm]\ncheckpoint_grace_seconds = 400\npartitions = ["x"]\n[plan]\ntime_limit = 9999'
    assert len(check(tmp_path, text).output.splitlines()) == 3
