"""Background work: queries to Slurm and judgements that take seconds must not delay a tick."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_thread(work: Callable[[], None]) -> None:
    """Start ``work`` in a thread that does not keep the process alive."""
    threading.Thread(target=work, name="background", daemon=True).start()
