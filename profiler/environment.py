"""The only reader of the job's environment. The task prolog sets the ``HOPS_`` variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

REPORT_SECONDS = 5.0


@dataclass(frozen=True)
class JobEnvironment:
    """The job of this process, and where its report goes.

    ``run`` counts Slurm's restarts. ``batch``: the comment's samples per GPU, None if unknown.
    ``profile``: if above 0, measure at most this many iterations, then end the run.
    """

    id: str
    run: int
    node: str
    report_dir: str
    report_seconds: float
    batch: int | None
    profile: int


NO_JOB = JobEnvironment("", 0, "", "", REPORT_SECONDS, None, profile=0)
"""Used in a process that does not report."""


def job(environ: Mapping[str, str] = os.environ) -> JobEnvironment | None:
    """Return the job of this process; None outside a hops job or without a report folder."""
    job_id, folder = number(environ), environ.get("HOPS_REPORT_DIR", "")
    if not job_id or not folder:
        return None
    return JobEnvironment(
        id=job_id,
        run=restarts(environ),
        node=environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        report_dir=folder,
        report_seconds=_positive(environ.get("HOPS_REPORT_SECONDS")) or REPORT_SECONDS,
        batch=_whole(environ.get("HOPS_BATCH")),
        profile=_whole(environ.get("HOPS_PROFILE")) or 0,
    )


def number(environ: Mapping[str, str] = os.environ) -> str:
    """Return the number of this process's hops job; "" outside of one."""
    is_hops_job = environ.get("HOPS_JOB") == "1" and not _is_foreign(environ)
    return environ.get("SLURM_JOB_ID", "") if is_hops_job else ""


def _is_foreign(environ: Mapping[str, str]) -> bool:
    """Whether the ``HOPS_`` variables belong to another job that submitted this one: sbatch passes
    on its environment, and without a task prolog nothing removes them.
    """
    return environ.get("HOPS_JOB_ID") not in (None, environ.get("SLURM_JOB_ID"))


def restarts(environ: Mapping[str, str] = os.environ) -> int:
    """Return how often Slurm has restarted the job."""
    count = None if _is_foreign(environ) else environ.get("HOPS_RESTART_COUNT")
    return _whole(count or environ.get("SLURM_RESTART_COUNT")) or 0


def step(environ: Mapping[str, str] = os.environ) -> str:
    """Return the number of this process's job step; "" in the batch script itself."""
    return environ.get("SLURM_STEP_ID", "")


def learning_rate(environ: Mapping[str, str] = os.environ) -> float | None:
    """Return the comment's learning rate for the current number of GPUs; None if it has none."""
    return None if _is_foreign(environ) else _positive(environ.get("HOPS_LR"))


def state_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder in this node's memory whose files the epilog writes; "" without one."""
    return environ.get("HOPS_STATE_DIR", "") if number(environ) else ""


def run_key(environ: Mapping[str, str] = os.environ) -> str:
    """Return this user's secret for the run, for file names in folders where others may write."""
    return environ.get("HOPS_RUN_KEY", "")


def saves_for_frameworks(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Trainer, Lightning and Accelerate save at hops' signal: they do if Slurm sends it to
    the job's steps, unless the user's ``HOPS_FRAMEWORK_SAVES`` says otherwise.
    """
    wish = environ.get("HOPS_FRAMEWORK_SAVES") or ""
    asks = "" if _is_foreign(environ) else environ.get("HOPS_ASKS", "")
    return wish == "1" or (not wish and "|signal:steps:USR1:" in f"|{asks}")


_NODES = (
    "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST", "SLURMD_NODENAME",
    "SLURM_LAUNCH_NODE_IPADDR", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_SIZES = (
    "HOPS_GPUS", "HOPS_NODES", "HOPS_LR", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS",
    "SLURM_NPROCS", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_ON_NODE",
)  # fmt: skip


def node_names(environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return names and addresses of this run's nodes."""
    return {environ.get(name) or "" for name in _NODES} - {""}


def sizes(environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return numbers from hops and Slurm that depend on the run's size, and the learning rate."""
    return {environ.get(name) or "" for name in _SIZES} - {""}


_OF_RUNS = (
    "HOPS_", "SLURM", "SRUN_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "TORCHELASTIC_", "XDG_", "SSH_",
    "DBUS_", "KMP_",
)  # fmt: skip
_OF_A_RUN = {
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK", "OMP_NUM_THREADS", "HOSTNAME", "HOST", "TMPDIR", "TMP", "TEMP", "PWD",
    "OLDPWD", "SHLVL", "_", "KRB5CCNAME", "TERM", "COLUMNS", "LINES", "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
}  # fmt: skip
"""Variables that say where a process runs, which rank it has, and where its caches are."""


def user_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables by which a script can configure a training."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_OF_RUNS) and name not in _OF_A_RUN
    }


def tasks(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how many tasks Slurm's step has; None outside of one."""
    return _whole(environ.get("SLURM_STEP_NUM_TASKS"))


def is_first_rank(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the first rank of its training, or the only one."""
    return not _whole(environ.get("RANK") or environ.get("SLURM_PROCID"))


def ranks(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how many ranks this training has, according to its launcher; None if unknown."""
    return _whole(environ.get("WORLD_SIZE"))


def batch(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the comment's samples per GPU; None if it has none."""
    return _whole(environ.get("HOPS_BATCH")) or None


def lightning_seed(environ: Mapping[str, str] = os.environ) -> int:
    """Return the seed of `lightning.seed_everything`; by default 0, as in Lightning's samplers."""
    return _whole(environ.get("PL_GLOBAL_SEED")) or 0


def local_ranks(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how many ranks run on this node, according to the launcher; None if unknown."""
    return _whole(environ.get("LOCAL_WORLD_SIZE"))


def is_trial(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this training is a trial in a lane, one of several in its job."""
    return bool(environ.get("HOPS_TRIAL")) and not _is_foreign(environ)


def requeue_code(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the exit code at which hops requeues a job; None outside a hops job."""
    return None if _is_foreign(environ) else _whole(environ.get("HOPS_REQUEUE_EXIT_CODE"))


TRAINS = "HOPS_TRAINS"


def is_below_training(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a child of a training process, whose inference is not the job's work."""
    return environ.get(TRAINS) == "1" and not _is_foreign(environ)


def tell_children(environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell child processes through the environment that this process trains."""
    environ[TRAINS] = "1"


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0.0 < value < float("inf") else None
