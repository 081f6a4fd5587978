"""`make demo-shell`: a shell on a private cluster with hops, for docs/tutorial.md.

    python -m examples.demo.shell [COMMAND [ARGUMENT ...]]

The cluster lives as long as the shell, or the command. Its files are in build/tutorial.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from examples.demo.cluster import ClusterError, NodeSpec
from examples.demo.site import PROGRAMS, DemoError, Site, say
from hopsd.errors import HopsError

FOLDER = Path("build/tutorial")
NODES = [NodeSpec("rtx3090", gpus=2, cpus=8)] * 2
ROUND_SECONDS = 20
REFRESH_SECONDS = 1


def main() -> int:
    """Run the shell or the command, and return its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with contextlib.ExitStack() as stack:
            site = Site(stack, FOLDER.resolve())
            site.start(NODES, ROUND_SECONDS, REFRESH_SECONDS)
            env = site.env | {
                "PATH": f"{PROGRAMS}:{os.environ.get('PATH', os.defpath)}",
                "PYTHON": sys.executable,
                "HOPSD_PID": str(site.hopsd.pid),
            }
            if sys.argv[1:]:
                return subprocess.run(sys.argv[1:], env=env, check=False).returncode
            say("a shell on this cluster; `exit` stops everything")
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # leave Ctrl-C to the shell
            return subprocess.run(
                ["bash", "--norc"], env=env | {"PS1": "hops$ "}, check=False,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            ).returncode  # fmt: skip
    except (DemoError, ClusterError, HopsError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
