"""Whichever process dies, no job is lost, starts twice or runs without a record."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from daemon_site import LONG, WORKER, Hopsd, Site

from hopsd.model.ids import JobId

pytestmark = [pytest.mark.live, pytest.mark.slow]


def assert_records_are_true(site: Site) -> None:
    """Each run that a job logged is one recorded placement on its nodes, and there is no other,
    except for starts that ended within a second, before the script's first line.
    """
    runs = site.runs()
    assert max(Counter((job, restart) for job, restart, _ in runs).values()) == 1
    for job in site.states():
        run_nodes = [nodes for run_job, _, nodes in runs if run_job == job]
        placements = site.store.placements(JobId(job))
        assert all(placement.end is not None for placement in placements)
        if len(placements) > len(run_nodes):
            placements = tuple(p for p in placements if p.end and p.end - p.start >= 1.0)
        assert [p.allocation.nodes for p in placements] == run_nodes, f"job {job}: {placements}"
    ends = [line for line in site.worker_log.read_text().splitlines() if line.startswith("end")]
    assert sorted(ends) == sorted(f"end {job}" for job in site.states())


def assert_never_over_allocated(site: Site) -> None:
    placements = [p for job in site.states() for p in site.store.placements(JobId(job))]
    changes = []
    for placement in placements:
        for node, gpus in placement.allocation:
            changes += [(placement.start, gpus, node), (placement.end or 0.0, -gpus, node)]
    gpus_in_use: Counter[str] = Counter()
    for moment, gpus, node in sorted(changes):
        gpus_in_use[node] += gpus
        placements_on_node = [p for p in placements if node in p.allocation.nodes]
        assert gpus_in_use[node] <= site.cluster.nodes[node].gpus, (
            f"{node} at {moment}: {placements_on_node}"
        )


def wait_for_open_plan(site: Site) -> None:
    """Wait until hopsd has recorded a plan and is applying it."""
    deadline = time.monotonic() + 90.0
    while site.store.unfinished_plan() is None:
        assert time.monotonic() < deadline, site.hopsd.log.read_text()[-3000:]
        time.sleep(0.01)


def finish(site: Site) -> None:
    site.wait_until_all_completed()
    site.hopsd.wait_for(lambda s: not s["running"] and not s["waiting"])
    assert_records_are_true(site)
    assert_never_over_allocated(site)
    assert site.store.unfinished_plan() is None


@pytest.mark.long
@pytest.mark.parametrize("delay_seconds", [0.0, 0.15, 0.6])
def test_hopsd_killed_while_it_applies_a_plan_loses_no_job(
    site: Site, delay_seconds: float
) -> None:
    site.hopsd.start()
    for _ in range(3):
        site.submit("hops:reqs=1,2,4", 6.0)
    wait_for_open_plan(site)
    time.sleep(delay_seconds)
    site.hopsd.kill()
    for _ in range(3):
        site.submit("hops:reqs=2,4", 4.0)
    site.hopsd.start()
    wait_for_open_plan(site)
    time.sleep(delay_seconds)
    site.hopsd.kill()
    site.submit("hops:reqs=6", 2.0)
    site.hopsd.start()
    finish(site)


STEPS_ALONE = """#!/bin/bash
#SBATCH --signal=USR1@15
echo "shell $$" >> $LOG
srun bash -c 'trap "" USR1; until [ -e $FOLDER/go ]; do sleep 0.5; done'
[ -e $FOLDER/go ] || scontrol requeue $SLURM_JOB_ID
"""


def shells(site: Site) -> list[tuple[int, str]]:
    """The job's batch shells, as they logged themselves, and their states as in proc(5)."""
    lines = site.worker_log.read_text().split("\n") if site.worker_log.exists() else []
    pids = [int(line.split()[1]) for line in lines if line.startswith("shell")]
    return [(pid, process_state(pid)) for pid in pids]


