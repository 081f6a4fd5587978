"""Parses and validates what a training process reports about itself.

A report comes from a user's process: every value is checked for its type and against bounds that no
honest run exceeds. ``profiler/timing/report.py`` writes the reports that are read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hopsd.core.report.pause import parse_pause
from hopsd.core.report.phases import parse_phases
from hopsd.core.report.rank import Pause
from hopsd.core.report.validated import integer, number, text
from hopsd.errors import FormatError
from hopsd.model import bounds
from hopsd.model.ids import JobId, NodeName
from hopsd.model.knowledge import Phases
from hopsd.model.script_options import SIGNALS

VERSION = 1
MAX_BYTES = 65_536

FILE_NAME = re.compile(
    r"([0-9]{1,18})\.([0-9]{1,9})\.([A-Za-z0-9._-]{1,255})\.([0-9]+)\.([0-9]+)"
    r"(?:\.t[0-9a-f]{16})?\.json"
)
"""JOB.RUN.NODE.RANK.PID and a random part, which older plugins leave out."""

OLDEST_DAYS = int(bounds.REPORT_SECONDS_OLD.maximum / 86_400)

PROGRAM = re.compile(r"(?:[0-9a-f]{12})?")


@dataclass(frozen=True, slots=True)
class Report:
    """A report of one process of run ``run`` (Slurm's restart count) of a job.

    Counts are since the start of the process. ``program``: hash of the training script, "" if
    unknown. ``saved_iterations``: the count at the last `torch.save`, None before the first.
    ``planned_iterations``: the total that the process's loops show, None if they do not.
    ``timed_*``: the iterations whose wall time is known, without warm-up and evaluation.
    ``phases``: the phase times of these iterations, None before any was timed. ``profiling``: the
    run is a profile run, whose training is discarded. ``out_of_memory``: the process ended because
    a GPU's memory was too small. ``communication_timed``: whether communication time is measured
    separately from the passes, None with one rank. ``keeps_steps``: whether a step has the same
    number of samples on any number of GPUs; ``time_known``: whether it is known how long a step
    takes; both are None before the first step. ``handled_signals``: the signals of sbatch's
    ``--signal`` that the process handles. ``final``: the process has ended, or the profile run has
    measured enough. ``pause``: what the process reports about itself while it makes no steps.
    ``saving``: a save is under way; ``saved_at``: when the last save had ended and training went
    on; ``save_every``: seconds between the last two; None if not seen. ``gpus``: the number of GPUs
    on which the process holds memory, None if it computes on none. ``visible_gpus``: the number of
    GPUs that it could use; ``taken_gpus``: the number of these on which the driver sees any
    process; None if unknown. With an older plugin, the three flags and the counts of GPUs are None.
    ``first_step``, ``at``, ``saved_at``: epoch seconds by the compute node's clock.
    """

    job: JobId
    run: int
    node: NodeName
    rank: int
    pid: int
    program: str
    world: int
    first_step: float
    at: float
    iterations: int
    saved_iterations: int | None
    planned_iterations: float | None
    samples: float
    timed_iterations: int
    timed_samples: float
    timed_seconds: float
    phases: Phases | None
    profiling: bool
    out_of_memory: bool = False
    communication_timed: bool | None = None
    keeps_steps: bool | None = None
    time_known: bool | None = None
    handled_signals: frozenset[str] = frozenset()
    saving: bool = False
    saved_at: float | None = None
    save_every: float | None = None
    final: bool = False
    pause: Pause | None = None
    gpus: int | None = None
    visible_gpus: int | None = None
    taken_gpus: int | None = None


def parse_report(data: bytes, file_name: str, now: float) -> Report:
    """Parse a report and check it against its file name, format and plausible values.

    Raises:
        FormatError: names the key and what is accepted.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise FormatError("not a JSON document") from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise FormatError(f"version: give {VERSION}")
    timings = document.get("timed")
    if not isinstance(timings, dict):
        raise FormatError("timed: give an object")
    timed_iterations, timed_samples = integer(timings, "iterations"), number(timings, "samples")
    report = Report(
        job=JobId(text(document, "job")),
        run=integer(document, "run"),
        node=NodeName(text(document, "node")),
        rank=integer(document, "rank", int(bounds.GPUS.maximum) - 1),
        pid=integer(document, "pid"),
        program=_program(document),
        world=integer(document, "world", int(bounds.GPUS.maximum)),
        first_step=number(document, "first_step"),
        at=number(document, "at", now + bounds.CLOCK_SKEW_SECONDS),
        iterations=integer(document, "iterations"),
        saved_iterations=None if document.get("saved") is None else integer(document, "saved"),
        planned_iterations=None if document.get("planned") is None else number(document, "planned"),
        samples=number(document, "samples"),
        timed_iterations=timed_iterations,
        timed_samples=timed_samples,
        timed_seconds=number(timings, "seconds"),
        phases=parse_phases(document, timed_iterations, timed_samples),
        profiling=document.get("mode") == "profiling",
        out_of_memory=document.get("out_of_memory") is True,
        communication_timed=_flag(document, "communication_timed"),
        keeps_steps=_flag(document, "keeps_steps"),
        time_known=_flag(document, "time_known"),
        handled_signals=_signals(document),
        saving=document.get("saving") is True,
        saved_at=_optional(document, "saved_at", now + bounds.CLOCK_SKEW_SECONDS),
        save_every=_optional(document, "save_every"),
        final=document.get("final") is True,
        pause=parse_pause(document),
        gpus=_optional_integer(document, "gpus"),
        visible_gpus=_optional_integer(document, "visible_gpus"),
        taken_gpus=_optional_integer(document, "taken_gpus"),
    )
    _check_sense(report, file_name)
    _check_age(report, now)
    return report


def _optional(
    document: Mapping[str, Any], key: str, maximum: float = bounds.ITERATIONS.maximum
) -> float | None:
    """Return a number, or None if it is null or absent."""
    return None if document.get(key) is None else number(document, key, maximum)


def _optional_integer(document: Mapping[str, Any], key: str) -> int | None:
    return None if document.get(key) is None else integer(document, key)


def _flag(document: Mapping[str, Any], key: str) -> bool | None:
    flag = document.get(key)
    if flag is not None and not isinstance(flag, bool):
        raise FormatError(f"{key}: give true, false or null")
    return flag


def _signals(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the handled signals, which are absent in reports of older versions of the plugin."""
    names = document.get("handled_signals", [])
    if not isinstance(names, list) or not all(name in SIGNALS for name in names):
        raise FormatError(f"handled_signals: give a list of {', '.join(SIGNALS)}")
    return frozenset(names)


def _program(document: Mapping[str, Any]) -> str:
    """Return the training script's hash, which is absent in reports of older plugin versions."""
    program = document.get("program", "")
    if not isinstance(program, str) or not PROGRAM.fullmatch(program):
        raise FormatError("program: give 12 hexadecimal digits, or none")
    return program


def _check_age(report: Report, now: float) -> None:
    """Refuse a report with an implausible time: the node's clock may never have been set."""
    if not bounds.REPORT_SECONDS_OLD.holds(max(0.0, now - report.at)):
        raise FormatError(f"at: give a time of the last {OLDEST_DAYS} days")


def _check_sense(report: Report, file_name: str) -> None:
    """Refuse values that contradict each other or the file's name."""
    stated_name = f"{report.job}.{report.run}.{report.node}.{report.rank}.{report.pid}"
    name = FILE_NAME.fullmatch(file_name)
    if name is None or stated_name != ".".join(name.groups()):
        raise FormatError(f"the file's name does not match its content, {stated_name[:300]!r}")
    if report.rank >= report.world:
        raise FormatError(f"rank: give one below world, {report.world}")
    if report.timed_iterations > report.iterations or report.timed_samples > report.samples:
        raise FormatError("timed: more than was done in all")
    if report.saved_iterations is not None and report.saved_iterations > report.iterations:
        raise FormatError("saved: more than was done in all")
    if report.planned_iterations is not None and report.planned_iterations < report.iterations:
        raise FormatError("planned: less than was done in all")
    if report.samples > report.iterations * bounds.BATCH.maximum:
        raise FormatError(f"samples: give at most {bounds.BATCH.maximum:g} an iteration")
    if report.timed_iterations and report.timed_seconds <= 0.0:
        raise FormatError("timed.seconds: iterations take time")
    if report.timed_seconds > report.at - report.first_step + 1.0:
        raise FormatError("timed.seconds: longer than the run")
