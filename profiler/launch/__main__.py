"""``python -m hops_profiler.launch [torchrun's options] train.py [argument ...]``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import NoReturn

from hops_profiler import startup
from hops_profiler.launch import place, rendezvous
from hops_profiler.launch.options import Options, parse
from hops_profiler.launch.place import Place
from hops_profiler.launch.preload import preload
from hops_profiler.launch.ranks import Ranks, command
from hops_profiler.launch.rendezvous import NobodyCameError, World
from hops_profiler.launch.script import run
from hops_profiler.launch.streams import open_closed

MEET_SECONDS = 600.0
"""How long nodes wait for one another: torchrun's own limit."""


def main() -> None:
    """Start the ranks and wait for them; ends with the code of the first that failed."""
    open_closed()
    options = parse(sys.argv[1:])
    here = place.find()
    if options.ignored:
        _say(f"without meaning here, ignored: {', '.join(options.ignored)}")
    startup.suspend()  # the launcher does not train
    spread = options.nodes is None and options.node_rank is None and options.address is None
    if spread and here.nodes > 1 and not here.in_step:
        sys.exit(_on_every_node(here))
    try:
        if here.one_task_a_rank and options.node_rank is None:
            _become_rank(options, here)
        code = _start(options, here)
    except NobodyCameError as error:
        _say(str(error))
        sys.exit(1)
    # Only the launcher comes here. Python would take PyTorch apart for a second, and the job would
    # keep its GPUs meanwhile.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _on_every_node(here: Place) -> int:
    """The same command once on every node of the job; srun's exit code."""
    step = ["srun", f"--nodes={here.nodes}", f"--ntasks={here.nodes}", "--ntasks-per-node=1"]
    step += ["--kill-on-bad-exit=1", "--cpu-bind=none"]
    ranks = Ranks()
    environ = {k: v for k, v in os.environ.items() if not (k.startswith("SRUN_") and not v)}
    with ranks.signalled():
        child = subprocess.Popen(
            [*step, sys.executable, "-m", "hops_profiler.launch", *sys.argv[1:]], env=environ
        )
        ranks.pids[0] = child.pid
        return ranks.wait()


def _become_rank(options: Options, here: Place) -> None:
    """srun started one process per rank: this one becomes the script. Does not return."""
    world = rendezvous.meet(
        here.key, here.first, here.task, here.tasks, 1, options.port, MEET_SECONDS
    )
    alone = here.gpus == 1 and here.local_tasks > 1  # it sees its own GPU, as number 0
    local = (0, 1) if alone else (here.local_task, here.local_tasks)
    environ = {**os.environ, **_environment(world, here, options, *local, rank=here.task)}
    line = command(options.arguments, module=options.module, python=options.python)
    os.execvpe(line[0], line, environ)  # noqa: S606 - the user's own program


def _start(options: Options, here: Place) -> int:
    """The ranks of this node."""
    count = options.per_node or here.gpus or 1
    if options.node_rank is not None:
        here = replace(here, node=options.node_rank)
    nodes = options.nodes or (here.nodes if here.in_step else 1)
    if count > 1:
        # As torchrun does; PyTorch reads it when it is imported.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    world = _world(options, here, nodes, count)
    restarts = options.restarts if nodes == 1 else 0
    alone = count == 1 and not restarts
    reason = preload(alone=alone) if options.python else "not a Python script"
    if reason:
        _say(f"every rank starts as a process of its own: {reason}")
    if alone:
        # Nobody to supervise: a fork would copy the pages that the rank touches, at its end all.
        os.environ.update(_environment(world, here, options, 0, count, world.offset))
        _train(options, imported=not reason)
    for attempt in range(restarts + 1):
        ranks = Ranks()
        with ranks.signalled():
            for local in range(count):
                own = _environment(world, here, options, local, count, world.offset + local)
                own["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
                if ranks.start(local, lambda own=own: os.environ.update(own)):  # type: ignore[misc]
                    _train(options, imported=not reason)
            code = ranks.wait()
        if not code or attempt == restarts:
            return code
        _say(f"a rank ended with code {code}: all start again, {restarts - attempt} tries left")
        time.sleep(1.0)
    return code


def _train(options: Options, *, imported: bool) -> NoReturn:
    """Run the script in a rank. ``imported``: PyTorch is, in this process."""
    if imported:
        run(options.arguments, module=options.module)
        sys.exit(0)
    line = command(options.arguments, module=options.module, python=options.python)
    os.execvp(line[0], line)  # noqa: S606 - the user's own program


def _world(options: Options, here: Place, nodes: int, count: int) -> World:
    """All ranks: nodes exchange how many they start, which need not be the same."""
    key = f"{here.key}.{options.run_id}.{options.port or ''}"
    address = options.address or here.first
    return rendezvous.meet(key, address, here.node, nodes, count, options.port, MEET_SECONDS)


def _environment(
    world: World, here: Place, options: Options, local: int, count: int, rank: int
) -> dict[str, str]:
    """The environment variables that torchrun sets."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world.ranks),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": str(here.node),
        "GROUP_WORLD_SIZE": str(world.nodes),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(world.ranks),
        "MASTER_ADDR": options.address or here.first,
        "MASTER_PORT": str(world.port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": str(options.restarts),
        "TORCHELASTIC_RUN_ID": options.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def _say(what: str) -> None:
    sys.stderr.write(f"hops-run: {what}\n")


if __name__ == "__main__":
    main()
