"""The adapter that uses libslurm through pyslurm: one request instead of a command's process.

Slurm's commands fill pyslurm's gaps (22.5 and 25.11). ``modify()`` sets no node count and clears no
field, so it only serves placements on one node that need neither. Its requeue would rerun a job
that has just completed. It does not say which GPUs a job holds, so ``squeue`` is asked once for
each start of a job. It cannot read a GRES count with a suffix, as in ``VRAM:40G``, so nodes are
read by ``scontrol``, and jobs by ``squeue`` while one requests such a GRES. It addresses jobs by
number, which an array's tasks lack until they are touched, so the commands handle those too.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import JobId
from hopsd.slurm.adapter import Placement, SignalScope
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.parse import UNTYPED_GPU, holds_gpus, number
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.shape import CORES_BY_GPU_SINCE

# slurm_errno.h: slurmctld and slurmd answer with 2000 to 4999. Other codes come from the transport,
# sockets, authentication or the system and mean that there was no answer.
_REFUSALS = range(2000, 5000)
_TRIES = 5

# Job, restart count and start time: one of these changes whenever a job's GPUs may have changed.
_Start = tuple[float | None, ...]


class PyslurmAdapter(ScontrolAdapter):
    """Uses ``pyslurm`` or, where that falls short, Slurm's commands; see :class:`Adapter`."""

    name = "pyslurm"

    def __init__(
        self,
        commands: SlurmCommands | None = None,
        *,
        partitions: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        shadow: bool = False,
    ) -> None:
        """Load pyslurm.

        Raises:
            SlurmError: pyslurm is not installed, or does not load with this Slurm.
        """
        commands = commands or SlurmCommands()
        super().__init__(commands, partitions=partitions, clock=clock, shadow=shadow)
        self._slurm = load_pyslurm(commands)
        self._gres: dict[_Start, Sequence[str]] = {}

    def hold(self, job: JobId, begin: float = 0.0) -> None:
        if self._is_array(job):
            super().hold(job, begin)
            return
        self._modify(job, priority=0, begin_time=int(begin) or "now")

    def place(self, placement: Placement) -> None:
        if not self._is_simple(placement):
            super().place(placement)
            return
        cores: dict[str, int] = {"cpus_per_gpu": ceil(placement.cores_per_gpu)}
        if self._release() < CORES_BY_GPU_SINCE:
            cpus = ceil(placement.allocation.gpus * placement.cores_per_gpu)
            # pyslurm's min_cpus_per_node is scontrol's numcpus.
            cores = {"cpus_per_task": cpus, "min_cpus_per_node": cpus}
        self._modify(
            placement.job,
            required_nodes=placement.allocation.nodes[0],
            gres_per_node={UNTYPED_GPU: placement.allocation.gpus},
            ntasks=1,
            **cores,
            begin_time="now",
            comment=placement.comment,
        )

    def release(self, jobs: Sequence[JobId]) -> None:
        errors: list[SlurmError] = []
        for job in jobs:
            try:
                if self._is_array(job):
                    super().release([job])
                    continue
                with _slurm_errors(f"release {job}"):
                    self._slurm.Job(int(job)).release()
            except SlurmUnavailableError:
                raise
            except SlurmError as error:
                errors.append(error)
        if errors:
            raise SlurmError("; ".join(map(str, errors)))

    def signal(self, job: JobId, signal: str, scope: SignalScope) -> None:
        if self._is_array(job):
            super().signal(job, signal, scope)
            return
        with _slurm_errors(f"signal {job} with {signal}"):
            self._slurm.Job(int(job)).send_signal(f"SIG{signal}", steps=scope.value)

    def _is_array(self, job: JobId) -> bool:
        return "_" in job or job in self._rests

    def _modify(self, job: JobId, **changes: Any) -> None:
        with self._updating(job), _slurm_errors(f"update {job}"):
            self._slurm.Job(int(job)).modify(self._slurm.JobSubmitDescription(**changes))

    def _is_simple(self, placement: Placement) -> bool:
        """Whether the change keeps the node count, clears no field, and sets no tasks, types or
        memory.
        """
        if placement.reset or placement.allocation.spread or not placement.simple:
            return False
        if self._is_array(placement.job):
            return False
        with _slurm_errors(f"load {placement.job}"):
            job = self._slurm.Job.load(int(placement.job))
        # A placement on several nodes leaves a minimum of cores per node behind; the submit plugin
        # and uneven placements leave a request for GPUs in total.
        return job.num_nodes == 1 and (job.min_cpus_per_node or 1) == 1 and bool(job.gres_per_node)

    def _job_answer(self) -> Any:
        """Return the jobs in the form of ``squeue --json``, so that one reader serves both."""
        records: list[dict[str, Any]] = []
        for _ in range(_TRIES):
            try:
                records = self._records()
            except ValueError:
                return super()._job_answer()
            starts = {_start(record) for record in records if holds_gpus(record)}
            if starts <= self._gres.keys():
                break
            self._learn_gres()  # and ask again: jobs may have started or ended in between
        self._gres = {start: self._gres[start] for start in starts & self._gres.keys()}
        for record in records:
            record["gres_detail"] = self._gres.get(_start(record), ())
        release = "{}.{:02}.{}".format(*self._slurm.slurm_api_version())
        return {"jobs": records, "meta": {"slurm": {"release": release}}}

    def _learn_gres(self) -> None:
        for job in super()._job_answer()["jobs"]:
            if holds_gpus(job):
                self._gres.setdefault(_start(job), job.get("gres_detail") or ())

    def _records(self) -> list[dict[str, Any]]:
        with _slurm_errors("load jobs"):
            jobs = self._slurm.Jobs.load()
        return [_record(job) for job in jobs.values()]


