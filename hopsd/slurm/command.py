"""Runs Slurm's commands: argument lists, a time-out, the C locale, never a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from threading import Timer

from hopsd.errors import SlurmError, SlurmUnavailableError

# What the commands say when slurmctld or munged is away (22.05, 24.11, 26.05). "Unexpected
# message received" is what writes report on 22.05 after ten seconds without an answer;
# "Connection reset by peer" is seen when slurmctld is killed during a request (26.05).
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

PLAIN = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
"""Set whatever the administrator's own environment says, so that the output has one form
and the numbers of an array's tasks are not cut short.
"""


def _is_name(word: str) -> bool:
    """Whether a word belongs to the command's name (``scontrol update``); errors omit options."""
    return not word.startswith("-") and "=" not in word


def shown(arguments: Sequence[str]) -> str:
    """A command as errors name it."""
    return " ".join(takewhile(_is_name, arguments))


def refusal(name: str, said: str) -> SlurmError:
    """The error for a command that failed with these words: Slurm refused, or is away."""
    away = any(words in said for words in _NO_ANSWER)
    return (SlurmUnavailableError if away else SlurmError)(f"{name}: {said}")


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """A runner for Slurm's commands.

    ``environment`` is added to this process's own, such as SLURM_CONF for a cluster that is not
    the machine's default.
    """

    timeout_seconds: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> str:
        """Standard output of a command that exited with 0.

        Raises:
            SlurmUnavailableError: no command, no answer in time, or slurmctld is away.
            SlurmError: Slurm refused; with its own message.
        """
        name = shown(arguments)
        try:
            done = subprocess.run(
                arguments,
                env={**os.environ, **self.environment, **PLAIN},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            # With a missing configuration, Slurm's commands say so and try for a minute (22.05).
            lines = (error.stderr or b"").decode(errors="replace").strip().splitlines()
            raise SlurmUnavailableError(
                f"{name}: no answer within {self.timeout_seconds:g} s"
                + (f"; it said: {lines[-1]}" if lines else "")
            ) from error
        except OSError as error:
            raise SlurmUnavailableError(f"{name}: {error.strerror or error}") from error
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise refusal(name, said or f"exit code {done.returncode}")
        return done.stdout.decode(errors="replace")

    def run_until(self, words: str, *arguments: str) -> None:
        """Run a command to its end or until ``words`` appear in its error output.

        Raises:
            SlurmUnavailableError, SlurmError: as for :meth:`run`.
        """
        name = shown(arguments)
        said: list[str] = []
        try:
            with subprocess.Popen(
                arguments,
                env={**os.environ, **self.environment, **PLAIN},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            ) as process:
                late = Timer(self.timeout_seconds, process.kill)
                late.start()
                try:
                    for line in process.stderr or ():
                        if words in line:
                            process.kill()
                            return
                        said.append(line)
                    code = process.wait()
                    in_time = late.is_alive()
                finally:
                    late.cancel()
        except OSError as error:
            raise SlurmUnavailableError(f"{name}: {error.strerror or error}") from error
        if not in_time:
            raise SlurmUnavailableError(f"{name}: no answer within {self.timeout_seconds:g} s")
        if code:
            raise refusal(name, "".join(said).strip() or f"exit code {code}")

    def try_submission(self, words: Sequence[str]) -> tuple[bool, str]:
        """Whether ``sbatch WORDS`` would create a job, and its output; none is created.

        The environment has HOPS_CHECK=1, so the submit plugin prints what it found.

        Raises:
            SlurmUnavailableError: no sbatch, or no answer in time.
        """
        try:
            done = subprocess.run(
                ("sbatch", "--test-only", *words),
                env={**os.environ, **self.environment, **PLAIN, "HOPS_CHECK": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.timeout_seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlurmUnavailableError(f"sbatch --test-only: {error}") from error
        return done.returncode == 0, done.stderr.decode(errors="replace")
