"""`python -m bench.scale`: seconds and memory of a tick with 5,000 nodes and 15,000 jobs.

slurmctld, its clients, PostgreSQL and hopsd's controller are real. The slurmd are not: one process
registers all nodes and accepts every job (bench.scale.nodes), so no script runs, no prolog, and no
checkpoint is written. After the first ticks, which start what can run, some jobs end and others
come before each further one. Ctrl-C ends the run, with what was measured until then.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.scale.nodes import RELEASE
from examples.demo.cluster import NodeSpec, PrivateCluster, slurm_release
from hopsd.config import Config
from hopsd.config.schema import (
    DaemonConfig,
    KnowledgeConfig,
    PlanConfig,
    PortName,
    ProfilingConfig,
    SlurmConfig,
)
from hopsd.controller import Controller
from hopsd.ctl.render import show, table
from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.step import OutcomeStatus
from hopsd.slurm.choose import choose_port
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.leader import Leader
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore

TYPES = ("rtx3090", "v100", "a100", "t4")
GPUS = ("1", "1,2", "2,4", "1,2,4,8", "4,8", "8,16")
WORKLOADS = 40
"""Half of them are named in the comments and have a table; the others' scripts are read."""
SUBMITTERS = 2
_SCHEDULER = "bf_interval=600,default_queue_depth=20000,sched_interval=5,sched_min_interval=1000000"
SETTINGS = (
    *("SlurmdTimeout=0", "TreeWidth=65533", "MaxJobCount=100000", "MessageTimeout=60"),
    "MinJobAge=60",
    f"SchedulerParameters={_SCHEDULER}",
)
"""slurmd are never asked whether they live, and each is told of its jobs directly. Jobs that ended
are soon forgotten: what grows is then hopsd. What a site of
this size would set: how many jobs Slurm remembers, how many of them one scheduling cycle looks at,
and a second between two, so that requests are answered meanwhile. sched/builtin takes the first
word that ends in ``interval=`` for the time between its estimates of start times: after
sched_interval=5 these would take half of slurmctld's time."""


@dataclass(frozen=True, slots=True)
class Cost:
    """``cpu`` of hopsd, ``commands`` of the commands it ran, ``slurmctld`` of that, ``wall``."""

    cpu: float = 0.0
    commands: float = 0.0
    slurmctld: float = 0.0
    wall: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(sum, zip(self.figures, other.figures, strict=True)))

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(a - b for a, b in zip(self.figures, other.figures, strict=True)))

    @property
    def figures(self) -> tuple[float, ...]:
        return self.cpu, self.commands, self.slurmctld, self.wall


class Clock:
    """Cost by stage. A stage within another is counted once, as itself."""

    def __init__(self, slurmctld: int) -> None:
        self._slurmctld = Path(f"/proc/{slurmctld}/stat")
        self._stages = ["rest"]
        self._last = self._now()
        self.costs: dict[str, Cost] = {}

    def _now(self) -> Cost:
        ran = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = self._slurmctld.read_text().rpartition(")")[2].split()
        ticks = int(words[11]) + int(words[12])
        return Cost(
            cpu=time.process_time(),
            commands=ran.ru_utime + ran.ru_stime,
            slurmctld=ticks / os.sysconf("SC_CLK_TCK"),
            wall=time.perf_counter(),
        )

    def turn(self) -> None:
        """Charge what passed to the stage of now."""
        now = self._now()
        stage = self._stages[-1]
        self.costs[stage] = self.costs.get(stage, Cost()) + (now - self._last)
        self._last = now

    def of(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            self.turn()
            self._stages.append(stage)
            try:
                return call(*arguments, **named)
            finally:
                self.turn()
                self._stages.pop()

        return timed

    def taken(self) -> dict[str, Cost]:
        self.turn()
        costs, self.costs = self.costs, {}
        return costs


class Timed:
    """An object whose methods are stages of a clock; ``stages`` empty: all are the one stage."""

    def __init__(self, clock: Clock, it: Any, stage: str = "", **stages: str) -> None:
        self._clock, self._it, self._stage, self._stages = clock, it, stage, stages

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._it, name)
        stage = self._stages.get(name, self._stage)
        return self._clock.of(stage, found) if stage and callable(found) else found

    def __call__(self, *arguments: Any) -> Any:
        return self._clock.of(self._stage, self._it)(*arguments)


