"""What every tick stores for later reports: the use of GPUs and, for a shadow, its diary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from controller_rig import A100, NOW, Lead, Port, Rig, Store, job

from hopsd.config import Config, PortName
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.service.controller import Controller
from hopsd.slurm.shadow.port import ShadowPort
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore


def test_every_gpu_second_between_ticks_is_counted_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, job(1, "hops:reqs=4;preempt=no"))
    rig.tick()
    assert rig.store.gpu_use(0.0, 2 * NOW) == ()
    rig.port.jobs[JobId("2")] = job(2, "hops:reqs=16")
    rig.tick(3)
    use = rig.store.gpu_use(0.0, 2 * NOW)
    assert {row.gpu_type for row in use} == {A100}
    assert sum(row.hops for row in use) == 4 * 90.0
    # Job 2 appears at the second tick and waits for job 1: GPUs idle after that are fragments.
    assert sum(row.fragmented for row in use) == 12 * 60.0
    assert sum(row.idle for row in use) == 12 * 30.0
    assert sum(row.plain + row.down for row in use) == 0.0


def test_a_job_too_large_for_the_idle_cluster_makes_no_fragments(tmp_path: Path) -> None:
    rig = Rig(tmp_path, job(1, "hops:reqs=4"), job(2, "hops:reqs=64"))
    rig.tick(3)
    use = rig.store.gpu_use(0.0, 2 * NOW)
    assert sum(row.hops for row in use) == 4 * 60.0
    assert sum(row.idle for row in use) == 12 * 60.0
    assert sum(row.fragmented for row in use) == 0.0


class Shadow:
    """A shadow of a cluster in memory; the test plays the part of Slurm."""

    def __init__(self, folder: Path, *jobs: JobReading) -> None:
        self.port, self.store = Port(*jobs), Store()
        config = Config()
        config = replace(
            config,
            slurm=replace(config.slurm, port=PortName.SHADOW),
            knowledge=replace(config.knowledge, report_dir=folder),
        )
        self.controller = Controller(
            config,
            ShadowPort(self.port),
            "",
            cast(PostgresStore, self.store),
            cast(Leader, Lead()),
        )

    def tick(self) -> None:
        self.port.now += 30.0
        self.controller.tick()
        assert self.controller.document["error"] is None


def test_a_shadow_records_where_a_job_would_first_have_started(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path, job(1, "hops:reqs=4;preempt=no"), job(2, "hops:reqs=32"))
    for _ in range(3):
        shadow.tick()
    assert not any(job.allocation for job in shadow.port.jobs.values())
    first, second = (shadow.store.diary[JobId(name), NOW - 600.0] for name in ("1", "2"))
    assert (first.planned, first.nodes) == (NOW + 30.0, Allocation.of({"n0": 4}))
    assert (first.gpus, second.gpus, second.planned) == (4, 32, None)
    waits = {row["id"]: row["reason"] for row in shadow.controller.document["waiting"]}
    assert waits["1"] == "hops would start it now; a shadow leaves that to Slurm"


def test_a_shadow_records_one_plan_per_round_however_long_a_job_could_start(
    tmp_path: Path,
) -> None:
    shadow = Shadow(tmp_path, job(1, "hops:reqs=4"))
    for _ in range(5):
        shadow.tick()
    assert [plan.first for plan in shadow.store.plans(10)] == [True]


def test_a_shadows_placement_is_not_recorded_as_a_run(tmp_path: Path) -> None:
    """Slurm ran the job between two readings on the node that hops had planned.

    How many GPUs it had there is unknown.
    """
    shadow = Shadow(tmp_path, job(1, "hops:reqs=4"))
    shadow.tick()
    now, waiting_job = shadow.port.now, shadow.port.jobs[JobId("1")]
    shadow.port.jobs[waiting_job.id] = replace(
        waiting_job,
        state=SlurmState.COMPLETED,
        hold=Hold.NONE,
        start=now + 5.0,
        end=now + 15.0,
        ran_on=(NodeName("n0"),),
    )
    shadow.tick()
    assert shadow.store.placements() == ()


def test_a_shadow_does_not_read_slurm_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = Shadow(tmp_path, job(1, "hops:reqs=4"))
    shadow.tick()  # the first tick also looks for an unfinished plan
    port, looks = shadow.port, 0
    read = port.read

    def count_read() -> Reading:
        nonlocal looks
        looks += 1
        return read()

    monkeypatch.setattr(port, "read", count_read)
    shadow.tick()
    assert looks == 1
