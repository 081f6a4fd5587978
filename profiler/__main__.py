"""``python -m hops_profiler train.py [argument ...]``: run a script with the profiler."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from hops_profiler import start


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m hops_profiler SCRIPT [ARGUMENT ...]")
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    start()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
