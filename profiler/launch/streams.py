"""Opens the standard streams of a launcher."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def open_closed() -> None:
    """Open the null device for streams that were closed (``>&-``).

    Python has None in their place, and the next file or socket would get their descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for good
