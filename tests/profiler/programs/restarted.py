"""Runs a program of this folder three times, importing its framework once: without interruption,
until it is asked to leave, and from there on. "ended CODE" follows the losses of each run.
"""

import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

MODULES = {
    "huggingface": "transformers.trainer",
    "lightning_loop": "lightning.pytorch",
    "accelerate_loop": "accelerate",
}
name, leave_at = sys.argv[1:]
program = Path(__file__).with_name(f"{name}.py")
sys.argv[1:] = []
sys.path[0] = str(program.parent)
importlib.import_module(MODULES[name])
start_folder = Path.cwd()
for folder, restarts, at in (("alone", "0", ""), ("job", "0", leave_at), ("job", "1", "")):
    (start_folder / folder).mkdir(exist_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.chdir(start_folder / folder)
        os.environ.update(HOPS_RESTART_COUNT=restarts, LEAVE_AT=at)
        runpy.run_path(str(program), run_name="__main__")
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    memory = os.environ.get("HOPS_STATE_DIR")
    if memory:  # the epilog, which Slurm does not wait for
        subprocess.Popen(
            ["/bin/sh", program.parents[3] / "slurm_plugin" / "save.sh", memory],
            env={"PATH": "/usr/bin:/bin"},
        )
    print("ended", code)
