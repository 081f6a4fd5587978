"""hopsd with a time of day that is off by what FILE says: FILE, then hopsd's arguments."""

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


class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Shifted:
        return cls.fromtimestamp(_time() + offset(), tz)


time.time = lambda: _time() + offset()  # before hopsd is imported: it is the default of arguments
for name in (
    "apscheduler.schedulers.base",
    "apscheduler.triggers.interval",
    "hopsd.service.daemon",
):
    importlib.import_module(name).datetime = Shifted  # type: ignore[attr-defined]
importlib.import_module("hopsd.__main__").main()
