"""`python -m bench.round`: duration of a tick on a live slurmctld, and Slurm's share of it.

1,000 queued jobs on 64 nodes of 8 fake GPUs: read, plan, apply, and the records in PostgreSQL.
The jobs only sleep, so that they take no CPU time from hopsd.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.config.schema import PortName, SlurmConfig
from hopsd.ctl.render import show, table
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reading import Reading
from hopsd.model.step import Step, StepOutcome
from hopsd.policies.hops.policy import plan
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow
from hopsd.slurm.port import InstantPort
from hopsd.slurm.port_choice import choose_port
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore

TYPES = ("rtx3090", "v100", "a100", "t4")


class Stopwatch(InstantPort):
    """A port that wraps another one and adds up seconds by stage."""

    def __init__(self, port: Any) -> None:
        self._port = port
        self.seconds: dict[str, float] = {}
        self.name = port.name

    def time_stage(self, stage: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    def read(self) -> Reading:
        reading: Reading = self.time_stage("read (Slurm)", self._port.read)
        return reading

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        outcomes: Sequence[StepOutcome] = self.time_stage("apply (Slurm)", self._port.apply, steps)
        return outcomes

    def plan(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        new_plan: Plan = self.time_stage("plan", plan, snapshot, settings)
        return new_plan


@contextmanager
def site(nodes: int) -> Iterator[tuple[PrivateCluster, PostgresStore]]:
    """A cluster of ``nodes`` nodes, and an empty database."""
    specs = [NodeSpec(TYPES[i * len(TYPES) // nodes], gpus=8, cpus=16) for i in range(nodes)]
    with (
        tempfile.TemporaryDirectory(prefix="hops-bench-") as folder,
        PrivateCluster(folder, nodes=specs) as cluster,
        EmbeddedPostgres() as postgres,
    ):
        migrate(postgres.dsn())
        with PostgresStore(postgres.dsn()) as store:
            yield cluster, store


def submit(cluster: PrivateCluster, jobs: int) -> None:
    """Submit jobs of 1 to 16 GPUs that sleep."""
    choices = ("1", "1,2", "2,4", "1,2,4,8", "4,8", "8,16")
    script = Path(cluster.directory) / "sleep.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    env = {**os.environ, **cluster.env}
    for number in range(jobs):
        subprocess.run(
            [
                *("sbatch", "-o", "/dev/null", "--time=60"),
                f"--comment=hops:reqs={choices[number % 6]}",
                str(script),
            ],
            env=env,
            check=True,
            capture_output=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.round", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--ticks", type=int, default=5, help="further ticks after the first")
    parser.add_argument("--port", choices=[p.value for p in PortName], default="auto")
    args = parser.parse_args()
    settings = RoundSettings(seconds=1800.0)
    with site(args.nodes) as (cluster, store):
        os.environ.update(cluster.env)
        submit(cluster, args.jobs)
        port, port_reason = choose_port(SlurmConfig(port=PortName(args.port)))
        print(f"{args.jobs} queued jobs, {args.nodes} nodes, {args.nodes * 8} GPUs; {port_reason}")
        first, window, began_at = tick(port, store, settings, None)
        rows = [("first", began_at, *cells(first))]
        later = [tick(port, store, settings, window) for _ in range(args.ticks)]
        median = {
            stage: statistics.median(seconds.get(stage, 0.0) for seconds, _, _ in later)
            for stage in {**first, **later[0][0]}
        }
        rows.append((f"further (median of {args.ticks})", later[0][2], *cells(median)))
    show(table("Seconds of a tick", ["tick", "starts", *COLUMNS, "Slurm's share"], rows))


COLUMNS = ("read (Slurm)", "plan", "apply (Slurm)", "rest", "all")


def tick(
    port: Any, store: PostgresStore, settings: RoundSettings, window: RoundWindow | None
) -> tuple[dict[str, float], RoundWindow, int]:
    """Run one round; return seconds by stage, its window, and the number of jobs started."""
    watch = Stopwatch(port)
    result = watch.time_stage("all", run_round, watch, store, watch.plan, settings, window)
    seconds = watch.seconds
    seconds["rest"] = 2 * seconds["all"] - sum(seconds.values())
    return seconds, result.window, sum(o.status.value == "done" for o in result.outcomes)


def cells(seconds: dict[str, float]) -> list[str]:
    slurm = seconds.get("read (Slurm)", 0.0) + seconds.get("apply (Slurm)", 0.0)
    texts = [f"{seconds.get(name, 0.0):.2f}" for name in COLUMNS]
    return [*texts, f"{slurm / seconds['all']:.0%}"]


if __name__ == "__main__":
    main()