@contextmanager
def site(nodes: int) -> Iterator[PrivateCluster]:
    """A cluster whose nodes have not registered yet."""
    specs = [NodeSpec(TYPES[i * len(TYPES) // nodes], gpus=8, cpus=16) for i in range(nodes)]
    with (
        tempfile.TemporaryDirectory(prefix="hops-bench-") as folder,
        PrivateCluster(folder, nodes=specs, hollow=True, extra_conf=SETTINGS) as cluster,
    ):
        yield cluster


@contextmanager
def hollow_nodes(cluster: PrivateCluster) -> Iterator[None]:
    """All nodes are up."""
    words = [
        f"n:{spec.gpu_type}:{spec.gpus}:{spec.cpus}:{spec.memory_mb}:{len(list(same))}"
        for spec, same in itertools.groupby(cluster.nodes.values())
    ]
    ports = str(cluster.controller_port), str(cluster.node_port)
    munge = str(cluster.directory / "munge.sock")
    with subprocess.Popen(
        [sys.executable, "-m", "bench.scale.nodes", munge, *ports, *words], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("the nodes did not register")
            cluster.wait_for_nodes()
            yield
        finally:
            process.kill()


class Queue:
    """Jobs of 1 to 16 GPUs, submitted one by one."""

    def __init__(self, cluster: PrivateCluster) -> None:
        self._cluster = cluster
        self._numbers = itertools.count()
        for at in range(WORKLOADS):
            self._script(at).write_text(f"#!/bin/sh\n# training {at}\ntrap : USR1\nsleep 600\n")

    def _script(self, at: int) -> Path:
        return self._cluster.directory / f"train-{at}.sh"

    def submit(self, jobs: int) -> None:
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(self._submit, itertools.islice(self._numbers, jobs)))

    def _submit(self, number: int) -> None:
        at = number % WORKLOADS
        comment = f"hops:reqs={GPUS[number % len(GPUS)]}"
        if at % 2:
            comment += f";workload=w{at}"
        self._cluster.run(
            *("sbatch", "--output=/dev/null", "--time=60", f"--comment={comment}"),
            str(self._script(at)),
        )

    def restore(self, kept: Path, jobs: int) -> None:
        """The state of a slurmctld to which so many jobs were submitted: ``kept``, made once."""
        state = self._cluster.directory / "state"
        if not kept.exists():
            self.submit(jobs)
            self._cluster.stop_slurmctld()
            shutil.copytree(state, kept)
        else:
            self._cluster.stop_slurmctld()
            for path in kept.glob("*"):
                if path.name.startswith(("hash.", "job_state", "last_config")):
                    copy = shutil.copytree if path.is_dir() else shutil.copy2
                    copy(path, state / path.name)
        self._cluster.start_slurmctld()


def _tables() -> dict[WorkloadName, dict[GpuType, ThroughputTable]]:
    """Samples per second per GPU of the named workloads."""
    return {
        WorkloadName(f"w{at}"): {
            GpuType(name): ThroughputTable(
                {n: (10.0 + at) * (place + 1) * n**-0.1 for n in (1, 2, 4, 8)},
                {n: (10.0 + at) * (place + 1) * n**-0.2 for n in (2, 4)},
            )
            for place, name in enumerate(TYPES)
        }
        for at in range(1, WORKLOADS, 2)
    }


def _resident_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


STAGES = (
    *("read", "observe", "knowledge", "snapshot", "plan", "steps", "apply", "store"),
    *("document", "rest"),
)


FUNCTIONS = {
    "hopsd.round.observe": "observe",
    "hopsd.controller.observe": "observe",
    "hopsd.round._known": "knowledge",
    "hopsd.round.build_snapshot": "snapshot",
    "hopsd.round.diff": "steps",
    "hopsd.status.document": "document",
}
"""Functions of hopsd that are stages. Reading, planning, applying and the store are as well."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--jobs", type=int, default=15_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5, help="further ticks after all could start")
    parser.add_argument(
        "--changes", type=int, default=20, help="jobs that end and come before each"
    )
    parser.add_argument("--plan-seconds", type=float, default=60.0, help="a plan's time limit")
    parser.add_argument("--port", choices=[p.value for p in PortName], default="auto")
    parser.add_argument("--state", type=Path, help="keep the submitted jobs here, for the next run")
    args = parser.parse_args()
    if slurm_release() != RELEASE:
        sys.exit("the nodes of this benchmark speak the protocol of Slurm 22.05 only")
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
            measure(hopsd, clock, cluster, queue, args.rounds, args.changes)


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
        port, why = choose_port(config.slurm, assure=leader.assure)
        print(f"{args.jobs} jobs, {args.nodes} nodes, {args.nodes * 8} GPUs; {why}")
        ports, stores = Timed(clock, port, read="read", apply="apply"), Timed(clock, store, "store")
        hopsd = Controller(config, ports, why, stores, leader)  # type: ignore[arg-type]
        hopsd._policy = Timed(clock, hopsd._policy, "plan")  # type: ignore[assignment]
        with ExitStack() as patches:
            for name, stage in FUNCTIONS.items():
                module, _, function = name.rpartition(".")
                found = getattr(sys.modules[module], function)
                patches.enter_context(patch(name, clock.of(stage, found)))
            yield hopsd, clock


def measure(
    controller: Controller,
    clock: Clock,
    cluster: PrivateCluster,
    queue: Queue,
    rounds: int,
    changes: int,
) -> None:
    clock.taken()
    print(controller.tick(), flush=True)
    _show("First tick", [clock.taken()])
    starting: list[dict[str, Cost]] = []
    later: list[dict[str, Cost]] = []
    resident = [_resident_mb()]
    with suppress(KeyboardInterrupt):
        while _put_off(controller):
            print(f"{controller.tick()}; {_resident_mb():.0f} MB", flush=True)
            starting.append(clock.taken())
        resident = [_resident_mb()]
        for at in range(rounds):
            running = cluster.run("squeue", "--noheader", "--states=R", "--format=%A").split()
            every = max(1, len(running) // changes)
            if ended := running[at % every :: every][:changes]:
                cluster.run("scancel", *ended)
            queue.submit(changes)
            clock.taken()
            said = controller.tick()
            later.append(clock.taken())
            resident.append(_resident_mb())
            print(f"{at + 1}: {said}; {resident[-1]:.0f} MB", flush=True)
    for title, ticks in (("Ticks until all could start", starting), ("Further ticks", later)):
        if ticks:
            _show(f"{title}, median of {len(ticks)}", ticks)
    every = max(1, len(later) // 10)
    shown = ", ".join(f"{megabytes:.0f}" for megabytes in resident[::every])
    print(f"resident MB, at every {every} of the further ticks: {shown}")


def _put_off(controller: Controller) -> bool:
    outcomes = controller.result.outcomes if controller.result is not None else ()
    return any(outcome.status is OutcomeStatus.PUT_OFF for outcome in outcomes)


def _show(title: str, ticks: Sequence[dict[str, Cost]]) -> None:
    rows = []
    total = [0.0] * 4
    for stage in STAGES:
        costs = [tick.get(stage, Cost()) for tick in ticks]
        figures = [
            statistics.median(column) for column in zip(*(c.figures for c in costs), strict=True)
        ]
        total = [a + b for a, b in zip(total, figures, strict=True)]
        rows.append((stage, *(f"{value:.2f}" for value in figures)))
    rows.append(("all", *(f"{value:.2f}" for value in total)))
    show(table(title, ["stage", "CPU s, hopsd", "its commands", "slurmctld", "wall s"], rows))


if __name__ == "__main__":
    main()
