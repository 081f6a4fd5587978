"""Play jobs through the scheduler of Gavel's authors; run by their interpreter, not by hops'.

    PYTHON gavel_authors.py DIR < task.json

DIR is their ``scheduler`` folder (github: stanford-futuredata/gavel); PYTHON has numpy, cvxpy,
psutil and their solver. The task has ``policy``, ``solver``, ``round_seconds``, ``reset_seconds``
(how long shares are kept, even if jobs arrive), ``gpus`` by type, ``gpus_per_server``, and ``jobs``
as ``[submit, job_type, gpus, steps]`` in order of arrival. The last line printed is a JSON array of
the jobs' completion times in seconds, NaN for those that their scheduler gave up: a job fails if it
has fewer steps left than GPUs.

Modules that only a real cluster needs are replaced by empty ones: gRPC, whose stubs are not in
their repository, and the completion of unknown throughputs.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def play(folder: str, task: dict[str, Any]) -> list[float]:
    os.chdir(folder)
    sys.path.insert(0, folder)
    _leave_out("matrix_completion")
    _leave_out("runtime", "rpc")
    _leave_out("runtime.rpc", "scheduler_server", "scheduler_client")
    job, scheduler, utils = map(importlib.import_module, ("job", "scheduler", "utils"))
    running = scheduler.Scheduler(
        utils.get_policy(task["policy"], solver=task["solver"], seed=0),
        throughputs_file="simulation_throughputs.json",
        simulate=True,
        seed=0,
        time_per_iteration=task["round_seconds"],
        minimum_time_between_allocation_resets=task["reset_seconds"],
    )
    running._logger.logger.disabled = True  # it writes megabytes
    jobs = [
        job.Job(
            job_id=None,
            job_type=job_type,
            command="",
            working_directory="",
            num_steps_arg="",
            total_steps=steps,
            duration=None,
            scale_factor=gpus,
        )
        for _, job_type, gpus, steps in task["jobs"]
    ]
    running.simulate(
        dict(task["gpus"]),
        [submit for submit, *_ in task["jobs"]],
        jobs,
        num_gpus_per_server=dict.fromkeys(task["gpus"], task["gpus_per_server"]),
    )
    times = running._job_completion_times
    return [math.nan if times[job_id] is None else float(times[job_id]) for job_id in sorted(times)]


def _leave_out(name: str, *members: str) -> None:
    empty = ModuleType(name)
    for member in members:
        setattr(empty, member, None)
    sys.modules[name] = empty


if __name__ == "__main__":
    print(json.dumps(play(str(Path(sys.argv[1]).resolve()), json.load(sys.stdin))))
