"""A Debian site with slurmdbd, booted with its own systemd in a container without a network."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from page import Command

CACHE = Path(
    os.environ.get("HOPS_INSTALL_ROOTS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hops" / "install"
)
USER = "alice"
MEMORY_MB = 8000
"""With this much free memory, a site's files are in memory: two databases and dpkg write through to
a disk, which would take half of the time.
"""
SPACES = ("mnt", "uts", "ipc", "net", "pid", "cgroup")

HOSTS = "127.0.0.1 localhost site\n"
SLURM_CONF = """\
ClusterName=site
SlurmctldHost=site
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
KillWait=17
MinJobAge=1800
JobSubmitPlugins=all_partitions
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
NodeName=site CPUs=8 RealMemory=4000 Gres=gpu:a100:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
SLURMDBD_CONF = """\
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""
START = """\
for unit in mariadb munge; do systemctl start $unit; done
mariadb -e "CREATE DATABASE slurm_acct_db; GRANT ALL ON slurm_acct_db.* TO slurm@localhost
    IDENTIFIED BY 'slurm'"
install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
install -m 600 -o slurm /root/slurmdbd.conf /etc/slurm/slurmdbd.conf
systemctl enable -q slurmdbd slurmctld slurmd
systemctl restart slurmdbd
for i in $(seq 60); do sacctmgr -n show cluster > /dev/null 2>&1 && break; sleep 0.5; done
sacctmgr -i add cluster site > /dev/null || true
sacctmgr -i add account lab > /dev/null
useradd --create-home alice
sacctmgr -i add user alice account=lab > /dev/null
systemctl restart slurmctld
systemctl restart slurmd
for i in $(seq 60); do sinfo -h -o %t | grep -q idle && exit; sleep 0.5; done
sinfo -R; exit 1
"""


@dataclass
class BootedSite:
    """A booted site: the process ID of its systemd (``leader``), and ``root``, its files."""

    leader: int
    root: Path
    folder: str = "/root"

    def run(self, text: str, *, root: bool = True, seconds: float = 900) -> str:
        """Run a line of shell and return its output, both streams together.

        Raises:
                AssertionError: the line failed.
        """
        shell = ["bash", "-c", text] if root else ["runuser", "-u", USER, "--", "bash", "-c", text]
        spaces = [f"--{'mount' if kind == 'mnt' else kind}" for kind in SPACES]
        result = subprocess.run(
            ["nsenter", f"--target={self.leader}", *spaces, "env", "-i",
             f"--chdir={self.folder if root else '/tmp'}",  # noqa: S108 - the container's own
             "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
             "HOME=/root", "DEBIAN_FRONTEND=noninteractive", *shell],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=seconds, check=False,
        )  # fmt: skip
        assert result.returncode == 0, f"{text}: exit code {result.returncode}\n{result.stdout}"
        return result.stdout

    def follow(self, command: Command, **names: str) -> str:
        """Run a command of the page; ``names`` replace the words that it has in capitals."""
        text = command.text
        for name, value in names.items():
            text = text.replace(name, value)
        began = time.monotonic()
        output = self.run(text, root=command.root)
        print(f"{'#' if command.root else '$'} {text}   ({time.monotonic() - began:.1f} s)")
        return output

    def wait_until(self, holds: Callable[[], bool], condition: str, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"{condition}: not so after {seconds:g} s"
            time.sleep(0.5)


@contextmanager
def boot_site(release: str) -> Iterator[BootedSite]:
    """Boot a fresh site; nothing of it remains afterwards."""
    scratch = Path(tempfile.mkdtemp(prefix="hops-install-"))
    in_memory = _memory_mb() > MEMORY_MB
    if in_memory:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", scratch], check=True)
    root = scratch / "root"
    for name in ("upper", "work", "root"):
        (scratch / name).mkdir()
    layers = f"lowerdir={CACHE / release},upperdir={scratch / 'upper'},workdir={scratch / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", root], check=True)
    nspawn: subprocess.Popen[bytes] | None = None
    try:
        _furnish(root, release)
        with (scratch / "console").open("wb") as console:
            nspawn = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network",
                 "--machine=site", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
                 f"--bind={CACHE / release}.archives:/var/cache/apt/archives",
                 f"--directory={root}", "--console=pipe", "--boot"],
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        site = BootedSite(_leader(nspawn), root)
        # If all addresses are loopback ones, no name resolves (getaddrinfo's AI_ADDRCONFIG).
        add = ("ip", "address", "add", "198.51.100.1/32", "dev", "lo")
        subprocess.run(["nsenter", f"--target={site.leader}", "--net", *add], check=True)
        site.wait_until(lambda: _is_up(site), "systemd is up")
        site.run(START)
        yield site
    finally:
        if nspawn is not None:
            _halt(nspawn)
        subprocess.run(["umount", "--lazy", root], check=False)
        if in_memory:
            subprocess.run(["umount", "--lazy", scratch], check=False)
        shutil.rmtree(scratch, ignore_errors=True)


def _memory_mb() -> int:
    """This machine's available memory in MB."""
    match = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(match[1]) // 1024 if match else 0


