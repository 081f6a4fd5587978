"""The files of a private Slurm cluster, in one folder: what an administrator would write."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

PLUGIN = Path(__file__).resolve().parents[2] / "slurm_plugin"
REQUEUE_EXIT_CODE = 85


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node. ``devices`` are the files of real GPUs, such as /dev/nvidia0; without them GPUs are
    made up. ``gres`` are resources other than GPUs, such as ``VRAM:40G``.

    Made-up GPUs are links to /dev/null: slurmd wants character devices, and follows links.
    """

    gpu_type: str
    gpus: int = 8
    cpus: int = 32
    devices: tuple[str, ...] = ()
    memory_mb: int = 64000
    features: tuple[str, ...] = ()
    gres: tuple[str, ...] = ()


DEFAULT_NODES = (NodeSpec("rtx3090"),) * 4 + (NodeSpec("v100", gpus=4),) * 2


def on_real_gpus(nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """Give the machine's real GPUs to the first node, if there are enough.

    Only the first node gets them: Slurm numbers CUDA_VISIBLE_DEVICES from 0 within a node (22.05),
    so on a second node of the same machine 0 would again be the first node's GPU.
    """
    first, *rest = nodes
    real = tuple(f"/dev/nvidia{index}" for index in range(first.gpus))
    if not all(Path(path).exists() for path in real):
        return list(nodes)
    return [replace(first, devices=real), *rest]


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """One cluster's configuration. ``ports`` are slurmctld's and then one for each of ``nodes``, or
    a single one if one program stands for all their slurmd (``hollow``).
    """

    directory: Path
    nodes: Mapping[str, NodeSpec]
    ports: Sequence[int]
    extra_conf: Sequence[str] = ()
    plugin: bool = True
    job_submit_lua: Path | None = None
    report_dir: Path | None = None
    state_dir: Path | None = None
    profiler_path: Path | None = None
    extra_files: Mapping[str, str] = field(default_factory=dict)
    hollow: bool = False

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    def write(self) -> None:
        """Write all files, and create the folders that the daemons need."""
        spools = [] if self.hollow else [f"spool/{node}" for node in self.nodes]
        for name in ("log", "state", "dev", *spools):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        key = self.directory / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        for index in range(max(node.gpus for node in self.nodes.values())):
            link = self.directory / "dev" / f"gpu{index}"
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        if slurm_release() >= (23, 2):
            # Without this line slurmd needs a cgroup file system; slurmd 22.05 rejects the word.
            (self.directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (self.directory / "gres.conf").write_text(self._gres_conf())
        settings = self._settings()
        if self.job_submit_lua is not None:
            shutil.copyfile(self.job_submit_lua, self.directory / "job_submit.lua")
            settings["JobSubmitPlugins"] = "lua"
        if self.plugin:
            settings |= self._install_prologs()
        for line in self.extra_conf:
            name, _, value = line.partition("=")
            settings[name] = value
        lines = [f"{name}={value}" for name, value in settings.items()]
        self.conf.write_text("\n".join([*lines, *self._node_lines(), ""]))
        for name, text in self.extra_files.items():
            (self.directory / name).write_text(text)

    def _install_prologs(self) -> dict[str, str]:
        folder = self.directory / "plugin"
        shutil.copytree(PLUGIN, folder, dirs_exist_ok=True)
        site = {
            "HOPS_RUN_DIR": self.directory / "run",
            "HOPS_STATE_DIR": self.state_dir or self.directory / "memory",
            "HOPS_REPORT_DIR": self.report_dir or "",
            "HOPS_PROFILER_PATH": self.profiler_path or "",
            "HOPS_REQUEUE_EXIT_CODE": REQUEUE_EXIT_CODE,
            "HOPS_SCONTROL": find_program("scontrol"),
        }
        lines = [f"{name}={shlex.quote(str(value))}" for name, value in site.items()]
        # Slurm runs prologs without the environment that names this cluster.
        lines.append(f"export SLURM_CONF={shlex.quote(str(self.conf))}")
        (folder / "site.sh").write_text("\n".join([*lines, ""]))
        scripts = {"Prolog": "prolog", "TaskProlog": "task_prolog", "Epilog": "epilog"}
        for name in scripts.values():
            (folder / f"{name}.sh").chmod(0o755)
        return {key: str(folder / f"{name}.sh") for key, name in scripts.items()}

    def _settings(self) -> dict[str, str]:
        folder = self.directory
        user = pwd.getpwuid(os.geteuid()).pw_name
        return {
            "ClusterName": "hops",
            "SlurmctldHost": "localhost",
            "SlurmctldPort": str(self.ports[0]),
            "SlurmUser": user,
            "SlurmdUser": user,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            "AuthInfo": f"socket={folder}/munge.sock",
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/spool/%n",
            "SlurmctldPidFile": f"{folder}/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
            "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
            "SlurmdLogFile": f"{folder}/log/slurmd.%n.log",
            "SlurmdParameters": "config_overrides",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "SchedulerType": "sched/builtin",
            "SchedulerParameters": "batch_sched_delay=0,sched_interval=5",
            "PriorityType": "priority/basic",
            "ReturnToService": "2",
            "SlurmctldTimeout": "60",
            "SlurmdTimeout": "60",
            "KillWait": "2",
            # On a slow machine the whole demo lasts longer than Slurm's 300 s.
            "MinJobAge": "3600",
            "JobRequeue": "1",
            "RequeueExitHold": str(REQUEUE_EXIT_CODE),
        }

    def _node_lines(self) -> list[str]:
        lines = [
            f"NodeName={name} NodeHostname=localhost Port={port} CPUs={node.cpus} Boards=1"
            f" SocketsPerBoard=1 CoresPerSocket={node.cpus} ThreadsPerCore=1"
            f" RealMemory={node.memory_mb}"
            + (f" Feature={','.join(node.features)}" if node.features else "")
            + f" Gres={','.join([f'gpu:{node.gpu_type}:{node.gpus}', *node.gres])} State=UNKNOWN"
            for name, node, port in self._node_groups()
        ]
        return [*lines, "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]

    def _node_groups(self) -> Iterator[tuple[str, NodeSpec, int]]:
        """Yield name, node and port for each NodeName line. Hollow nodes share a port, and equal
        neighbours share a line, as on a large site.
        """
        if not self.hollow:
            for (name, node), port in zip(self.nodes.items(), self.ports[1:], strict=True):
                yield name, node, port
            return
        first = 0
        for node, group in groupby(self.nodes.values()):
            count = len(list(group))
            yield f"n[{first}-{first + count - 1}]", node, self.ports[1]
            first += count

    def _gres_conf(self) -> str:
        lines = ["AutoDetect=off"]
        for name, node in () if self.hollow else self.nodes.items():
            made_up = [f"{self.directory}/dev/gpu[0-{node.gpus - 1}]"]
            for path in node.devices or made_up:
                lines.append(f"NodeName={name} Name=gpu Type={node.gpu_type} File={path}")
        return "\n".join([*lines, ""])


def slurm_release() -> tuple[int, int]:
    """Year and month of the installed Slurm's release, such as (22, 5)."""
    path = find_program("slurmctld")
    assert path is not None
    output = subprocess.run([path, "-V"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)\.(\d+)", output)
    if match is None:
        raise RuntimeError(f"slurmctld -V says {output.strip()!r}, which names no release")
    return int(match[1]), int(match[2])


def find_program(name: str) -> str | None:
    """Find a program; also look in /usr/sbin, which an ordinary user's PATH may lack."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
