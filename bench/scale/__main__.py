"""`python -m bench.scale`: seconds and memory of a tick with 5,000 nodes and 15,000 jobs.

slurmctld, its clients, PostgreSQL and hopsd's controller are real. The slurmd are not: one process
registers all nodes and accepts every job (bench.scale.nodes), so no script runs, no prolog, and no
checkpoint is written. The first ticks start what can run; before each further tick some jobs end
and others arrive. Ctrl-C or SIGTERM ends the run and prints what was measured so far.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.scale.costs import Clock, Cost
from bench.scale.nodes import RELEASE
from bench.scale.site import TYPES, WORKLOADS, Queue, hollow_nodes, site
from examples.demo.cluster import PrivateCluster, slurm_release
from hopsd.config import Config
from hopsd.config.schema import (
    DaemonConfig,
    KnowledgeConfig,
    PlanConfig,
    PortName,
    ProfilingConfig,
    SlurmConfig,
)
from hopsd.ctl.render import show, table
from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.service.controller import Controller
from hopsd.slurm.port_choice import choose_port
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.leader import Leader
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore


class TimedObject:
    """Proxy that times an object's methods as stages; without ``stages`` all are ``stage``."""

    def __init__(self, clock: Clock, target: Any, stage: str = "", **stages: str) -> None:
        self._clock, self._target, self._stage, self._stages = clock, target, stage, stages

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._target, name)
        stage = self._stages.get(name, self._stage)
        return self._clock.wrap(stage, member) if stage and callable(member) else member

    def __call__(self, *arguments: Any) -> Any:
        return self._clock.wrap(self._stage, self._target)(*arguments)


def _tables() -> dict[WorkloadName, dict[GpuType, ThroughputTable]]:
    """Samples per second per GPU of the named workloads."""
    return {
        WorkloadName(f"w{number}"): {
            GpuType(name): ThroughputTable(
                {n: (10.0 + number) * (place + 1) * n**-0.1 for n in (1, 2, 4, 8)},
                {n: (10.0 + number) * (place + 1) * n**-0.2 for n in (2, 4)},
            )
            for place, name in enumerate(TYPES)
        }
        for number in range(1, WORKLOADS, 2)
    }


def _resident_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


STAGES = (
    *("read", "observe", "knowledge", "snapshot", "plan", "steps", "apply", "store"),
    *("document", "rest"),
)


