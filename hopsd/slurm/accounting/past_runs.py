"""Reads how long jobs ran before hops knew them, from Slurm's accounting (sacct)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextlib import suppress

from hopsd.model import bounds
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.reading import SlurmState
from hopsd.slurm.accounting.local_time import epoch_seconds
from hopsd.slurm.command import SlurmCommands

_FIELDS = (
    "JobID",
    "User",
    "Account",
    "Submit",
    "End",
    "ElapsedRaw",
    "AllocTRES",
    "State",
    "JobName",
)

_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY")

_ID = re.compile(r"[0-9]{1,18}(?:_[0-9]{1,9})?")


def read_past_runs(commands: SlurmCommands, days: int) -> list[JobRecord]:
    """Return the GPU jobs that ended in the last ``days``, in the form of hops' own records.

    Raises:
        SlurmError: sacct is missing, or slurmdbd does not answer.
    """
    # A job's name may contain anything, even line breaks and text that looks like another job.
    separator = secrets.token_hex(8)
    output = commands.run(
        "sacct", "--allusers", "--allocations", "--noheader", "--parsable2",
        f"--delimiter={separator}", f"--starttime=now-{days}days", "--endtime=now",
        f"--state={','.join(_STATES)}", f"--format={','.join(_FIELDS)}",
    )  # fmt: skip
    return parse_past_runs(output.splitlines(), separator)


def parse_past_runs(lines: Iterable[str], separator: str = "|") -> list[JobRecord]:
    """Parse sacct's lines; jobs without GPUs, jobs that never ran and other lines are left out."""
    records = []
    for line in lines:
        values = line.split(separator, len(_FIELDS) - 1)
        if len(values) == len(_FIELDS):
            with suppress(ValueError, OverflowError):
                record = _record(*values)
                if record is not None:
                    records.append(record)
    return records


def _record(
    job: str,
    user: str,
    account: str,
    submit: str,
    end: str,
    elapsed_text: str,
    tres: str,
    state: str,
    name: str,
) -> JobRecord | None:
    seconds, gpus = float(elapsed_text), _gpus(tres)
    submit_time, end_time = epoch_seconds(submit), epoch_seconds(end)
    if submit_time is None or end_time is None:
        return None
    complete = _ID.fullmatch(job) and user and bounds.DURATION.holds(seconds)
    if not (complete and gpus and bounds.GPUS.holds(gpus) and seconds > 0.0):
        return None
    word = state.partition(" ")[0]  # CANCELLED by 1000
    return JobRecord(
        id=JobId(job),
        user=UserName(user),
        name=name,
        comment="",
        workload=WorkloadName(f"{user}/{name}/"),
        submit=submit_time,
        seen=end_time,
        state=SlurmState.FAILED if word == "OUT_OF_MEMORY" else SlurmState(word),
        run_seconds=seconds,
        attained_gpu_seconds=seconds * gpus,
        end=end_time,
        account=account,
    )


def _gpus(tres: str) -> int:
    amounts = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    if "gres/gpu" in amounts:
        return int(amounts["gres/gpu"])
    return sum(int(n) for name, n in amounts.items() if name.startswith("gres/gpu:"))
