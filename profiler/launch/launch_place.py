"""Finds where this process runs: its node within the job, and its GPUs."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_BATCH_STEP = ("", "-5", "4294967291")
"""SLURM_STEP_ID in the batch script: unset on Slurm 22.05, later -5."""


@dataclass(frozen=True)
class LaunchPlace:
    """``node`` of ``nodes``, from 0. ``in_step``: srun started this process, once per node or rank.
    ``task`` of ``tasks`` is this process among all of the step, ``local_task`` of ``local_tasks``
    among those of its node. ``first`` is the name of the first node. ``key`` is the same in all
    processes of a launch, and different for other launches on this machine.
    """

    node: int
    nodes: int
    in_step: bool
    task: int
    tasks: int
    local_task: int
    local_tasks: int
    gpus: int
    first: str
    key: str

    @property
    def one_task_a_rank(self) -> bool:
        """Whether srun started a process for each rank (``--ntasks-per-node=4``), like this one."""
        return self.in_step and self.tasks > self.nodes


def find_place(environ: Mapping[str, str] = os.environ) -> LaunchPlace:
    """Read the place from Slurm's variables; outside of a job, it is this machine alone."""
    step = environ.get("SLURM_STEP_ID", "")
    in_step = "SLURM_JOB_ID" in environ and step not in _BATCH_STEP
    if in_step:
        nodes = _whole(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
        tasks = _whole(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
        names = environ.get("SLURM_STEP_NODELIST", "")
    else:
        nodes = _whole(environ, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
        tasks, names = 1, environ.get("SLURM_JOB_NODELIST", "")
    node = _whole(environ, "SLURM_NODEID", minimum=0) if in_step else 0
    return LaunchPlace(
        node=node,
        nodes=nodes,
        in_step=in_step,
        task=_whole(environ, "SLURM_PROCID", minimum=0) if in_step else 0,
        tasks=tasks,
        local_task=_whole(environ, "SLURM_LOCALID", minimum=0) if in_step else 0,
        local_tasks=_on_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""), node) if in_step else 1,
        gpus=visible_gpus(environ),
        first=_address(first_host(names), environ),
        key=".".join(
            environ.get(name, "")
            for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
        ),
    )


def visible_gpus(environ: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> int:
    """Count the GPUs that this process may use, without CUDA, whose context survives no fork."""
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in environ:
            return len([gpu for gpu in environ[name].split(",") if gpu.strip() not in ("", "-1")])
    if environ.get("SLURM_GPUS_ON_NODE", "").isdigit():
        return int(environ["SLURM_GPUS_ON_NODE"])
    return len([d for d in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", d.name)])


def first_host(names: str) -> str:
    """Return the first of Slurm's host list: ``gpu03`` for ``gpu[03-07,9],login``."""
    head = re.match(r"([^,\[]*)(?:\[([^,\]-]*)[^\]]*\])?([^,\[]*)", names)
    return "".join(part or "" for part in head.groups()) if head else ""


def _on_node(counts: str, node: int) -> int:
    """Return the entry of ``node`` in Slurm's list of tasks by node, such as ``2(x3),1``."""
    for part in counts.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            break
        repeats = int(match.group(2) or 1)
        if node < repeats:
            return int(match.group(1))
        node -= repeats
    return 1


def _address(name: str, environ: Mapping[str, str]) -> str:
    """Return the first node's name; if it cannot be resolved, srun's address."""
    try:
        socket.getaddrinfo(name or "localhost", None)
    except OSError:
        return environ.get("SLURM_LAUNCH_NODE_IPADDR") or "127.0.0.1"
    return name or "127.0.0.1"


def _whole(environ: Mapping[str, str], *names: str, minimum: int = 1) -> int:
    for name in names:
        if environ.get(name, "").isdigit():
            return max(minimum, int(environ[name]))
    return minimum
