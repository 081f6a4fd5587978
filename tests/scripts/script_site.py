"""One live cluster for all scripts: plain Slurm and hops on the same nodes, beside other jobs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fixtures_accounting import ALICE, uid_of
from fixtures_cluster import as_user, wait_until
from memory_store import MemoryStore

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.policies.registry import get
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

OWNER = uid_of(ALICE) if os.geteuid() == 0 else None
"""An account other than nobody, for whom 26.05 makes no reservation."""
BIG = NodeSpec(
    "a100", 8, 64, memory_mb=512_000, features=("a100", "hbm", "ib"), gres=("VRAM:40G", "nvme:100")
)
SMALL = NodeSpec("v100", 4, 32, memory_mb=128_000, features=("v100", "eth"), gres=("VRAM:16G",))
NODES = [BIG] * 2 + [SMALL] * 4
CONF = [
    "SelectTypeParameters=CR_Core_Memory",
    "GresTypes=gpu,VRAM,nvme",
    "DefMemPerGPU=2000",
    "DefMemPerCPU=500",
    "TopologyPlugin=topology/tree",
    "Licenses=tool:2",
    "NodeName=DEFAULT TmpDisk=1000",
]
SWITCHES = {"s0": "n0,n1,n2", "s1": "n3,n4,n5"}
TOPOLOGY = "".join(f"SwitchName={name} Nodes={nodes}\n" for name, nodes in SWITCHES.items())
TOPOLOGY += f"SwitchName=core Switches={','.join(SWITCHES)}\n"
BUSY = {"n0": 3, "n2": 1}
"""GPUs that other jobs hold throughout."""

SETTINGS = RoundSettings(seconds=3600.0, profiling=ProfilingSettings(enabled=False))

_RANK = """#!/bin/sh
# Stands in for a training: prints one line per rank.
echo "RANK rank=${RANK-$SLURM_PROCID} world=${WORLD_SIZE-${SLURM_NTASKS:-1}}" \\
    "local=${LOCAL_RANK-$SLURM_LOCALID} node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES" \\
    "cores=$SLURM_CPUS_ON_NODE"
