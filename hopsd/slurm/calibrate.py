"""Times all-reduces and trainings on the live cluster, each shape as an ordinary Slurm job."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from hopsd.core.speed.calibration import Transfer
from hopsd.errors import SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.reading import NodeReading, Reading
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.steps.wave import usable_gpus

# Below Linux's range of ephemeral ports.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class MeasuringSettings:
    """How measuring jobs are run.

    ``python`` needs PyTorch on every node; ``options`` go to srun, such as ``--partition=gpu``. A
    job that does not start within ``patience_seconds`` is cancelled.
    """

    python: str = "python3"
    options: Sequence[str] = ()
    patience_seconds: int = 120
    limit_minutes: int = 10


@dataclass(frozen=True, slots=True)
class MeasuredShapes:
    """The shapes to measure for a GPU type: within one server, between two servers on one leaf
    switch (any two, if no leaf has two), and between two servers on different leaves.
    """

    link: list[Allocation]
    net: list[Allocation]
    across: list[Allocation]

    def __iter__(self) -> Iterator[tuple[str, list[Allocation]]]:
        return iter((("link", self.link), ("net", self.net), ("across", self.across)))


def shapes(reading: Reading, gpu_type: GpuType) -> MeasuredShapes:
    """Choose the shapes to measure for a GPU type, on idle nodes if there are any.

    Nodes that also have other types are left out.
    """
    free = usable_gpus(reading)
    nodes = sorted(
        (n for n in reading.nodes if n.usable and n.gpu_type == gpu_type and not n.is_mixed),
        key=lambda node: (-free.get(node.name, 0), -node.gpus),
    )
    single_nodes, node_pairs, leaf_pairs = [], [], []
    if nodes and nodes[0].gpus > 1:
        counts = sorted({2, nodes[0].gpus})
        single_nodes = [Allocation.of({nodes[0].name: count}) for count in counts]
    same_leaf, other_leaf = _pairs(nodes)
    if same_leaf or other_leaf:
        node_pairs = [Allocation.of({node.name: 1 for node in same_leaf or other_leaf})]
    if same_leaf and other_leaf:
        leaf_pairs = [Allocation.of({node.name: 1 for node in other_leaf})]
    return MeasuredShapes(single_nodes, node_pairs, leaf_pairs)


def _pairs(nodes: Sequence[NodeReading]) -> tuple[list[NodeReading], list[NodeReading]]:
    """The first two nodes on one leaf switch, and two on different ones; empty lists if none."""
    first: dict[str, NodeReading] = {}
    same_leaf: list[NodeReading] = []
    for node in nodes:
        if node.leaf in first and not same_leaf:
            same_leaf = [first[node.leaf], node]
        first.setdefault(node.leaf, node)
    far = list(first.values())[:2]
    return same_leaf, far if len(far) == 2 else []


def measure(
    commands: SlurmCommands, site: MeasuringSettings, allocation: Allocation, sizes: Sequence[int]
) -> tuple[str, list[Transfer]]:
    """Run all-reduces on ``allocation``, which must be even; return the backend (nccl or gloo) and
    the times.

    Raises:
        SlurmError: the job did not start in time, or failed; with Slurm's message.
    """
    nodes, gpus = allocation.nodes, allocation.gpus
    answer = _run(
        commands,
        site,
        allocation,
        "all_reduce.py",
        _address(commands, nodes[0]),
        str(random.choice(PORTS)),  # noqa: S311 - no secret
        *map(str, sizes),
    )
    transfers = [
        Transfer(float(params), gpus, len(nodes), float(seconds))
        for params, seconds in answer["measured"]
    ]
    return str(answer["backend"]), transfers


def single_gpu(reading: Reading, gpu_type: GpuType) -> Allocation | None:
    """One GPU of the type, on the server with the most idle ones; None if all are mixed."""
    free = usable_gpus(reading)
    nodes = [n for n in reading.nodes if n.usable and n.gpu_type == gpu_type and not n.is_mixed]
    if not nodes or is_cpu(gpu_type):
        return None
    return Allocation.of({max(nodes, key=lambda node: free.get(node.name, 0)).name: 1})


def train(
    commands: SlurmCommands, site: MeasuringSettings, allocation: Allocation, seconds: float = 5.0
) -> dict[str, float]:
    """Measure hops' own small networks on one GPU; returns samples per second by network.

    Raises:
        SlurmError: as for :func:`measure`.
    """
    answer = _run(commands, site, allocation, "training.py", str(seconds))
    return {str(network): float(speed) for network, speed in answer["measured"]}


def _run(
    commands: SlurmCommands,
    site: MeasuringSettings,
    allocation: Allocation,
    program: str,
    *arguments: str,
) -> Mapping[str, Any]:
    """Run a program of ``profiler/calibration`` on ``allocation``; return the JSON it prints."""
    nodes, gpus = allocation.nodes, allocation.gpus
    output = commands.run(
        "srun",
        "--job-name=hops-calibrate",
        f"--nodelist={','.join(nodes)}",
        f"--nodes={len(nodes)}",
        f"--ntasks={gpus}",
        f"--ntasks-per-node={gpus // len(nodes)}",
        f"--gres=gpu:{gpus // len(nodes)}",
        f"--immediate={site.patience_seconds}",
        f"--time={site.limit_minutes}",
        "--kill-on-bad-exit=1",
        "--chdir=/",
        *site.options,
        site.python,
        "-I",  # the caller is root, and the folder may be a user's
        "-c",
        files("hops_profiler").joinpath("calibration", program).read_text(),
        *arguments,
    )
    for line in output.splitlines():
        if line.startswith('{"'):
            answer: Mapping[str, Any] = json.loads(line)
            return answer
    raise SlurmError(f"srun: no results in {output.strip()[-500:]!r}")


def _address(commands: SlurmCommands, node: NodeName) -> str:
    """The address at which other nodes reach the node, from slurm.conf."""
    output = commands.run("scontrol", "show", "node", node, "--oneliner")
    match = re.search(r"\bNodeAddr=(\S+)", output)
    return match[1] if match else node
