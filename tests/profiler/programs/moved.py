"""Runs a program of this folder as a job that moves between numbers of ranks, over Gloo.

    moved.py PROGRAM RANKS[:STEP] ...

Each run is asked to leave once its first rank has noted STEP steps; without one it goes to its end.
"ended CODES" follows each run's ranks. What ranks note is in ``RUN.RANK.jsonl``.
"""

import importlib
import os
import runpy
import signal
import socket
import sys
import time
from pathlib import Path

MODULES = {
    "moved_huggingface": "transformers.trainer",
    "moved_lightning": "lightning.pytorch",
}
name, *runs = sys.argv[1:]
program = Path(__file__).with_name(f"{name}.py")
sys.argv[1:] = []
sys.path[0] = str(program.parent)
for module in ("torch._dynamo", MODULES[name]):
    importlib.import_module(module)
for number, run in enumerate(runs):
    ranks, _, step = run.partition(":")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = []
    sys.stdout.flush()
    for rank in range(int(ranks)):
        pid = os.fork()
        if not pid:
            os.environ.update(
                HOPS_RESTART_COUNT=str(number),
                RUN=str(number),
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=ranks,
                LOCAL_WORLD_SIZE=ranks,
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )
            try:
                runpy.run_path(str(program), run_name="__main__")
            except SystemExit as end:
                os._exit(end.code or 0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    noted = Path(f"{number}.0.jsonl")
    while step and not (noted.exists() and noted.read_bytes().count(b"\n") >= int(step)):
        time.sleep(0.01)
        if os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
    for pid in pids if step else ():
        os.kill(pid, signal.SIGUSR1)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print("ended", *codes)
