"""What every tick leaves for later reports: the use of the GPUs and, of a shadow, its diary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from controller_rig import A100, NOW, Lead, Port, Rig, Store, job

from hopsd.config import Config, PortName
from hopsd.controller import Controller
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.slurm.shadow.port import ShadowPort
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore


def test_every_gpu_second_between_ticks_is_counted_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, job(1, "hops:reqs=4"), job(2, "hops:reqs=32"))
    rig.tick()
    assert rig.store.gpu_use(0.0, 2 * NOW) == ()
    rig.tick(2)
    use = rig.store.gpu_use(0.0, 2 * NOW)
    assert {row.gpu_type for row in use} == {A100}
    assert sum(row.hops for row in use) == 4 * 60.0
    # Job 2 asks for more than there is: it waits, and what idles is a fragment.
    assert sum(row.fragmented for row in use) == 12 * 60.0
    assert sum(row.idle + row.plain + row.down for row in use) == 0.0


def test_a_shadow_notes_where_a_job_would_first_have_started(tmp_path: Path) -> None:
    port, store = Port(job(1, "hops:reqs=4;preempt=no"), job(2, "hops:reqs=32")), Store()
    config = Config()
    config = replace(
        config,
        slurm=replace(config.slurm, port=PortName.SHADOW),
        knowledge=replace(config.knowledge, report_dir=tmp_path),
    )
    shadow = ShadowPort(port)
    controller = Controller(config, shadow, "", cast(PostgresStore, store), cast(Leader, Lead()))
    for _ in range(3):
        port.now += 30.0
        controller.tick()
        assert controller.document["error"] is None
    assert not any(job.allocation for job in port.jobs.values())
    first, second = (store.diary[JobId(name), NOW - 600.0] for name in ("1", "2"))
    assert (first.planned, first.nodes) == (NOW + 30.0, Allocation.of({"n0": 4}))
    assert (first.gpus, second.gpus, second.planned) == (4, 32, None)
    waits = {row["id"]: row["reason"] for row in controller.document["waiting"]}
    assert waits["1"] == "hops would start it now; a shadow leaves that to Slurm"
