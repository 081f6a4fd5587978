"""The ``--signal`` on sbatch's own command line, which submit plugins do not see.

Slurm keeps that line. 25.11 and later show it with the job. Earlier releases have it only in
slurmdbd (``sacct``, from 21.08 on), which is asked once for each running job's line; without
slurmdbd the line is unknown there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from hopsd.core.submission.options_text import with_signal
from hopsd.errors import AnswerPendingError, SlurmError, SlurmUnavailableError
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import JobReading, SlurmState
from hopsd.slurm.command import Runner

log = structlog.get_logger()

UNKNOWN_SECONDS = 5.0
"""The pause before a job is asked about again: slurmdbd records it some seconds after its start."""
SILENT_SECONDS = 60.0
"""The pause before slurmdbd is asked again after it refused."""
AT_ONCE = 200
"""The most jobs per query."""

_ON_NODES = frozenset({SlurmState.RUNNING, SlurmState.SUSPENDED})


def signal_option(line: str, command: str) -> str:
    """Return the value of the last ``--signal`` before the script's name; "" if there is none.

    ``command`` is the job's script and arguments as Slurm reports them: the script may have an
    option of that name, too.
    """
    words = line.split()[1:]
    script = command.split(" ", 1)[0].rpartition("/")[2]
    for position, word in enumerate(words):
        if script and word.rpartition("/")[2] == script:
            words = words[:position]
            break
    signal = ""
    for word, next_word in zip(words, [*words[1:], ""], strict=False):
        name, _, value = word.partition("=")
        if name.startswith("--") and _long_options(name[2:]) == {"signal"}:
            signal = value or next_word
    return signal


_FLAGS = frozenset(
    """
    contiguous consolidate-segments exclusive external get-user-env help hold ignore-pbs nice
    no-kill no-requeue oom-kill-step overcommit oversubscribe parsable propagate quiet reboot
    requeue resv-ports spread-job spread-segments stepmgr test-only usage use-min-nodes verbose
    version wait
    """.split()  # noqa: SIM905  # a table
)
"""sbatch's long options whose value, if they take one, is never the next word (slurm_opt.c of
Slurm 22.05 to 26.05)."""
_WITH_VALUE = frozenset(
    """
    account acctg-freq array autocomplete batch bb bbf begin chdir cluster cluster-constraint
    clusters comment constraint container container-id context core-spec cores-per-socket cpu-freq
    cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude export
    export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
    gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type
    mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile
    nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    ntasks-per-tres open-mode output partition power prefer priority profile qos reservation
    resources runtime segment signal sockets-per-node switches tasks-per-node thread-spec
    threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
    """.split()  # noqa: SIM905  # a table
)
"""The other long options: their value follows after = or as the next word."""
_SHORT_FLAGS = frozenset("hHkOQsvVW")


def _long_options(name: str) -> frozenset[str]:
    """The options that ``name``, without its dashes, may stand for: getopt_long(3) accepts any
    prefix that is unique among the options of this release.
    """
    options = _FLAGS | _WITH_VALUE
    if name in options:
        return frozenset({name})
    return frozenset(option for option in options if option.startswith(name))


def options_of(words: Sequence[str]) -> Sequence[str]:
    """The words of sbatch's line before the script: options with their values."""
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            return words[:position]
        if word.startswith("--"):
            name, separator, _ = word[2:].partition("=")
            options = _long_options(name)
            position += 1 if separator or (options and options <= _FLAGS) else 2
        elif word.startswith("-") and len(word) > 1:
            flags = len(word[1:]) - len(word[1:].lstrip("".join(_SHORT_FLAGS)))
            position += (
                2 if flags == len(word) - 2 else 1
            )  # the last letter's value is the next word
        else:
            return words[:position]
    return words


def submit_lines(jobs: Iterable[Mapping[str, Any]]) -> dict[JobId, str]:
    """The submit lines in an answer of ``squeue --json``, by the job's own number."""
    lines = ((job.get("job_id"), job.get("submit_line")) for job in jobs)
    return {JobId(str(job)): line for job, line in lines if isinstance(line, str) and line}


_Key = tuple[JobId, UserName, str]


class SubmitLines:
    """Reads each job's submit line once. ``needs_lines`` says whether the site has slurmdbd."""

    def __init__(
        self,
        commands: Runner,
        needs_lines: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands
        self._needs_lines = needs_lines
        self._clock = clock
        self._lines: dict[_Key, str] = {}
        self._question: tuple[dict[JobId, _Key], str] | None = None
        self._not_before: dict[_Key, float] = {}

    def apply(self, jobs: Sequence[JobReading], lines: Mapping[JobId, str]) -> list[JobReading]:
        """Return the jobs with the signals of their lines; ``lines`` are from squeue's answer."""
        missing = [job for job in jobs if _number(job) not in lines and job.state in _ON_NODES]
        keys = {_key(job) for job in missing}
        self._lines = {key: line for key, line in self._lines.items() if key in keys}
        self._not_before = {key: time for key, time in self._not_before.items() if key in keys}
        if missing and self._needs_lines():
            self._ask(missing)
        return [
            _with_line(job, lines.get(_number(job)) or self._lines.get(_key(job), ""))
            for job in jobs
        ]

    def _ask(self, jobs: Sequence[JobReading]) -> None:
        """Ask for the lines of jobs not asked about recently, or repeat the query that is still
        unanswered.
        """
        by_id, mark = question = self._question or self._next_question(jobs)
        if not by_id:
            return
        self._question = None
        try:
            output = self._commands.run(
                *("sacct", "--allocations", "--noheader", "--parsable2", f"--delimiter={mark}"),
                *("--format=JobID,SubmitLine", f"--jobs={','.join(by_id)}"),
            )
        except AnswerPendingError:
            self._question = question
            return
        except SlurmUnavailableError:  # the breaker has logged it, and knows when to ask again
            return
        except SlurmError as error:
            log.warning("submit lines", problem=str(error))
            self._not_before |= {_key(job): self._clock() + SILENT_SECONDS for job in jobs}
            return
        key: _Key | None = None
        for line in output.splitlines():
            job, separator, words = line.partition(mark)
            if separator:
                key = by_id.get(JobId(job))
                if key is not None and words:
                    self._lines[key] = words
            elif key in self._lines:
                self._lines[key] += f"\n{line}"

    def _next_question(self, jobs: Sequence[JobReading]) -> tuple[dict[JobId, _Key], str]:
        """Choose the jobs to ask about, and the separator of the answer's fields: it is random, so
        that a submit line with a line break cannot forge another job's entry.
        """
        now = self._clock()
        new = [
            job
            for job in jobs
            if _key(job) not in self._lines and self._not_before.get(_key(job), now) <= now
        ][:AT_ONCE]
        self._not_before |= {_key(job): now + UNKNOWN_SECONDS for job in new}
        return {job.id: _key(job) for job in new}, secrets.token_hex(8)


def _key(job: JobReading) -> _Key:
    """Return more than the id, since Slurm reuses ids after the highest one."""
    return job.id, job.user, job.command


def _number(job: JobReading) -> JobId:
    return JobId(job.number or job.id)


def _with_line(job: JobReading, line: str) -> JobReading:
    option = signal_option(line, job.command) if "--signal" in line else ""
    return replace(job, options=with_signal(job.options, option)) if option else job
