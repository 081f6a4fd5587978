# ruff: noqa: E501
"""Scripts as people write them, one for each pattern. We wrote all of them.

``rank`` stands for ``python train.py``; ``torchrun`` stands for itself, ``accelerate launch`` and
similar launchers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """A script that by itself asks for ``gpus``. ``same``: its figures on plain Slurm do not depend
    on which nodes it gets. In ``comment``, ``{}`` becomes ``reqs=``.
    """

    name: str
    options: str
    commands: str
    gpus: int
    same: bool = True
    comment: str = "hops:{}"

    @property
    def text(self) -> str:
        return "\n".join([f"#SBATCH {option}" for option in self.options.split()] + [self.commands])


RANK_COMMAND = "srun rank"
LAUNCHER = "torchrun --nproc_per_node=gpu train.py"
SPREAD_LAUNCHER = "srun bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc_per_node=gpu train.py'"
TWO = "--nodes=2 --gpus-per-node=4"

PATTERNS = [
    Pattern("one-gpu", "--gres=gpu:1", RANK_COMMAND, 1),
    Pattern(
        "array",
        "--array=7 --gres=gpu:1 --cpus-per-task=4",
        "srun rank --seed=$SLURM_ARRAY_TASK_ID",
        1,
    ),
    Pattern("one-gpu-no-srun", "--gpus=1 --cpus-per-task=4", "rank", 1),
    Pattern(
        "one-node-launcher", "--nodes=1 --ntasks=1 --cpus-per-task=16 --gres=gpu:4", LAUNCHER, 4
    ),
    Pattern("no-nodes-option", "--gres=gpu:4", LAUNCHER, 4),
    Pattern("gpus-per-node", "--nodes=1 --gpus-per-node=2 --cpus-per-task=8", LAUNCHER, 2),
    Pattern(
        "hard-coded-count", "--nodes=1 --gres=gpu:4", "torchrun --nproc_per_node=4 train.py", 4
    ),
    Pattern(
        "count-of-slurm",
        "--nodes=1 --gpus-per-node=4",
        "torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE t.py",
        4,
    ),
    Pattern(
        "count-on-node",
        "--nodes=1 --gres=gpu:2",
        "torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE t.py",
        2,
    ),
    Pattern("total", "--nodes=1 --gpus=2", "torchrun --nproc_per_node=$SLURM_GPUS t.py", 2),
    Pattern("typed-gres", "--gres=gpu:v100:3", LAUNCHER, 3),
    Pattern("typed-total", "--nodes=1 --gpus=a100:2", LAUNCHER, 2),
    Pattern("typed-each-node", "--nodes=2 --gpus-per-node=v100:2", SPREAD_LAUNCHER, 4),
    Pattern(
        "whole-node",
        "--nodes=1 --gres=gpu:a100:8 --ntasks-per-node=8 --cpus-per-task=8",
        RANK_COMMAND,
        8,
    ),
    Pattern("tasks", "--nodes=1 --ntasks=4 --gres=gpu:4", RANK_COMMAND, 4),
    Pattern(
        "tasks-each-node",
        "--nodes=1 --ntasks-per-node=2 --gpus-per-node=2 --cpus-per-task=6",
        RANK_COMMAND,
        2,
    ),
    Pattern("two-nodes-tasks", f"{TWO} --ntasks-per-node=4 --cpus-per-task=6", RANK_COMMAND, 8),
    Pattern("two-nodes-total-tasks", f"{TWO} --ntasks=8", RANK_COMMAND, 8, same=False),
    Pattern(
        "two-nodes-launcher", f"{TWO} --ntasks-per-node=1 --cpus-per-task=24", SPREAD_LAUNCHER, 8
    ),
    Pattern("two-nodes-gres", "--nodes=2 --gres=gpu:2 --ntasks-per-node=2", RANK_COMMAND, 4),
    Pattern("three-nodes", "--nodes=3 --gres=gpu:1 --ntasks-per-node=1", RANK_COMMAND, 3),
    Pattern("node-range", "--nodes=2-2 --gres=gpu:3 --ntasks-per-node=3", RANK_COMMAND, 6),
    Pattern(
        "gpus-per-task",
        "--nodes=2 --ntasks-per-node=4 --gpus-per-task=1 --cpus-per-task=3",
        RANK_COMMAND,
        8,
    ),
    Pattern(
        "launcher-per-task", "--nodes=2 --ntasks-per-node=1 --gpus-per-task=4", SPREAD_LAUNCHER, 8
    ),
    Pattern(
        "launcher-of-one-node",
        "--nodes=1 --ntasks-per-node=1 --gpus-per-task=4 --cpus-per-task=8",
        "srun torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py",
        4,
    ),
    Pattern(
        "task-on-each-node",
        "--nodes=3 --ntasks=3 --gpus-per-task=1 --cpus-per-task=4",
        "srun torchrun --nnodes=3 --nproc_per_node=1 train.py",
        3,
    ),
    Pattern(
        "total-on-two-nodes",
        "--nodes=2 --gpus=8 --ntasks-per-node=4 -c4",
        RANK_COMMAND,
        8,
        same=False,
    ),
    Pattern("tasks-for-cores", "--nodes=1 --ntasks=24 --gres=gpu:2", LAUNCHER, 2),
    Pattern(
        "tasks-anywhere",
        "--ntasks=4 --gpus-per-task=1 --cpus-per-task=2",
        RANK_COMMAND,
        4,
        same=False,
    ),
    Pattern("total-tasks", "--ntasks=2 --gpus=2", RANK_COMMAND, 2, same=False),
    Pattern("ntasks-per-gpu", "--nodes=1 --gpus=4 --ntasks-per-gpu=1", RANK_COMMAND, 4),
    Pattern(
        "two-gpus-a-task",
        "--nodes=2 --ntasks-per-node=2 --gpus-per-task=2 --cpus-per-task=8",
        "srun bash -c 'torchrun --nproc_per_node=2 --nnodes=$SLURM_NTASKS --node_rank=$SLURM_PROCID'",
        8,
        same=False,
    ),
    Pattern("derived-nodes", "--ntasks=4 --ntasks-per-node=2 --gpus-per-node=2", RANK_COMMAND, 4),
    Pattern("cpus-per-gpu", "--nodes=1 --gres=gpu:2 --cpus-per-gpu=6", LAUNCHER, 2),
    Pattern("mem-per-gpu", "--nodes=1 --gpus-per-node=2 --mem-per-gpu=10G", LAUNCHER, 2),
    Pattern("mem", "--nodes=1 --gres=gpu:2 --mem=64G --ntasks=2", RANK_COMMAND, 2),
    Pattern("mem-two-nodes", f"{TWO} --mem=48G --ntasks-per-node=4", RANK_COMMAND, 8),
    Pattern(
        "mem-per-cpu", "--nodes=1 --gres=gpu:2 --mem-per-cpu=2G --cpus-per-task=8", LAUNCHER, 2
    ),
    Pattern("all-memory", "--nodes=1 --gres=gpu:v100:4 --mem=0", LAUNCHER, 4),
    Pattern("exclusive", "--nodes=1 --exclusive --gres=gpu:v100:4", LAUNCHER, 4),
    Pattern(
        "exclusive-more-cores",
        "--nodes=1 --exclusive --gres=gpu:v100:1 --ntasks=1 --cpus-per-task=16",
        RANK_COMMAND,
        1,
    ),
    Pattern(
        "exclusive-two-nodes",
        "--nodes=2 --exclusive --gres=gpu:v100:4 --ntasks-per-node=4 --cpus-per-task=8 --mem=0",
        RANK_COMMAND,
        8,
    ),
    Pattern("feature", "--nodes=1 --constraint=v100 --gres=gpu:2", LAUNCHER, 2),
    Pattern("feature-or", "--nodes=1 --constraint=a100|v100 --gres=gpu:2", LAUNCHER, 2),
    Pattern("feature-and", "--nodes=1 --constraint=hbm&ib --gres=gpu:2", LAUNCHER, 2),
    Pattern(
        "feature-same",
        "--nodes=2 --constraint=[a100|v100] --gres=gpu:2 --ntasks-per-node=2",
        RANK_COMMAND,
        4,
    ),
    Pattern("feature-group", "--nodes=1 --constraint=(a100|v100)&eth --gres=gpu:2", LAUNCHER, 2),
    Pattern("exclude", "--nodes=1 --exclude=n0,n1 --gres=gpu:2", LAUNCHER, 2),
    Pattern(
        "nodelist", "--nodes=2 --nodelist=n[3-4] --gres=gpu:2 --ntasks-per-node=2", RANK_COMMAND, 4
    ),
    Pattern("one-named-node", "--nodelist=n4 --gres=gpu:2", LAUNCHER, 2),
    Pattern("more-gres", "--nodes=1 --gres=gpu:2,VRAM:20G", LAUNCHER, 2),
    Pattern("disk", "--nodes=1 --gres=gpu:1,nvme:10", LAUNCHER, 1),
    Pattern("reservation", "--nodes=1 --reservation=day --gres=gpu:2", LAUNCHER, 2),
    Pattern(
        "strict-shell",
        f"{TWO} --ntasks-per-node=4 --cpus-per-task=2",
        "set -euo pipefail\nexport WORLD_SIZE=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE)) OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun rank",
        8,
    ),
    Pattern(
        "srun-cpus",
        f"{TWO} --ntasks-per-node=4 --cpus-per-task=4",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun rank",
        8,
    ),
    Pattern(
        "head-node",
        f"{TWO} --ntasks-per-node=4",
        "nodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))\nexport MASTER_ADDR=$(srun --nodes=1 --ntasks=1 -w ${nodes[0]} hostname)\nsrun rank",
        8,
    ),
    Pattern(
        "loop-over-nodes",
        f"{TWO} --ntasks-per-node=1 --cpus-per-task=8",
        "i=0\nfor node in $(scontrol show hostnames $SLURM_JOB_NODELIST); do\nsrun -N1 -n1 -w $node torchrun --nnodes=$SLURM_NNODES --node_rank=$i --nproc_per_node=4 t.py &\ni=$((i + 1))\ndone\nwait",
        8,
    ),
    Pattern(
        "step-options",
        f"{TWO} --ntasks-per-node=4 --cpus-per-task=4",
        "srun --ntasks-per-node=4 --gres=gpu:4 --cpus-per-task=4 --kill-on-bad-exit=1 rank",
        8,
    ),
    Pattern(
        "step-tasks",
        f"{TWO} --ntasks-per-node=1 --cpus-per-task=4",
        "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 bash -c 'torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_PROCID --nproc_per_node=4'",
        8,
    ),
    Pattern(
        "step-bind",
        f"{TWO} --ntasks-per-node=4 --cpus-per-task=2",
        "srun --cpu-bind=none --label --unbuffered rank | sed 's/^ *[0-9]*: //'",
        8,
    ),
    Pattern(
        "requeue-options",
        "--nodes=1 --gres=gpu:2 --requeue --open-mode=append --signal=B:USR1@60",
        "trap 'exit 1' USR1\n" + LAUNCHER,
        2,
    ),
    Pattern(
        "distribution", f"{TWO} --ntasks-per-node=4 --distribution=block:block", RANK_COMMAND, 8
    ),
    Pattern("hint", "--nodes=1 --gres=gpu:2 --hint=nomultithread", LAUNCHER, 2),
    Pattern(
        "longer-comment", "--nodes=1 --gres=gpu:2", LAUNCHER, 2, comment="laion; hops:{} night run"
    ),
    Pattern(
        "accelerate",
        f"{TWO} --ntasks-per-node=1 --cpus-per-task=8",
        'export GPUS_PER_NODE=4 NNODES=$SLURM_NNODES\nLAUNCHER="torchrun --nnodes=$NNODES --nproc_per_node=$GPUS_PER_NODE"\nsrun --jobid $SLURM_JOBID bash -c "$LAUNCHER --node_rank=\\$SLURM_PROCID train.py"',
        8,
    ),
    Pattern("no-options", "--job-name=train", "srun rank", 1, same=False),
    Pattern(
        "cores-above-the-share",
        "--nodes=1 --gres=gpu:v100:1 --ntasks=1 --cpus-per-task=16",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun rank",
        1,
        same=False,
    ),
    Pattern(
        "gpu-map",
        "--nodes=1 --gpus-per-node=v100:4 --ntasks-per-node=4 --gpu-bind=map_gpu:0,1,2,3",
        RANK_COMMAND,
        4,
    ),
    Pattern(
        "fixed-world-size",
        f"{TWO} --ntasks-per-node=4",
        "export WORLD_SIZE=8 MASTER_PORT=29500\nsrun rank",
        8,
    ),
    Pattern(
        "fixed-nodes",
        f"{TWO} --ntasks-per-node=1",
        'NODES=2\nsrun bash -c "torchrun --nnodes=$NODES --nproc_per_node=4 t.py"',
        8,
    ),
    Pattern(
        "most-tasks-by-launcher",
        f"{TWO} --ntasks=2 --ntasks-per-node=4",
        'srun bash -c "torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$SLURM_NTASKS_PER_NODE t.py"',
        8,
        same=False,  # SLURM_TASKS_PER_NODE is 4(x2) beside SLURM_NTASKS=2 on plain Slurm (22.05)
    ),
    Pattern(
        "whole-node-without-gpus",
        "--exclusive --ntasks-per-node=4 --mem=0 --constraint=v100",
        RANK_COMMAND,
        4,
        same=False,
    ),
    Pattern(
        "gpus-per-socket",
        "--ntasks-per-node=1 --cpus-per-task=10 --gpus-per-socket=2 --sockets-per-node=1",
        LAUNCHER,
        2,
    ),
    Pattern(
        "tasks-without-nodes", "--ntasks-per-node=2 --gres=gpu:2 --cpus-per-task=4", RANK_COMMAND, 2
    ),
    Pattern("cores-of-a-task", "--ntasks=1 --gpus-per-task=1 --cpus-per-gpu=4", RANK_COMMAND, 1),
    Pattern(
        "exclusive-without-gpus",
        "--nodes=1 --exclusive --constraint=v100 --ntasks-per-node=4",
        RANK_COMMAND,
        4,
        same=False,
    ),
    Pattern("cores-of-a-node", "--nodes=1 --gres=gpu:2 --mincpus=8", LAUNCHER, 2),
    Pattern("memory-of-one-core", "--ntasks=1 --gpus=2 --mem-per-cpu=6G", LAUNCHER, 2),
    Pattern("local-disk", "--nodes=1 --gres=gpu:2 --tmp=500M", LAUNCHER, 2),
    Pattern(
        "overcommit",
        "--nodes=1 --gpus-per-node=v100:4 --ntasks-per-node=4 --exclusive --overcommit --mem=0",
        RANK_COMMAND,
        4,
    ),
    Pattern(
        "binding",
        "--nodes=1 --gres=gpu:2 --ntasks-per-node=2 --cpus-per-task=4 --ntasks-per-core=1"
        " --mem-bind=local --gres-flags=enforce-binding --distribution=cyclic --time=9 --time-min=5",
        RANK_COMMAND,
        2,
    ),
    Pattern("licences", "--nodes=1 --gres=gpu:1 --licenses=tool:2", RANK_COMMAND, 1),
    Pattern("switches", "--nodes=2 --switches=1 --gres=gpu:2 --ntasks-per-node=2", RANK_COMMAND, 4),
    Pattern(
        "gpu-bind",
        f"{TWO} --ntasks-per-node=4 --cpus-per-task=2 --gpu-bind=closest",
        RANK_COMMAND,
        8,
    ),
]

ELASTIC = [
    ("one-node-launcher", "reqs=1", {1}),
    ("one-node-launcher", "reqs=2,3", {2, 3}),
    ("tasks-each-node", "reqs=4", {4}),
    ("two-nodes-tasks", "reqs=4,12", {4, 12}),
    ("two-nodes-launcher", "reqs=4", {4}),
    ("gpus-per-task", "reqs=4", {4}),
    ("ntasks-per-gpu", "reqs=3", {3}),
    ("three-nodes", "reqs=2,5", {2}),
    ("strict-shell", "reqs=4", {4}),
    ("srun-cpus", "reqs=2;per_node=2", {2}),
    ("two-nodes-tasks", "reqs=6;shape=node", {6}),
    ("two-nodes-launcher", "reqs=5;shape=node", {5}),
    ("two-nodes-tasks", "reqs=13;shape=any", {13}),
    ("gpus-per-task", "reqs=13;shape=any", {13}),
    ("launcher-of-one-node", "reqs=3", {3}),
    ("gpus-per-socket", "reqs=4", {4}),
    ("memory-of-one-core", "reqs=4", {4}),
]
"""Patterns with other GPU counts than their own: comment, and the counts that they may get."""