"""
_TORCHRUN = """#!/bin/sh
# Stands in for torchrun and accelerate: starts the ranks on this node that the options ask for.
each=1 nodes=1 node=${SLURM_NODEID:-0} all=
for word; do
    case $word in
        --nproc[_-]per[_-]node=*) each=${word#*=} ;;
        --nnodes=* | --num_machines=*) nodes=${word#*=} ;;
        --node[_-]rank=* | --machine_rank=*) node=${word#*=} ;;
        --num_processes=*) all=${word#*=} ;;
    esac
done
[ -z "$all" ] || each=$((all / nodes))
[ "$each" != gpu ] || each=$(echo "$CUDA_VISIBLE_DEVICES" | tr , '\\n' | grep -c .)
i=0
while [ $i -lt $each ]; do
    RANK=$((node * each + i)) WORLD_SIZE=$((nodes * each)) LOCAL_RANK=$i rank
    i=$((i + 1))
done
"""
FIGURES = (
    *("NNODES", "JOB_NUM_NODES", "NTASKS", "NPROCS", "NTASKS_PER_NODE", "TASKS_PER_NODE"),
    *("JOB_CPUS_PER_NODE", "CPUS_ON_NODE", "CPUS_PER_TASK", "CPUS_PER_GPU", "GPUS"),
    *("GPUS_ON_NODE", "GPUS_PER_NODE", "GPUS_PER_TASK", "MEM_PER_NODE", "MEM_PER_CPU"),
    *("MEM_PER_GPU", "NTASKS_PER_GPU", "ARRAY_TASK_ID", "ARRAY_TASK_COUNT", "ARRAY_TASK_MIN"),
    *("ARRAY_TASK_MAX", "ARRAY_TASK_STEP"),
)
"""SLURM_* variables of a batch script that must match those of an ordinary job of the shape."""


@dataclass(frozen=True)
class Rank:
    rank: int
    world: int
    local: int
    node: str
    gpus: tuple[str, ...]
    cores: str

    @property
    def gpu(self) -> tuple[str, str]:
        """The GPU that the rank trains on: its only one, or that of its local rank."""
        return self.node, self.gpus[0] if len(self.gpus) == 1 else self.gpus[self.local]


@dataclass
class Run:
    """A script's run: ``gpus_held`` by node while it ran, its total ``memory`` according to Slurm,
    and ``end``, its state and exit code.
    """

    state: str
    message: str
    figures: Mapping[str, str] = field(default_factory=dict)
    ranks: list[Rank] = field(default_factory=list)
    gpus_held: Mapping[str, int] = field(default_factory=dict)
    memory: str = ""
    output: str = ""
    end: str = ""


@dataclass(frozen=True)
class Script:
    """A script with its ``arguments``; without ``comment`` it is for plain Slurm."""

    text: str
    comment: str | None = None
    arguments: tuple[str, ...] = ()

    @property
    def options(self) -> list[str]:
        return [] if self.comment is None else [f"--comment={self.comment}"]


class ScriptSite:
    """Runs scripts, with ``rank``, ``torchrun`` and ``figures`` on their path."""

    def __init__(self, cluster: PrivateCluster) -> None:
        self.cluster = cluster
        self.folder = cluster.directory / "scripts"
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        self.folder.chmod(0o777)
        figures = " ".join(f"{name}=${{SLURM_{name}-unset}}" for name in FIGURES)
        for name, text in {
            "rank": _RANK,
            "torchrun": _TORCHRUN,
            "accelerate": _TORCHRUN,
            "deepspeed": "#!/bin/sh\nexec torchrun --nproc_per_node=gpu\n",
            "python": "#!/bin/sh\nexec rank\n",
            "figures": f'#!/bin/sh\necho "FIGURES {figures}"\n',
        }.items():
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.store = MemoryStore()
        self.port = SlurmPort(
            ScontrolAdapter(cluster.commands()), ApplySettings(start_timeout_seconds=60.0)
        )
        self._count = 0
        self._window: RoundWindow | None = None
        for node, gpus in BUSY.items():
            cluster.run(
                *("sbatch", "--output=/dev/null", f"--nodelist={node}", f"--gres=gpu:{gpus}"),
                *("--chdir=/", "--wrap=sleep 3600"),
            )
        wait_until(lambda: cluster.run("squeue", "-h", "-o", "%T").split() == ["RUNNING"] * 2)
        user = self.cluster.run("stat", "--format=%U", "/proc/self").strip()
        cluster.run(
            *("scontrol", "create", "reservation=day", "starttime=now", "duration=600"),
            *("nodes=n5", f"users={ALICE if OWNER else user}"),
        )

    @property
    def release(self) -> tuple[int, ...]:
        """Slurm's release, such as (22, 5)."""
        words = self.cluster.run("sinfo", "--version").split()
        return tuple(int(part) for part in words[-1].split(".")[:2])

    def write(self, text: str) -> Path:
        self._count += 1
        path = self.folder / f"{self._count}.sh"
        lines = text.strip().splitlines()
        position = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        lines[position:position] = [f"export PATH={self.bin}:$PATH", "figures"]
        path.write_text("\n".join(["#!/bin/bash", *lines, ""]))
        return path

    def sbatch(
        self, path: Path, *options: str, arguments: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = ("sbatch", "--parsable", f"--output={path}.%A_%a.%j", f"--chdir={self.folder}")
        return as_user(self.cluster, OWNER, *command, *options, str(path), *arguments)

    def run(self, scripts: Sequence[Script]) -> list[Run]:
        """Run all of them at once, beside each other; hops' rounds start those with a comment."""
        script_paths = [(script, self.write(script.text)) for script in scripts]
        submissions = [
            (path, self.sbatch(path, *script.options, arguments=script.arguments))
            for script, path in script_paths
        ]
        ids = {_job_of(result) for _, result in submissions if result.returncode == 0}
        ours = any(script.comment for script in scripts)
        wait_until(
            lambda: (not ours or self._round()) and ids <= self._ended_jobs(),
            seconds=240.0,
            describe=lambda: self.cluster.run("squeue", "--all", "-o", "%A %T %r %o"),
        )
        return [self._result(path, result) for path, result in submissions]

    def _round(self) -> bool:
        """Run a round with the same window, so that running jobs stay where they are."""
        self._window = run_round(self.port, self.store, get("hops"), SETTINGS, self._window).window
        return True

    def _ended_jobs(self) -> set[str]:
        output = self.cluster.run("squeue", "--all", "--states=all", "-h", "-o", "%A %T")
        pairs = (line.split() for line in output.splitlines())
        return {job for job, state in pairs if state not in ("PENDING", "RUNNING", "COMPLETING")}

    def _state(self, job: str) -> str:
        return self._word(job, "JobState")

    def _word(self, job: str, word: str) -> str:
        output = self.cluster.run("scontrol", "show", "job", "--oneliner", job)
        match = re.search(rf"(?:^| ){word}=(\S*)", output)
        return match[1] if match else ""

    def _result(self, path: Path, result: subprocess.CompletedProcess[str]) -> Run:
        if result.returncode:
            return Run("REFUSED", result.stderr)
        job = _job_of(result)
        files = sorted(self.folder.glob(f"{path.name}.*.{job}"))
        output = files[0].read_text() if files else ""
        match = re.search(r"^FIGURES (.*)$", output, re.MULTILINE)
        memory = re.search(r"mem=([^,]+)", self._word(job, "TRES"))
        return Run(
            self._state(job),
            result.stderr,
            dict(pair.split("=", 1) for pair in match[1].split()) if match else {},
            sorted(map(_rank, re.findall(r"^RANK (.*)$", output, re.MULTILINE)), key=_by_rank),
            {},
            memory[1] if memory else "",
            output,
            f"{self._state(job)} {self._word(job, 'ExitCode')}",
        )


def _job_of(result: subprocess.CompletedProcess[str]) -> str:
    return result.stdout.strip().partition(";")[0]


def _by_rank(rank: Rank) -> tuple[int, str]:
    return rank.rank, rank.node


def _rank(line: str) -> Rank:
    fields = dict(pair.split("=", 1) for pair in line.split())
    return Rank(
        int(fields["rank"]),
        int(fields["world"]),
        int(fields["local"]),
        fields["node"],
        tuple(fields["gpus"].split(",")),
        fields["cores"],
    )
