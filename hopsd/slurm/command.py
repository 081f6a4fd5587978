"""Runs Slurm's commands: argument lists, a time-out, the C locale, never a shell."""

from __future__ import annotations

import os
import re
import secrets
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf
from threading import Timer
from typing import IO, Protocol, cast

from hopsd.errors import SlurmError, SlurmUnavailableError

# What the commands print when slurmctld or munged is down (22.05, 24.11, 26.05). Writes report
# "Unexpected message received" on 22.05 after ten seconds without an answer; "Connection reset by
# peer" appears when slurmctld is killed during a request (26.05).
_NO_ANSWER = (
    "Unable to contact slurm controller",
    "Unexpected message received",
    "Socket timed out",
    "Connection refused",
    "Connection reset by peer",
    "Connection timed out",
    "Broken pipe",
    "Transport endpoint is not connected",
    "No route to host",
    "Network is unreachable",
    "Zero Bytes were transmitted",
    "authentication",
    "Munge",
    "Unable to process configuration file",
    "Could not establish a configuration source",
)

NO_ANSWER = "no answer within"
"""Part of the error of a command that took longer than its time-out."""

UNRECORDED = "the DB index is being set"
"""slurmctld's error, after five seconds, for a job that slurmdbd has not recorded yet (22.05)."""

_PLAIN = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
"""Overrides the administrator's own environment, so that the output has one form and the numbers of
an array's tasks are not truncated.
"""


# Characters that scontrol's command line takes literally: neither spaces nor quotes, nor readline's
# editing commands. Comments and other text of users may contain anything.
_PLAIN_WORD = re.compile(r"[\w.,:;=/+%@#\[\]()*-]+", re.ASCII)

# scontrol accepts 128 words per line and, without readline, 4,095 characters.
_MAX_WORDS, _MAX_LINE = 100, 4000

_MAX_NAME = 80


def _is_name(word: str) -> bool:
    """Whether a word belongs to the command's name (``scontrol update``); errors omit options."""
    return not word.startswith("-") and "=" not in word


def _command_text(arguments: Sequence[str]) -> str:
    """The command as error messages show it, cut short: there may be many ids."""
    name = " ".join(takewhile(_is_name, arguments))
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}..."


def _refusal(name: str, output: str) -> SlurmError:
    """Return the error for a command that failed with this output: Slurm refused, or is down."""
    unreachable = any(words in output for words in _NO_ANSWER)
    return (SlurmUnavailableError if unreachable else SlurmError)(f"{name}: {output}")


