"""Emulated servers and GPUs on this machine's cores and network stack.

Each server is a network namespace behind a bridge, its traffic limited to a bandwidth; each GPU is
a thread with a fixed share of a core (``device.py``). Needs root and version 1 of the CPU cgroup.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup/cpu")
SHARES = 262_144
"""cpu.shares of the devices, so that other processes do not slow them down."""


@contextmanager
def emulate(
    folder: Path, servers: Sequence[str], *, share: float, megabits: int, python: str
) -> Iterator[None]:
    """Set up what ``job.sh`` and ``device.sh`` use, and remove it at the end.

    Each device gets ``share`` of a core; a server sends and receives ``megabits`` per second.

    Raises:
        RuntimeError: not root, or this machine has no such cgroup.
        subprocess.CalledProcessError: the kernel lacks a feature.
    """
    if os.geteuid() != 0 or not (CGROUPS / "cpu.shares").exists():
        raise RuntimeError(f"emulated devices need root and a CPU cgroup at {CGROUPS}")
    name = f"hops{os.getpid()}"
    group = CGROUPS / name
    device = folder / "device.sh"
    device.write_text((Path(__file__).parent / "device.sh").read_text())
    device.chmod(0o755)
    os.environ |= {
        "HOPS_EMULATION": str(folder),
        "HOPS_PYTHON": python,
        "HOPS_NETWORK": name,
        "HOPS_DEVICES": str(group),
        "HOPS_DEVICE_SHARE": str(share),
    }
    with ExitStack() as undo:
        group.mkdir()
        undo.callback(_remove, group)
        (group / "cpu.shares").write_text(str(SHARES))
        _run(f"ip link add {name} type bridge")
        undo.callback(_run, f"ip link del {name}")
        _run(f"ip link set {name} up")
        for number, server in enumerate(servers):
            _run(f"ip netns add {name}-{server}")
            undo.callback(_run, f"ip netns del {name}-{server}")
            _connect(name, server, number, megabits)
            (folder / f"address.{server}").write_text(f"10.213.0.{number + 1}")
        yield


def _connect(network: str, server: str, number: int, megabits: int) -> None:
    space, outside = f"{network}-{server}", f"{network[4:]}.{number}"
    inside = f"ip netns exec {space}"
    limit = f"root tbf rate {megabits}mbit burst 64kb latency 100ms"
    _run(f"ip link add {outside} type veth peer name eth0 netns {space}")
    _run(f"ip link set {outside} master {network} up")
    _run(f"{inside} ip address add 10.213.0.{number + 1}/24 dev eth0")
    _run(f"{inside} ip link set eth0 up")
    _run(f"{inside} ip link set lo up")
    _run(f"tc qdisc add dev {outside} {limit}")
    _run(f"{inside} tc qdisc add dev eth0 {limit}")


def _remove(group: Path) -> None:
    for child in group.iterdir():
        if child.is_dir():
            child.rmdir()
    group.rmdir()


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)
