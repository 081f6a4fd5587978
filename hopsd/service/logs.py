"""Structured logs: JSON for machines, key=value lines for a terminal."""

from __future__ import annotations

import logging
import sys

import structlog

from hopsd.ctl.terminal import printable


def _printable(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Job names and Slurm's messages must not control the terminal; tracebacks keep their lines."""
    return {
        key: "\n".join(map(printable, value.split("\n"))) if isinstance(value, str) else value
        for key, value in event.items()
    }


def configure(level: str, form: str) -> None:
    """``level`` as Python names them, ``form`` json or console; everything goes to stderr."""
    rendered: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if form == "json"
        else [_printable, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    # The daemon itself logs a tick that is left out.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