class Runner(Protocol):
    """Anything that runs Slurm's commands."""

    def run(self, *arguments: str) -> str:
        """Run a command, as :meth:`SlurmCommands.run` does."""


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """A runner for Slurm's commands.

    ``environment`` is added to this process's own, for example SLURM_CONF for a cluster that is not
    the machine's default.
    """

    timeout_seconds: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def with_time_out(self, seconds: float) -> SlurmCommands:
        """Return the same runner with a time-out of at most ``seconds``."""
        return replace(self, timeout_seconds=min(self.timeout_seconds, seconds))

    def run(self, *arguments: str) -> str:
        """Run a command; returns its standard output if it exited with 0.

        Raises:
            SlurmUnavailableError: no such command, no answer in time, or slurmctld is down.
            SlurmError: Slurm refused; with its own message.
        """
        name = _command_text(arguments)
        try:
            process = subprocess.run(
                arguments,
                env={**os.environ, **self.environment, **_PLAIN},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            # Without a configuration, Slurm's commands say so and retry for a minute (22.05).
            lines = (error.stderr or b"").decode(errors="replace").strip().splitlines()
            raise SlurmUnavailableError(
                f"{name}: {NO_ANSWER} {self.timeout_seconds:g} s"
                + (f"; it said: {lines[-1]}" if lines else "")
            ) from error
        except OSError as error:
            raise SlurmUnavailableError(f"{name}: {error.strerror or error}") from error
        if process.returncode:
            output = (process.stderr or process.stdout).decode(errors="replace").strip()
            raise _refusal(name, output or f"exit code {process.returncode}")
        return process.stdout.decode(errors="replace")

    def run_until(self, words: str, *arguments: str) -> None:
        """Run a command until it ends or ``words`` appear in its error output.

        Raises:
            SlurmUnavailableError, SlurmError: as for :meth:`run`.
        """
        name = _command_text(arguments)
        lines: list[str] = []
        try:
            with subprocess.Popen(
                arguments,
                env={**os.environ, **self.environment, **_PLAIN},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            ) as process:
                timer = Timer(self.timeout_seconds, process.kill)
                timer.start()
                try:
                    for line in process.stderr or ():
                        if words in line:
                            process.kill()
                            return
                        lines.append(line)
                    code = process.wait()
                    in_time = timer.is_alive()
                finally:
                    timer.cancel()
        except OSError as error:
            raise SlurmUnavailableError(f"{name}: {error.strerror or error}") from error
        if not in_time:
            raise SlurmUnavailableError(f"{name}: {NO_ANSWER} {self.timeout_seconds:g} s")
        if code:
            raise _refusal(name, "".join(lines).strip() or f"exit code {code}")

    def try_submission(self, words: Sequence[str]) -> tuple[bool, str]:
        """Return whether ``sbatch WORDS`` would create a job, and its output; none is created.

        The environment has HOPS_CHECK=1, so the submit plugin prints what it found.

        Raises:
            SlurmUnavailableError: sbatch is missing, or does not answer in time.
        """
        try:
            process = subprocess.run(
                ("sbatch", "--test-only", *words),
                env={**os.environ, **self.environment, **_PLAIN, "HOPS_CHECK": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.timeout_seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlurmUnavailableError(f"sbatch --test-only: {error}") from error
        return process.returncode == 0, process.stderr.decode(errors="replace")


class ScontrolSession:
    """One ``scontrol`` process that carries out one request after another; not thread-safe.

    Use it for updates, which may be sent again, and for requests that change nothing. A session
    detects a refusal by scontrol's output, but a site's scontrol may print a warning for each
    request that it carries out; then only the exit code of a separate process decides. A
    ``release`` must not be repeated: the submit plugin would take the second one for intended.

    Every new ``scontrol`` process first reads the cluster's whole configuration, which with
    thousands of nodes is most of the cost of thousands of updates. Without a command, ``scontrol``
    reads commands from its standard input, one per line, and continues after one that Slurm refuses
    (scontrol.c of 22.05 to 26.05). Its errors do not say which command they belong to. So an
    unknown word is sent after each command, and the complaint about that word marks the end of the
    command's output.

    Each command is answered before the next one is sent, so whoever stops this process between two
    commands stops the rest. The process starts with the first request, and again after
    :meth:`close`, a failure, or if it was killed between two requests.
    """

    def __init__(self, commands: SlurmCommands, program: tuple[str, ...] = ("scontrol",)) -> None:
        self._commands = commands
        self._program = program
        self._running: _Running | None = None
        self._buffer = b""

    def run(self, *words: str, seconds: float = inf) -> None:
        """Carry out ``scontrol WORDS``, in a separate process if the words need quotes.
        ``seconds`` is a time-out, if shorter than that of all commands.

        Raises:
            SlurmUnavailableError, SlurmError: as for :meth:`SlurmCommands.run`.
        """
        line = " ".join(words)
        commands = self._commands.with_time_out(seconds)
        if len(words) > _MAX_WORDS or len(line) > _MAX_LINE or not all(map(_is_plain, words)):
            commands.run(*self._program, *words)
            return
        name = _command_text(("scontrol", *words))
        if self._running is not None and self._running.process.poll() is not None:
            self._end()  # killed between two requests: nothing of this one was sent
        if self._running is None:
            self._running = self._start(name)
            # Skip what scontrol prints about its configuration.
            self._ask("", name, self._commands.timeout_seconds)
        if output := self._ask(line, name, commands.timeout_seconds).strip():
            error = _refusal(name, output)
            if isinstance(error, SlurmUnavailableError):
                self._end()
            elif words[0] == "update" and UNRECORDED not in output:
                commands.run(*self._program, *words)
                return
            raise error

    def close(self) -> None:
        """End the process; a later request starts another one."""
        self._end(patience=self._commands.timeout_seconds)

    def _start(self, name: str) -> _Running:
        # Keeps readline from reading the account's settings and from drawing anything.
        plain = {"INPUTRC": "/dev/null", "TERM": "dumb"}
        try:
            process = subprocess.Popen(
                self._program,
                env={**os.environ, **self._commands.environment, **_PLAIN, **plain},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise SlurmUnavailableError(f"{name}: {error.strerror or error}") from error
        self._buffer = b""
        return _Running(process, cast(IO[bytes], process.stdin), cast(IO[bytes], process.stderr))

    def _ask(self, line: str, name: str, seconds: float) -> str:
        """Send one line; returns scontrol's output about it."""
        running = cast(_Running, self._running)
        # Random, so that a user whose text appears in an error message cannot forge the mark.
        mark = f"hops-{secrets.token_hex(8)}"
        end = f"invalid keyword: {mark}\n".encode()
        with suppress(OSError):  # scontrol has ended, and its last output says why
            running.stdin.write(f"{line}\n{mark}\n".encode())
            running.stdin.flush()
        try:
            self._read_until(end, running.stderr.fileno(), seconds)
        except TimeoutError as error:
            last = self._buffer.decode(errors="replace").strip().splitlines()[-1:]
            self._end()
            raise SlurmUnavailableError("; it said: ".join([f"{name}: {error}", *last])) from error
        output, terminator, self._buffer = self._buffer.partition(end)
        text = output.decode(errors="replace")
        if not terminator:
            self._end()
            raise SlurmUnavailableError(f"{name}: {text.strip() or 'scontrol ended'}")
        return text

    def _read_until(self, end: bytes, stderr: int, seconds: float) -> None:
        """Read scontrol's output up to ``end``, or all of it if scontrol ends."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stderr, selectors.EVENT_READ)
            while end not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"{NO_ANSWER} {seconds:g} s")
                part = os.read(stderr, 65536)
                if not part:
                    return
                self._buffer += part

    def _end(self, patience: float = 0.0) -> None:
        """Close scontrol's input, which ends it; kill it if still running after ``patience`` s."""
        running, self._running = self._running, None
        if running is None:
            return
        with suppress(OSError):
            running.stdin.close()
        try:
            running.process.wait(patience)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
        running.stderr.close()


@dataclass(frozen=True, slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stderr: IO[bytes]


def _is_plain(word: str) -> bool:
    return _PLAIN_WORD.fullmatch(word) is not None
