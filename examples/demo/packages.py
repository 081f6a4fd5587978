"""Installs Slurm for the demo from Debian's packages, if it is missing and that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from examples.demo.cluster import PACKAGES, missing_programs


def ensure_slurm() -> None:
    """Install missing packages, or exit with a message that names them.

    Services are kept from starting (policy-rc.d, invoke-rc.d(8)), since the demo does not use the
    packages' daemons. An existing Slurm is left alone.
    """
    missing = missing_programs()
    if not missing:
        return
    install = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"demo: {', '.join(missing)} not found; install Slurm first: sudo {install}")
    print(f"demo: {install}", flush=True)
    policy = Path("/usr/sbin/policy-rc.d")
    is_new = not policy.exists()
    if is_new:
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
        if is_new:
            policy.unlink()