def _furnish(root: Path, release: str) -> None:
    (root / "etc/hosts").write_text(HOSTS)
    (root / "etc/hostname").write_text("site\n")
    (root / "etc/slurm/slurm.conf").write_text(SLURM_CONF)
    (root / "etc/slurm/gres.conf").write_text("Name=gpu Type=a100 File=/opt/gpu[0-3]\n")
    # Nothing here uses cgroups; 22.05 has no "disabled", and finds none by itself in a container.
    cgroups = "cgroup/v1" if release == "bookworm" else "disabled"
    (root / "etc/slurm/cgroup.conf").write_text(f"CgroupPlugin={cgroups}\n")
    (root / "root/slurmdbd.conf").write_text(SLURMDBD_CONF)
    (root / "etc/apt/apt.conf.d/90test").write_text(
        'APT::Get::Assume-Yes "true";\nBinary::apt::APT::Keep-Downloaded-Packages "true";\n'
    )
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    for attempt in range(4):
        (root / f"opt/gpu{attempt}").symlink_to("/dev/null")
    for unit in ("slurmd", "slurmctld", "slurmdbd"):  # they failed until they had a database
        for link in root.glob(f"etc/systemd/system/*.wants/{unit}.service"):
            link.unlink()
    lists = root / "var/lib/apt/lists"
    shutil.rmtree(lists)
    shutil.copytree(f"{CACHE / release}.lists", lists)
    (root / "root/packages").mkdir()
    for package in Path(f"{CACHE / release}.debs").glob("*.deb"):
        shutil.copy(package, root / "root/packages")


def _leader(nspawn: subprocess.Popen[bytes]) -> int:
    """Process ID of the site's systemd, once all its namespaces are separate from ours."""
    children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")
    end = time.monotonic() + 60
    while time.monotonic() < end and nspawn.poll() is None:
        for child in children.read_text().split():
            comm = Path(f"/proc/{child}/comm").read_text().strip()
            is_namespaced = all(
                _namespace(child, kind) != _namespace("self", kind) for kind in SPACES
            )
            if comm == "systemd" and is_namespaced:
                return int(child)
        time.sleep(0.2)
    raise AssertionError("systemd does not boot in systemd-nspawn on this machine")


def _halt(nspawn: subprocess.Popen[bytes]) -> None:
    for patience in (20, 20):  # first by its own systemd, then by force
        nspawn.send_signal(signal.SIGTERM)
        try:
            nspawn.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return
    nspawn.kill()
    nspawn.wait()


def _namespace(process: str, kind: str) -> str:
    return str(Path(f"/proc/{process}/ns/{kind}").readlink())


def _is_up(site: BootedSite) -> bool:
    try:
        output = site.run("systemctl is-active dbus mariadb")
    except AssertionError:
        return False
    return output.split() == ["active", "active"]
