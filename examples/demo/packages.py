"""Slurm for the demo: from Debian's packages when it is missing and may be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from examples.demo.cluster import PACKAGES, missing_programs


def ensure_slurm() -> None:
    """Install what is missing, or end with a word on what to install.

    Services are kept from starting (policy-rc.d, invoke-rc.d(8)): the packages' own daemons
    are of no use here, and an existing Slurm is not touched.
    """
    missing = missing_programs()
    if not missing:
        return
    install = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"demo: {', '.join(missing)} not found; install Slurm first: sudo {install}")
    print(f"demo: {install}", flush=True)
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        for command in (["update", "-q"], ["install", "-yq", "--no-install-recommends", *PACKAGES]):
            subprocess.run(
                ["apt-get", *command],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdout=subprocess.DEVNULL,
                check=True,
            )
    finally:
        if ours:
            policy.unlink()