def _record(job: Any) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "array_job_id": job.array_id,
        "array_task_id": getattr(job, "array_task_id", None),
        "array_task_string": getattr(job, "array_tasks_waiting", None),
        "array_max_tasks": getattr(job, "array_tasks_parallel", None),
        "het_job_id": job.heterogeneous_id,
        "user_id": job.user_id,
        "user_name": job.user_name,
        "name": job.name,
        "comment": job.comment,
        "admin_comment": job.admin_comment,
        "partition": job.partition,
        "account": job.account,
        "qos": job.qos,
        "cpus": job.cpus,
        "job_state": job.state,
        "state_reason": job.state_reason,
        "priority": job.priority,
        "dependency": _dependency(job.dependencies),
        "submit_time": job.submit_time,
        "eligible_time": job.eligible_time,
        "start_time": job.start_time,
        "end_time": job.end_time,
        "time_limit": job.time_limit,
        "deadline": job.deadline,
        "restart_cnt": job.requeue_count,
        "requeue": job.is_requeueable,
        "exit_code": _exit_code(job),
        "nodes": job.allocated_nodes,
        "command": job.command,
        # tres_per_job reads as None even if it is set, but a job that requests no GPUs per node
        # requests them per job.
        "tres_per_job": "" if job.gres_per_node else "gres/gpu",
        "required_nodes": job.required_nodes,
        "tres_per_node": ",".join(f"{k}:{n}" for k, n in (job.gres_per_node or {}).items()),
        "features": ",".join(getattr(job, "constraints", None) or ()),
        "excluded_nodes": getattr(job, "excluded_nodes", None),
        "resv_name": getattr(job, "reservation", None),
        "memory_per_node": getattr(job, "memory_per_node", None),
        "memory_per_cpu": getattr(job, "memory_per_cpu", None),
    }


def _exit_code(job: Any) -> Mapping[str, Any]:
    """Return the exit code as in squeue's JSON. For some jobs, such as a session that was ended,
    Slurm has none, and pyslurm 26.5 raises OverflowError: one such job kept all from being read.
    """
    try:
        return {"return_code": job.exit_code, "signal": {"id": job.exit_code_signal}}
    except OverflowError:
        return {"return_code": None, "signal": {"id": None}}


def _dependency(clauses: Mapping[str, Any] | None) -> Mapping[str, Any] | str:
    """Interpret pyslurm's mapping, which is empty for ``singleton(unfulfilled)``."""
    if clauses and not any(targets for kind, targets in clauses.items() if kind != "satisfy"):
        return "singleton"
    return clauses or ""


def _start(job: Mapping[str, Any]) -> _Start:
    return tuple(number(job.get(key)) for key in ("job_id", "restart_cnt", "start_time"))


@contextmanager
def _slurm_errors(request: str) -> Iterator[None]:
    """Convert pyslurm's errors to ours."""
    try:
        yield
    except ValueError as error:  # an unknown signal, for example
        raise SlurmError(f"{request}: {error}") from error
    except Exception as error:
        if type(error).__name__ != "RPCError":
            raise
        is_refusal = getattr(error, "errno", None) in _REFUSALS
        raise (SlurmError if is_refusal else SlurmUnavailableError)(
            f"{request}: {error}"
        ) from error


def load_pyslurm(commands: SlurmCommands) -> Any:
    """Import pyslurm, configured for the cluster that ``commands`` reach.

    The import is tried in another process first: without a slurm.conf, ``import pyslurm`` ends the
    importing process (25.11), and a module built for another Slurm may crash it.

    Raises:
        SlurmError: pyslurm is not installed, or does not load with this Slurm.
    """
    try:
        commands.run(sys.executable, "-P", "-c", "import pyslurm")
    except SlurmError as error:
        last = str(error).strip().splitlines()[-1].rpartition("Error: ")[2]
        raise SlurmError(f"pyslurm does not load: {last}") from error
    conf = commands.environment.get("SLURM_CONF") or os.environ.get("SLURM_CONF")
    module = sys.modules.get("pyslurm")
    if conf:
        os.environ["SLURM_CONF"] = conf  # libslurm reads it wherever it loads its configuration
    if module is not None and conf:
        module.slurm_fini()
        module.slurm_init(conf)
        return module
    return importlib.import_module("pyslurm")
