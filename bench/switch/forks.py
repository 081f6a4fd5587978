"""Run a trial repeatedly, each time in a fork of this process, which has imported PyTorch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hops_profiler.launch import script
from hops_profiler.launch.preload import preload
from hops_profiler.launch.ranks import fork

from bench.switch.turns import note


def main() -> None:
    trial, megabytes, switches = sys.argv[1:4]
    assert not preload()
    for number in range(int(switches)):
        note(Path(os.environ["BENCH_OUT"]), f"n{number}", "began")
        pid = fork()
        if not pid:
            script.run([trial, megabytes, "2", f"n{number}", "resume"], module=False)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
