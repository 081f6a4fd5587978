"""Structured logs: JSON for machines, key=value lines for a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, cast

import structlog

from hopsd.ctl.terminal import printable


def _printable(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters, since job names and Slurm's messages must not control a terminal;
    tracebacks keep their lines.
    """
    return {
        key: "\n".join(map(printable, value.split("\n"))) if isinstance(value, str) else value
        for key, value in event.items()
    }


class LossyStream:
    """A stream that never fails for its writer: if, for example, the file system is full, the line
    is lost, and :attr:`problem` says why until a later line is written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.problem = ""

    def write(self, text: str) -> int:
        self.problem = ""
        with self._note_problem():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._note_problem():
            self._stream.flush()

    @contextmanager
    def _note_problem(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self.problem = getattr(error, "strerror", None) or str(error)


_stream: LossyStream | None = None


def problem() -> str:
    """Why the last log line was lost; "" if it was written."""
    return _stream.problem if _stream is not None else ""


def configure(level: str, form: str) -> None:
    """Log to stderr. ``level`` is a name of Python's logging, ``form`` is json or console."""
    global _stream  # noqa: PLW0603 - the process has one log
    _stream = LossyStream(sys.stderr)
    processors: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if form == "json"
        else [_printable, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    # The daemon itself logs skipped ticks.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *processors,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _stream)),
        cache_logger_on_first_use=False,
    )
