"""One user over a QOS limit, and another one waiting: the plan knows the limit, without failed
starts. `pytest -s` prints the figures.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import pytest
from daemon_site import Site
from fixtures_accounting import ALICE, BOB, uid_of
from fixtures_cluster import SAVER, submit, wait_until

from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState

pytestmark = pytest.mark.live

SECONDS = 60.0
"""How long the test watches bob's jobs."""


def run_beside(site: Site, alices: int) -> tuple[float, float]:
    """Run bob's jobs for all GPUs that alice leaves, after ``alices`` jobs of hers. Return the
    longest wait of a job that found room, and the share of GPU-seconds that they could have used
    but that stayed idle.
    """
    for _ in range(alices):
        submit(site.cluster, script=SAVER, comment="hops:reqs=2", uid=uid_of(ALICE))
    if alices:
        site.hopsd.wait_for(lambda s: any(row["user"] == ALICE for row in s["running"]))
    start_time = time.time()
    jobs = [
        submit(site.cluster, script=SAVER, comment="hops:reqs=2", uid=uid_of(BOB)) for _ in range(4)
    ]
    idle = gpu_seconds = 0.0
    last_time = start_time
    first: dict[str, float] = {}
    while last_time < start_time + SECONDS:
        time.sleep(0.2)
        now = time.time()
        read = site.cluster.read_jobs()
        running = gpus_of(read, BOB)
        idle += (8 - running) * (now - last_time)
        gpu_seconds += running * (now - last_time)
        assert gpus_of(read, ALICE) <= 2
        last_time = now
        for job in read:
            if job.id in jobs and job.start:
                first.setdefault(job.id, job.start)
    longest = (
        max(first.values(), default=last_time) - start_time if len(first) == len(jobs) else SECONDS
    )
    return longest, idle / (idle + gpu_seconds)


def gpus_of(jobs: Sequence[JobReading], user: str) -> int:
    return sum(job.allocation.gpus for job in jobs if job.user == user)


def limit_alice(site: Site) -> None:
    site.cluster.run("sacctmgr", "-i", "add", "qos", "small", "MaxTRESPerUser=gres/gpu=2")
    site.cluster.run(
        *("sacctmgr", "-i", "modify", "user", ALICE, "set", "qos=small", "defaultqos=small")
    )
    wait_until(lambda: "small" in site.cluster.run("scontrol", "show", "assoc_mgr", "flags=qos"))


@pytest.mark.long
@pytest.mark.parametrize("alices", [0, 6])
def test_a_user_over_a_limit_delays_nobody_else(site: Site, alices: int) -> None:
    limit_alice(site)
    site.hopsd.configure(round_seconds=15.0)
    site.hopsd.start()
    wait, idle = run_beside(site, alices)
    print(f"\n{alices} jobs of alice: bob waited {wait:.1f} s, {idle:.1%} of his GPU-seconds idle")
    status = site.hopsd.status()
    assert not [step for step in status["round"]["steps"] if step["status"] == "failed"]
    assert wait < SECONDS / 2
    if alices:
        [running] = [row for row in status["running"] if row["user"] == ALICE]
        alices_rows = [row for row in status["waiting"] if row["user"] == ALICE]
        assert len(alices_rows) == alices - 1
        assert {row["code"] for row in alices_rows} == {"limit"}, alices_rows
        # As the plan saw it: the job that runs now was running, or was before these jobs in the
        # queue.
        of_two = rf"2 of 2 GPUs (in use|asked for) by {running['id']}; it asks for 2"
        text = f"QOS small, user {ALICE}: {of_two}"
        assert all(re.match(text, row["reason"]) for row in alices_rows), alices_rows


@pytest.mark.long
def test_a_smaller_count_is_chosen_if_the_larger_exceeds_the_limit(site: Site) -> None:
    limit_alice(site)
    site.hopsd.start()
    job = submit(site.cluster, script=SAVER, comment="hops:reqs=1,2,4", uid=uid_of(ALICE))
    large_job = submit(site.cluster, script=SAVER, comment="hops:reqs=4", uid=uid_of(ALICE))
    wait_until(lambda: state(site, job) is SlurmState.RUNNING)
    status = site.hopsd.wait_for(lambda s: any(row["id"] == large_job for row in s["waiting"]))
    assert gpus_of(site.cluster.read_jobs(), ALICE) <= 2
    [row] = [row for row in status["waiting"] if row["id"] == large_job]
    assert "QOS small" in row["reason"]


def state(site: Site, job: JobId) -> SlurmState:
    [job_reading] = [j for j in site.cluster.read_jobs() if j.id == job]
    return job_reading.state
