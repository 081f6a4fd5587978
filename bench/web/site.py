"""A busy site for the web page: real controller and PostgreSQL, and a cluster in memory."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hopsd.config import Config, DaemonConfig, KnowledgeConfig, ProfilingConfig, WebConfig
from hopsd.config.listen import ListenAddress
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.knowledge import ThroughputRecord
from hopsd.model.privacy import Privacy
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepOutcome
from hopsd.serve.answers import QueryService
from hopsd.service.controller import Controller
from hopsd.slurm.port import InstantPort
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.leader import Leader
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore
from hopsd.web import Web

SPEEDS = {"a100": 1.0, "v100": 0.45, "rtx3090": 0.4}
MODELS = ("resnet50", "bert-large", "vit-b16", "llama-sft", "whisper-ft", "unet3d", "gpt2-medium")
USERS = ("ann", "bao", "carla", "dmitri", "elif", "farah")
TICK_SECONDS = 30.0


class Cluster(InstantPort):
    """A port whose jobs start at once."""

    name = "memory"

    def __init__(self, nodes: int, gpus: int, now: float) -> None:
        kinds = tuple(SPEEDS)
        self.nodes = [
            NodeReading(NodeName(f"gpu{i:03}"), GpuType(kinds[i * len(kinds) // nodes]), gpus, 64)
            for i in range(nodes)
        ]
        self.jobs: dict[JobId, JobReading] = {}
        self.now = now

    def read(self) -> Reading:
        return Reading(self.now, tuple(self.nodes), tuple(self.jobs.values()), "24.11.5")

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        for step in steps:
            job, runs = self.jobs[step.job], bool(step.target)
            self.jobs[step.job] = replace(
                job,
                state=SlurmState.RUNNING if runs else SlurmState.PENDING,
                hold=Hold.NONE if runs else Hold.HOPS,
                allocation=step.target,
                start=self.now if runs else 0.0,
                restarts=job.restarts + bool(step.current),
                submit=self.now if step.current else job.submit,
            )
        return [StepOutcome(s, OutcomeStatus.DONE, s.target, started=self.now) for s in steps]


class Open:
    """Privacy settings of a site that hides nothing."""

    def read(self) -> Privacy:
        return Privacy()


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a site: ``at_once`` jobs at the start, ``later`` jobs arriving with each tick."""

    nodes: int
    gpus: int
    at_once: int
    later: int
    ticks: int
    seed: int = 1


SMALL = Size(nodes=18, gpus=8, at_once=120, later=4, ticks=14)
LARGE = Size(nodes=250, gpus=8, at_once=1040, later=0, ticks=2)


@contextmanager
def serve_site(size: Size, listen: str) -> Iterator[QueryService]:
    """Run a site of that size and serve its page at ``listen``."""
    random_source = random.Random(size.seed)
    now = time.time() - TICK_SECONDS * size.ticks
    cluster = Cluster(size.nodes, size.gpus, now)
    with (
        tempfile.TemporaryDirectory(prefix="hops-web-") as folder,
        EmbeddedPostgres() as postgres,
    ):
        dsn = postgres.dsn()
        migrate(dsn)
        leader = Leader(dsn)
        config = Config(
            daemon=DaemonConfig(round_seconds=4 * TICK_SECONDS),
            knowledge=KnowledgeConfig(report_dir=Path(folder)),
            profiling=ProfilingConfig(enabled=False),
            web=WebConfig(listen=ListenAddress(listen)),
        )
        with PostgresStore(dsn, leader=leader) as store:
            controller = Controller(config, cluster, "", store, leader)
            answers = QueryService(controller, store, Open(), config)
            page = Web(config.web, answers)
            try:
                leader.acquire()
                store.add_throughput(_make_records(now, random_source, cluster))
                _submit(cluster, size.at_once, random_source)
                for tick in range(size.ticks):
                    cluster.now += TICK_SECONDS
                    if tick:
                        _end_some(cluster, random_source)
                        _submit(cluster, size.later, random_source)
                    controller.tick()
                yield answers
            finally:
                page.close()
                leader.close()


def _submit(cluster: Cluster, count: int, source: random.Random) -> None:
    for _ in range(count):
        number = 4101 + len(cluster.jobs)
        max_gpus = source.choice((1, 2, 4, 8, 8, 16))
        reqs = ",".join(str(1 << i) for i in range(max_gpus.bit_length()))
        model, user = source.choice(MODELS), source.choice(USERS)
        cluster.jobs[JobId(str(number))] = JobReading(
            JobId(str(number)),
            UserName(user),
            20000 + USERS.index(user),
            f"{model}-{source.choice('abcd')}{source.randrange(9)}",
            f"hops:reqs={reqs};samples={source.randrange(2, 40)}e5;workload={model}",
            "gpu",
            SlurmState.PENDING,
            cluster.now - source.uniform(30.0, 1800.0),
            hold=Hold.HOPS,
        )


def _end_some(cluster: Cluster, source: random.Random) -> None:
    running = [job for job in cluster.jobs.values() if job.state is SlurmState.RUNNING]
    for job in source.sample(running, len(running) // 12):
        cluster.jobs[job.id] = replace(job, state=SlurmState.COMPLETED, end=cluster.now)


def _make_records(now: float, source: random.Random, cluster: Cluster) -> list[ThroughputRecord]:
    """Three reports of most models, alone and on a few GPUs."""
    records = []
    for model in MODELS[:-1]:
        base = source.uniform(60.0, 600.0)
        for kind, speed in SPEEDS.items():
            node = next(node.name for node in cluster.nodes if node.gpu_type == kind)
            for gpus in (1, 2, 4, 8)[: source.randrange(1, 5)]:
                for _ in range(3):
                    rate = base * speed * (0.97 ** (gpus - 1)) * source.uniform(0.95, 1.05)
                    records.append(
                        ThroughputRecord(
                            WorkloadName(model), GpuType(kind), node, gpus, 1, rate, now
                        )
                    )
    return records
