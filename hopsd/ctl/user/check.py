"""`hopsctl check`: shows what hops would do with a script before it is submitted.

The messages come from the submit plugin (``sbatch --test-only`` runs it without making a job); the
shapes are what the default policy plans for each count alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace

import click

from hopsd.config.schema import PlanConfig
from hopsd.core.snapshot.build import build_snapshot
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.submission.comment import Comment, parse
from hopsd.core.submission.nodelist import node_names
from hopsd.core.submission.options_text import MARK, read_script_options
from hopsd.core.submission.unseen import why_unseen
from hopsd.ctl.terminal import complain, say_prose
from hopsd.errors import CommentError, HopsError
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import RoundInfo
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.model.script_options import ScriptOptions
from hopsd.policies.registry import get
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.submit_line import options_of, signal_option

EXIT_REFUSAL = 2
NOT_OURS = 3

_HOPS_PREFIX = "hops: "
_CHECK_PREFIX = "hops-check "
_BEFORE_WORDS = re.compile(r"^(sbatch: )?(error: )?(allocation failure: )?")
_JOB = JobId("check")
_DEFAULT = PlanConfig().settings


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument(
    "words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[OPTION]... SCRIPT"
)
def check(words: tuple[str, ...]) -> None:
    """Show what hops would do with SCRIPT, and where it could run on this cluster now.

    OPTIONs are those of sbatch. Nothing is submitted.

    \b
    Examples:
      hopsctl check train.sh
      hopsctl check --comment=hops:reqs=1,2,4 --partition=gpu train.sh

    Exit codes: 0 hops would accept it, 2 it or Slurm
    would not, 3 it is an ordinary Slurm job.
    """
    signal = signal_option(f"sbatch {' '.join(options_of(words))}", "")
    variables = {"SBATCH_SIGNAL": signal} if signal else {}
    is_accepted, reply = SlurmCommands(environment=variables).try_submission(words)
    lines = [line.partition(_HOPS_PREFIX)[2] for line in reply.splitlines() if _HOPS_PREFIX in line]
    if not lines:
        plain = "there is no 'hops:' in its comment: it is an ordinary job"
        complain(plain if is_accepted else reply.strip())
        sys.exit(NOT_OURS if is_accepted else EXIT_REFUSAL)
    if not is_accepted:
        for line in why_refused(reply):
            say_prose(line)
        sys.exit(EXIT_REFUSAL)
    for line in lines:
        if not line.startswith(_CHECK_PREFIX):
            say_prose(line)
    options = dict(
        line.removeprefix(_CHECK_PREFIX).partition(" ")[::2]
        for line in lines
        if _CHECK_PREFIX in line
    )
    obstacle = why_unseen(_script_options(options))
    if obstacle:
        say_prose(f"hops may not see its speed: {obstacle}")
    try:
        for line in shapes(options, ScontrolAdapter(SlurmCommands()).read()):
            print(line)
    except HopsError as error:
        complain(f"where it could run is not known: {error}")


def why_refused(reply: str) -> list[str]:
    """Extract from sbatch's reply why a job is not accepted: by hops, or, after hops has accepted
    it, by Slurm or because of another part of a heterogeneous job.
    """
    lines = reply.splitlines()
    acceptances = [index for index, line in enumerate(lines) if f"{_HOPS_PREFIX}accepted:" in line]
    reply_lines = lines[acceptances[-1] + 1 :] if acceptances else lines
    words = [
        line.partition(_HOPS_PREFIX)[2] or _BEFORE_WORDS.sub("", line).strip()
        for line in reply_lines
    ]
    refusals = [word for word in words if word and not word.startswith(_CHECK_PREFIX)]
    return [word for word in refusals if "Unspecified error" not in word]


def shapes(options: Mapping[str, str], reading: Reading) -> list[str]:
    """Return one line per count: where the job could start now, or later, or never."""
    try:
        comment = parse(options.get("comment", ""))
    except CommentError as error:
        return [str(error)]
    job = _job(options, reading.now)
    empty = replace(
        reading,
        nodes=tuple(
            replace(n, foreign_gpus=0, idle_cores=n.cores, idle_memory_mb=n.memory_mb)
            for n in reading.nodes
        ),
        jobs=(),
    )
    lines = []
    for count in comment.reqs:
        now, note = _plan_alone(job, replace(comment, reqs=(count,)), reading)
        eventually = now or _plan_alone(job, replace(comment, reqs=(count,)), empty)[0]
        if note and note not in lines:
            lines.append(note)
        gpus = f"{count} GPU{'' if count == 1 else 's'}"
        if now:
            lines.append(f"{gpus}: now, as on {now}")
        elif eventually:
            lines.append(f"{gpus}: when others have left, as on {eventually}")
        else:
            lines.append(f"{gpus}: never on this cluster as it is")
    return lines


def _script_options(options: Mapping[str, str]) -> ScriptOptions:
    return read_script_options(f"{MARK}|{options.get('asks', '')}")


def _job(options: Mapping[str, str], now: float) -> JobReading:
    def megabytes(key: str) -> int | None:
        text = options.get(key, "")
        return int(text) if text.isdigit() and text != "0" else None

    return JobReading(
        id=_JOB,
        user=UserName(""),
        uid=os.getuid(),
        name="",
        comment=options.get("comment", ""),
        partition=options.get("partition", ""),
        state=SlurmState.PENDING,
        submit=now,
        hold=Hold.HOPS,
        options=_script_options(options),
        features=options.get("features", ""),
        excluded_nodes=frozenset(node_names(options.get("exclude", ""))),
        reservation=options.get("reservation", ""),
        memory_mb_per_node=megabytes("memory_per_node"),
        memory_mb_per_cpu=megabytes("memory_per_cpu"),
    )


def _plan_alone(
    job: JobReading, comment: Comment, reading: Reading
) -> tuple[Allocation | None, str]:
    """Return where the job would go, and what its user should know about it."""
    record = JobRecord(
        job.id,
        job.user,
        "",
        job.comment,
        WorkloadName("check"),
        reading.now,
        reading.now,
        job.state,
    )
    build = build_snapshot(
        replace(reading, jobs=(*reading.jobs, job)),
        {job.id: record},
        {job.id: comment},
        Knowledge(),
        RoundInfo(first=False, seconds=60.0),
        SnapshotSettings(),
    )
    placements = get(_DEFAULT.policy)(build.snapshot, _DEFAULT).placements
    return placements.get(job.id), build.notes.get(job.id, "")
