"""`python -m bench.scale.reading`: CPU seconds of reading 5,000 nodes and 15,000 waiting jobs.

Reads through pyslurm and through Slurm's commands, on any release that pyslurm supports, for
example in the root folder of `make test-forky`:

    tests/releases/enter.sh ROOT /venv/bin/python -m bench.scale.reading

No node ever registers; a reading costs the same anyway.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from bench.scale.costs import Clock, Cost
from bench.scale.site import comment_of, site
from hopsd.ctl.render import show, table
from hopsd.errors import SlurmUnavailableError
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.pyslurm_adapter import PyslurmAdapter, load_pyslurm
from hopsd.slurm.scontrol import ScontrolAdapter

READINGS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.reading", description=__doc__)
    parser.add_argument("--jobs", type=int, default=15_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    args = parser.parse_args()
    with site(args.nodes) as cluster:
        os.environ.update(cluster.env)
        commands = cluster.commands(60.0)
        script = cluster.directory / "train.sh"
        script.write_text("#!/bin/sh\nsleep 600\n")
        pyslurm = load_pyslurm(commands)
        for number in range(args.jobs):
            _submit(pyslurm, number, str(script))
        pid = cluster.pid("slurmctld")
        assert pid is not None
        clock = Clock(pid)
        rows = []
        for adapter in (PyslurmAdapter(commands), ScontrolAdapter(commands)):
            costs = [_measure_reading(adapter, clock, args.jobs) for _ in range(READINGS)]
            figures = (
                statistics.median(column)
                for column in zip(*(cost.figures for cost in costs), strict=True)
            )
            rows.append((adapter.name, *(f"{figure:.2f}" for figure in figures)))
        heads = ["read through", "CPU s, hopsd", "its commands", "slurmctld", "wall s"]
        title = f"{args.jobs} jobs, {args.nodes} nodes, median of {READINGS}"
        show(table(title, heads, rows))


def _submit(pyslurm: Any, number: int, script: str) -> None:
    """Submit one job without starting a process."""
    description = pyslurm.JobSubmitDescription(
        script=script,
        comment=comment_of(number),
        standard_output="/dev/null",
        environment={"PATH": os.environ["PATH"]},
    )
    description.submit()


def _measure_reading(adapter: Adapter, clock: Clock, jobs: int) -> Cost:
    """Read without batch scripts, as hopsd does while it applies steps."""
    with adapter.batch():
        while True:
            clock.take()
            try:
                reading = adapter.read()
            except SlurmUnavailableError:  # slurmctld waits for the nodes to register
                time.sleep(5.0)
                continue
            assert len(reading.jobs) == jobs
            return sum(clock.take().values(), Cost())


if __name__ == "__main__":
    main()