FUNCTIONS = {
    "hopsd.round.run.observe": "observe",
    "hopsd.service.controller.observe": "observe",
    "hopsd.round.run.planning_inputs": "knowledge",
    "hopsd.round.decide.build_snapshot": "snapshot",
    "hopsd.round.decide.diff": "steps",
    "hopsd.serve.status.document": "document",
}
"""Functions of hopsd timed as stages, besides reading, planning, applying and the store."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--jobs", type=int, default=15_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5, help="further ticks after all could start")
    parser.add_argument(
        "--changes", type=int, default=20, help="jobs that end and arrive before each further tick"
    )
    parser.add_argument("--plan-seconds", type=float, default=60.0, help="a plan's time limit")
    parser.add_argument(
        "--fill",
        action="store_true",
        help="release all that the first ticks plan, however long that takes",
    )
    parser.add_argument("--port", choices=[p.value for p in PortName], default="auto")
    parser.add_argument("--state", type=Path, help="keep the submitted jobs here, for the next run")
    args = parser.parse_args()
    if slurm_release() != RELEASE:
        sys.exit("the nodes of this benchmark speak the protocol of Slurm 22.05 only")
    for end in (signal.SIGINT, signal.SIGTERM):  # a shell ignores SIGINT for background jobs
        signal.signal(end, signal.default_int_handler)
    with site(args.nodes) as cluster, EmbeddedPostgres() as postgres:
        os.environ.update(cluster.env)
        queue = Queue(cluster)
        began = time.perf_counter()
        if args.state:
            queue.restore(args.state, args.jobs)
        else:
            queue.submit(args.jobs)
        print(f"{args.jobs} jobs were there in {time.perf_counter() - began:.0f} s", flush=True)
        migrate(postgres.dsn())
        with hollow_nodes(cluster), _controller(args, cluster, postgres.dsn()) as (hopsd, clock):
            measure(hopsd, clock, cluster, queue, args)


@contextmanager
def _controller(
    args: argparse.Namespace, cluster: PrivateCluster, dsn: str
) -> Iterator[tuple[Controller, Clock]]:
    reports = cluster.directory / "reports"
    reports.mkdir()
    config = Config(
        slurm=SlurmConfig(port=PortName(args.port)),
        daemon=DaemonConfig(round_seconds=36000.0),
        plan=PlanConfig(time_limit_seconds=args.plan_seconds),
        profiling=ProfilingConfig(enabled=False),
        knowledge=KnowledgeConfig(report_dir=reports),
        throughput=_tables(),
    )
    pid = cluster.pid("slurmctld")
    assert pid is not None
    clock = Clock(pid)
    with PostgresStore(dsn) as store, closing(Leader(dsn)) as leader:
        port, reason = choose_port(config.slurm, assure=leader.assure)
        print(f"{args.jobs} jobs, {args.nodes} nodes, {args.nodes * 8} GPUs; {reason}")
        ports, stores = (
            TimedObject(clock, port, read="read", apply="apply"),
            TimedObject(clock, store, "store"),
        )
        hopsd = Controller(config, ports, reason, stores, leader)  # type: ignore[arg-type]
        hopsd._policy = TimedObject(clock, hopsd._policy, "plan")  # type: ignore[assignment]
        with ExitStack() as patches:
            for name, stage in FUNCTIONS.items():
                module, _, function = name.rpartition(".")
                original = getattr(sys.modules[module], function)
                patches.enter_context(patch(name, clock.wrap(stage, original)))
            yield hopsd, clock


def measure(
    controller: Controller,
    clock: Clock,
    cluster: PrivateCluster,
    queue: Queue,
    args: argparse.Namespace,
) -> None:
    start_costs: list[dict[str, Cost]] = []
    later: list[dict[str, Cost]] = []
    resident: list[float] = []

    def tick(costs: list[dict[str, Cost]]) -> None:
        clock.take()
        controller.tick()
        costs.append(clock.take())
        resident.append(_resident_mb())
        cost = sum(costs[-1].values(), Cost())
        figures = " + ".join(f"{figure:.1f}" for figure in cost.figures[:3])
        line = f"{_result(controller)}; {figures} s in {cost.wall:.0f} s; {resident[-1]:.0f} MB"
        print(line, flush=True)

    with suppress(KeyboardInterrupt):
        with patch("hopsd.slurm.apply.RELEASING_SECONDS", 36000.0) if args.fill else nullcontext():
            tick(start_costs)
            _show("First tick", start_costs)
            while _put_off(controller):
                tick(start_costs)
        resident = resident[-1:]
        for round_number in range(args.rounds):
            running = cluster.run("squeue", "--noheader", "--states=R", "--format=%A").split()
            step = max(1, len(running) // args.changes)
            if job_ids := running[round_number % step :: step][: args.changes]:
                cluster.run("scancel", *job_ids)
            queue.submit(args.changes)
            print(f"{round_number + 1}: ", end="", flush=True)
            tick(later)
    for title, ticks in (
        ("Ticks until all could start", start_costs[1:]),
        ("Further ticks", later),
    ):
        if ticks:
            _show(f"{title}, median of {len(ticks)}", ticks)
    step = max(1, len(later) // 20)
    memory = ", ".join(f"{megabytes:.0f}" for megabytes in resident[::step])
    print(f"resident MB, at every {step} of the further ticks: {memory}")


def _result(controller: Controller) -> str:
    """Outcomes of the steps by status, and the GPUs in use after them."""
    result = controller.result
    if result is None:
        return "no round"
    gpus_in_use = sum(job.allocation.gpus for job in result.observation.reading.jobs)
    gpus_gained = sum(o.actual.gpus - o.step.current.gpus for o in result.outcomes if o.actual)
    counts = Counter(outcome.status.value for outcome in result.outcomes)
    summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{summary or 'no step'}; {gpus_in_use + gpus_gained} GPUs in use"


def _put_off(controller: Controller) -> bool:
    return controller.result is not None and bool(controller.result.put_off)


def _show(title: str, ticks: Sequence[dict[str, Cost]]) -> None:
    rows = []
    total = [0.0] * 4
    for stage in STAGES:
        costs = [tick.get(stage, Cost()) for tick in ticks]
        figures = [
            statistics.median(column) for column in zip(*(c.figures for c in costs), strict=True)
        ]
        total = [a + b for a, b in zip(total, figures, strict=True)]
        rows.append((stage, *figures, max(c.cpu + c.commands + c.slurmctld for c in costs)))
    sums = [sum(tick.values(), Cost()) for tick in ticks]
    rows.append(("all", *total, max(c.cpu + c.commands + c.slurmctld for c in sums)))
    heads = ["stage", "CPU s, hopsd", "its commands", "slurmctld", "wall s", "most CPU s"]
    show(table(title, heads, [(name, *(f"{f:.2f}" for f in figures)) for name, *figures in rows]))


if __name__ == "__main__":
    main()
