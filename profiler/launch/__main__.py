"""``python -m hops_profiler.launch [torchrun's options] train.py [argument ...]``."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import NoReturn

from hops_profiler import startup
from hops_profiler.launch import rendezvous
from hops_profiler.launch.launch_place import LaunchPlace, find_place
from hops_profiler.launch.options import Options, parse
from hops_profiler.launch.preload import preload
from hops_profiler.launch.ranks import Ranks, command
from hops_profiler.launch.rendezvous import NobodyCameError, World
from hops_profiler.launch.script import run
from hops_profiler.launch.streams import open_closed

MEET_SECONDS = 600.0
"""How long nodes wait for one another, the same limit as torchrun's."""


def main() -> None:
    """Start the ranks and wait for them; exit with the code of the first that failed."""
    open_closed()
    options = parse(sys.argv[1:])
    place = find_place()
    if options.without_effect:
        _say(f"these options have no effect: {', '.join(options.without_effect)}")
    startup.suspend()  # the launcher does not train
    spread = options.nodes is None and options.node_rank is None and options.address is None
    if spread and place.nodes > 1 and not place.in_step:
        sys.exit(_on_every_node(place))
    try:
        if place.one_task_a_rank and options.node_rank is None:
            _become_rank(options, place)
        code = _start(options, place)
    except NobodyCameError as error:
        _say(str(error))
        sys.exit(1)
    # Only the launcher gets here. Otherwise Python would spend a second on freeing PyTorch's
    # objects while the job keeps its GPUs.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _on_every_node(place: LaunchPlace) -> int:
    """Run the same command once on every node of the job; return srun's exit code."""
    step = ["srun", f"--nodes={place.nodes}", f"--ntasks={place.nodes}", "--ntasks-per-node=1"]
    step += ["--kill-on-bad-exit=1", "--cpu-bind=none"]
    ranks = Ranks()
    environ = {k: v for k, v in os.environ.items() if not (k.startswith("SRUN_") and not v)}
    with ranks.forward_signals():
        child = subprocess.Popen(
            [*step, sys.executable, "-m", "hops_profiler.launch", *sys.argv[1:]], env=environ
        )
        ranks.pids[0] = child.pid
        return ranks.wait()


def _become_rank(options: Options, place: LaunchPlace) -> None:
    """Replace this process by the script, if srun started one for each rank. Does not return."""
    world = rendezvous.meet(
        place.key, place.first, place.task, place.tasks, 1, options.port, MEET_SECONDS
    )
    alone = place.gpus == 1 and place.local_tasks > 1  # it only sees its own GPU, as number 0
    local = (0, 1) if alone else (place.local_task, place.local_tasks)
    environ = {**os.environ, **_environment(world, place, options, *local, rank=place.task)}
    line = command(options.arguments, module=options.module, python=options.python)
    os.execvpe(line[0], line, environ)  # noqa: S606 - the user's own program


def _start(options: Options, place: LaunchPlace) -> int:
    """Start the ranks of this node and wait for them; return their exit code."""
    count = options.per_node or place.gpus or 1
    if options.node_rank is not None:
        place = replace(place, node=options.node_rank)
    nodes = options.nodes or (place.nodes if place.in_step else 1)
    if count > 1:
        # As torchrun does; PyTorch reads this when it is imported.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    world = _world(options, place, nodes, count)
    restarts = options.restarts if nodes == 1 else 0
    alone = count == 1 and not restarts
    reason = preload(alone=alone) if options.python else "not a Python script"
    if reason:
        _say(f"every rank starts as a separate process: {reason}")
    if alone:
        # Nothing to supervise, and a fork would copy each page that the rank touches (all at exit).
        os.environ.update(_environment(world, place, options, 0, count, world.offset))
        _train(options, has_torch=not reason)
    for attempt in range(restarts + 1):
        ranks = Ranks()
        with ranks.forward_signals():
            for local in range(count):
                environ = _environment(world, place, options, local, count, world.offset + local)
                environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
                if ranks.start(local, functools.partial(os.environ.update, environ)):
                    _train(options, has_torch=not reason)
            code = ranks.wait()
        if not code or attempt == restarts:
            return code
        _say(f"a rank ended with code {code}: restarting all ({restarts - attempt} restarts left)")
        time.sleep(1.0)
    return code


def _train(options: Options, *, has_torch: bool) -> NoReturn:
    """Run the script in a rank. ``has_torch`` says whether this process has imported PyTorch."""
    if has_torch:
        run(options.arguments, module=options.module)
        sys.exit(0)
    line = command(options.arguments, module=options.module, python=options.python)
    os.execvp(line[0], line)  # noqa: S606 - the user's own program


def _world(options: Options, place: LaunchPlace, nodes: int, count: int) -> World:
    """Find all ranks: nodes exchange how many they start, which may differ."""
    key = f"{place.key}.{options.run_id}.{options.port or ''}"
    address = options.address or place.first
    return rendezvous.meet(key, address, place.node, nodes, count, options.port, MEET_SECONDS)


def _environment(
    world: World, place: LaunchPlace, options: Options, local: int, count: int, rank: int
) -> dict[str, str]:
    """Return the environment variables that torchrun sets."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world.ranks),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": str(place.node),
        "GROUP_WORLD_SIZE": str(world.nodes),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(world.ranks),
        "MASTER_ADDR": options.address or place.first,
        "MASTER_PORT": str(world.port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": str(options.restarts),
        "TORCHELASTIC_RUN_ID": options.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def _say(text: str) -> None:
    sys.stderr.write(f"hops-run: {text}\n")


if __name__ == "__main__":
    main()