def process_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def wait_for_shells(site: Site, holds: Callable[[list[str]], bool]) -> None:
    deadline = time.monotonic() + 90.0
    while not holds([state for _, state in shells(site)]):
        assert time.monotonic() < deadline, (shells(site), site.hopsd.log.read_text()[-3000:])
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.parametrize("stays", [False, True], ids=["leaves", "stays"])
def test_hopsd_killed_in_the_grace_of_a_stopped_script_loses_no_job(
    site: Site, stays: bool
) -> None:
    """The next one requeues the job or, if nobody else wants its GPUs, lets the script continue."""
    site.worker.write_text(STEPS_ALONE)
    site.hopsd.configure(round_seconds=6.0)
    site.hopsd.start()
    site.submit("hops:reqs=4", LONG)
    wait_for_shells(site, bool)
    site.worker.write_text(WORKER)
    competitors = [site.submit("hops:reqs=4", 1.0, "--time=1") for _ in range(4)]
    wait_for_shells(site, lambda states: states == ["T"])
    site.hopsd.kill()
    if stays:
        site.cluster.run("scancel", *competitors)
    site.hopsd.start()
    wait_for_shells(site, lambda states: states[0] != "T")
    if not stays:
        wait_for_shells(site, lambda states: states[0] == "gone" and states[1:] == ["S"])
    site.let_go()
    site.hopsd.wait_for(lambda s: not s["running"] and not s["waiting"], 180.0)


@pytest.mark.long
def test_slurmctld_killed_while_jobs_run_and_move_loses_no_job(site: Site) -> None:
    site.hopsd.start()
    for _ in range(3):
        site.submit("hops:reqs=1,2,4", 8.0)
    wait_for_open_plan(site)
    site.cluster.stop_slurmctld(signal.SIGKILL)
    site.hopsd.wait_for(lambda s: s["error"] is not None)
    site.cluster.start_slurmctld()
    site.hopsd.wait_for(lambda s: s["error"] is None)
    for _ in range(2):
        site.submit("hops:reqs=2,4", 3.0)
    finish(site)


def test_a_job_on_a_lost_node_gets_another_one(site: Site) -> None:
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    job = site.submit("hops:reqs=4", LONG)
    status = site.hopsd.wait_for(lambda s: s["running"])
    (node,) = status["running"][0]["placement"]
    site.cluster.stop_slurmd(node, signal.SIGKILL)
    site.cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    moved_status = site.hopsd.wait_for(
        lambda s: s["running"] and node not in s["running"][0]["placement"]
    )
    assert moved_status["running"][0]["id"] == job
    assert [n["usable"] for n in moved_status["nodes"] if n["name"] == node] == [False]
    site.let_go()
    site.wait_until_all_completed()


@pytest.mark.long
def test_a_frozen_leader_does_nothing_after_it_wakes(site: Site, database: str) -> None:
    """It is stopped while it applies a plan, and continued after another hopsd has taken over."""
    site.hopsd.start()
    second = Hopsd(site.folder, database, site.cluster, "second")
    try:
        second.start()
        for _ in range(3):
            site.submit("hops:reqs=1,2,4", 6.0)
        wait_for_open_plan(site)
        assert site.hopsd.process is not None
        site.hopsd.process.send_signal(signal.SIGSTOP)
        with psycopg.connect(database, autocommit=True) as admin:  # sooner than by its lease
            admin.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE locktype = 'advisory'"
            )
        second.wait_for(lambda s: s["mode"] == "active" and s["error"] is None and s["running"])
        site.hopsd.process.send_signal(signal.SIGCONT)
        site.hopsd.wait_for(lambda s: s["mode"] == "standby")
        site.submit("hops:reqs=2", 2.0)
        site.wait_until_all_completed()
        second.wait_for(lambda s: not s["running"] and not s["waiting"])
        assert second.status()["mode"] == "active"
        assert_records_are_true(site)
        assert_never_over_allocated(site)
    finally:
        second.stop()


@pytest.mark.long
def test_sigterm_leaves_jobs_running_and_the_next_start_continues(site: Site) -> None:
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    site.submit("hops:reqs=4", LONG)
    before = site.hopsd.wait_for(lambda s: s["running"])
    assert site.hopsd.terminate() == 0
    assert list(site.states().values()) == ["RUNNING"]
    site.submit("hops:reqs=2", LONG)
    site.hopsd.start()
    after = site.hopsd.wait_for(lambda s: len(s["running"]) == 2)
    assert after["round"]["end"] == before["round"]["end"]
    assert after["running"][0]["restarts"] == 0
    site.let_go()
    finish(site)
