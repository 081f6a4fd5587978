"""The only reader of the job's environment. The task prolog sets the ``HOPS_`` names."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPORT_SECONDS = 5.0


@dataclass(frozen=True)
class Job:
    """Which job this process belongs to and where its report goes.

    ``run`` counts Slurm's restarts; ``batch`` is the comment's samples per GPU, None unknown;
    ``profile`` above 0: measure the phases of so many iterations at most, then end the run.
    """

    id: str
    run: int
    node: str
    report_dir: str
    report_seconds: float
    batch: int | None
    profile: int


NO_JOB = Job("", 0, "", "", REPORT_SECONDS, None, profile=0)
"""A process that does not report."""


def job(environ: Mapping[str, str] = os.environ) -> Job | None:
    """The job of this process; None outside a hops job or without a report folder."""
    job_id, folder = number(environ), environ.get("HOPS_REPORT_DIR", "")
    if not job_id or not folder:
        return None
    return Job(
        id=job_id,
        run=restarts(environ),
        node=environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        report_dir=folder,
        report_seconds=_positive(environ.get("HOPS_REPORT_SECONDS")) or REPORT_SECONDS,
        batch=_whole(environ.get("HOPS_BATCH")),
        profile=_whole(environ.get("HOPS_PROFILE")) or 0,
    )


def number(environ: Mapping[str, str] = os.environ) -> str:
    """The number of this process's hops job; "" outside of one."""
    return environ.get("SLURM_JOB_ID", "") if environ.get("HOPS_JOB") == "1" else ""


def restarts(environ: Mapping[str, str] = os.environ) -> int:
    """How often Slurm has started the job again."""
    return _whole(environ.get("HOPS_RESTART_COUNT") or environ.get("SLURM_RESTART_COUNT")) or 0


def step(environ: Mapping[str, str] = os.environ) -> str:
    """The number of the job's step that this process is in; "" in the batch script itself."""
    return environ.get("SLURM_STEP_ID", "")


def learning_rate(environ: Mapping[str, str] = os.environ) -> float | None:
    """The learning rate for the current number of GPUs from the comment; None if it has none."""
    return _positive(environ.get("HOPS_LR"))


def state_dir(environ: Mapping[str, str] = os.environ) -> str:
    """The folder in this node's memory whose files the epilog takes care of; "" without one."""
    return environ.get("HOPS_STATE_DIR", "") if environ.get("HOPS_JOB") == "1" else ""


def saves_for_frameworks(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Trainer, Lightning and Accelerate save on hops' signal. Only the user knows whether
    the job's trainings can be told apart by their commands.
    """
    return environ.get("HOPS_FRAMEWORK_SAVES") == "1"


_NODES = (
    "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST", "SLURMD_NODENAME",
    "SLURM_LAUNCH_NODE_IPADDR", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_SIZES = (
    "HOPS_GPUS", "HOPS_NODES", "HOPS_LR", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS",
    "SLURM_NPROCS", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_ON_NODE",
)  # fmt: skip
_SIZED = re.compile(
    r".*(gpus|devices|nodes|nproc|processes|workers|ntasks|cpus|threads|world.size|learning.rate"
    r"|(\b|_)lr\b)",
    re.IGNORECASE,
)
"""Options whose value may be one of these sizes. That of ``--fold 2`` on two GPUs is none."""


def command(environ: Mapping[str, str] = os.environ) -> list[tuple[str, str, str]]:
    """This program's command line, in digests, since words may be secret. For each word: its name,
    which is its option or its position; a digest that does not depend on the job's nodes; and one
    that does not depend on its size, either.
    """
    nodes = {environ.get(name) or "" for name in _NODES} - {""}
    sizes = {environ.get(name) or "" for name in _SIZES} - {""}
    found: list[tuple[str, str, str]] = []
    before = ""
    for position, word in enumerate(sys.argv):
        option, equals, value = word.partition("=")
        if not equals:
            option, value = before if before.startswith("-") else "", word
        exact = sized = _digest([_masked(word, nodes)])
        if value in sizes and _SIZED.match(option):
            sized = _digest([word[: -len(value)], "a size"])
        found.append((option if option.startswith("-") else f"word {position}", exact, sized))
        before = "" if equals else word
    return found


def script() -> str:
    """A digest of the text of this program's script; "" where that is not a file."""
    try:
        return hashlib.sha256(Path(sys.argv[0]).read_bytes()).hexdigest()
    except (OSError, IndexError, ValueError):
        return ""


def _masked(word: str, names: Collection[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        word = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "$", word)
    return word


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()


def tasks(environ: Mapping[str, str] = os.environ) -> int | None:
    """How many tasks Slurm's step has; None outside of one."""
    return _whole(environ.get("SLURM_STEP_NUM_TASKS"))


def local_ranks(environ: Mapping[str, str] = os.environ) -> int | None:
    """How many ranks of this training run on this node, as launchers tell; None: not told."""
    return _whole(environ.get("LOCAL_WORLD_SIZE"))


def is_trial(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is one of several trainings of its job, in a lane."""
    return bool(environ.get("HOPS_TRIAL"))


def requeue_code(environ: Mapping[str, str] = os.environ) -> int | None:
    """The exit code by which a job that has saved is requeued; None outside a hops job."""
    return _whole(environ.get("HOPS_REQUEUE_EXIT_CODE"))


TRAINS = "HOPS_TRAINS"


def is_below_training(environ: Mapping[str, str] = os.environ) -> bool:
    """True in a child of a training process: its inference is not the job's work."""
    return environ.get(TRAINS) == "1"


def tell_children(environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell child processes, by the environment, that this process trains."""
    environ[TRAINS] = "1"


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0.0 < value < float("inf") else None
