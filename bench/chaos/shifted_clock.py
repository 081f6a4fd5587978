"""Run hopsd with its clock shifted by the seconds in FILE. Arguments: FILE, then those of hopsd."""

from __future__ import annotations

import datetime
import importlib
import sys
import time
from pathlib import Path

FILE = Path(sys.argv.pop(1))
_time = time.time


def offset() -> float:
    return float(FILE.read_text())


class ShiftedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> ShiftedDatetime:
        return cls.fromtimestamp(_time() + offset(), tz)


time.time = lambda: _time() + offset()  # before importing hopsd, where it is a default argument
for name in (
    "apscheduler.schedulers.base",
    "apscheduler.triggers.interval",
    "hopsd.service.daemon",
):
    importlib.import_module(name).datetime = ShiftedDatetime  # type: ignore[attr-defined]
importlib.import_module("hopsd.__main__").main()
