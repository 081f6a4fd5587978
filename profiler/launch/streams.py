"""The standard streams of a launcher."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def open_closed() -> None:
    """Have those that were closed (``>&-``) lead nowhere.

    Python has None in their place, and what is opened next, such as a socket, gets their number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for good
