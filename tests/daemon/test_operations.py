"""What operators and users do to a running daemon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from daemon_site import BIN, LONG, ROOT, Hopsd, Site
from fixtures_cluster import wait_until

from hopsd.ctl.daemon_client import ask
from hopsd.errors import InputError
from hopsd.model.ids import JobId
from hopsd.store.connection import conninfo
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.migrate import migrate

pytestmark = [pytest.mark.live, pytest.mark.slow]


def hopsctl(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "hopsctl", *arguments],
        env={**os.environ, **site.cluster.env, "HOPS_SOCKET": str(site.hopsd.socket)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pause_leaves_everything_to_slurm_and_resume_continues(site: Site) -> None:
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    assert hopsctl(site, "pause").returncode == 0
    site.hopsd.wait_for(lambda s: s["mode"] == "paused")
    job = site.submit("hops:reqs=2", 1.0)
    ticks = site.hopsd.status()["ticks"]
    site.hopsd.wait_for(lambda s: s["ticks"] > ticks + 2)
    assert site.states() == {job: "PENDING"}
    assert hopsctl(site, "resume").returncode == 0
    site.wait_until_all_completed()


@pytest.mark.long
def test_held_jobs_are_returned_to_plain_slurm_on_request(site: Site) -> None:
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    assert hopsctl(site, "pause").returncode == 0
    site.hopsd.wait_for(lambda s: s["mode"] == "paused")
    jobs = [site.submit("hops:reqs=2,4", 1.0), site.submit("hops:reqs=1", 1.0)]
    result = hopsctl(site, "pause", "--release-held")
    assert result.returncode == 0, result.stderr
    site.wait_until_all_completed()
    by_id = {job.id: job for job in site.cluster.read_jobs()}
    assert set(by_id) == set(jobs)
    assert hopsctl(site, "resume").returncode == 0
    released_job = site.submit("hops:reqs=1", 1.0)
    site.wait_until_all_completed()
    assert released_job in site.states()


@pytest.mark.long
def test_hops_leaves_a_released_job_alone(site: Site) -> None:
    site.hopsd.configure(round_seconds=4.0)
    site.hopsd.start()
    full = [site.submit(f"hops:reqs={gpus};preempt=no", LONG) for gpus in (4, 4, 2)]
    site.hopsd.wait_for(lambda s: len(s["running"]) == 3)
    job = site.submit("hops:reqs=1", 1.0)
    site.hopsd.wait_for(lambda s: [w["id"] for w in s["waiting"]] == [job])
    assert hopsctl(site, "release", job).returncode == 0
    site.hopsd.wait_for(lambda s: [w["released"] for w in s["waiting"]] == [True])
    site.let_go()
    site.wait_until_all_completed()
    assert set(site.states()) == {*full, job}


@pytest.mark.long
def test_an_array_is_reported_and_released_by_task_or_as_a_whole(site: Site) -> None:
    site.hopsd.start()
    array = site.submit("hops:reqs=2", LONG, "--array=0-7%3")
    status = site.hopsd.wait_for(lambda s: len(s["running"]) == 3)
    task_ids = [row["id"] for row in status["running"]]
    assert task_ids == [f"{array}_{task}" for task in range(3)]
    number = status["running"][0]["number"]
    assert f"Job {number}" in hopsctl(site, "explain", number).stdout
    waits = site.hopsd.wait_for(lambda s: s["waiting"])["waiting"][0]
    assert (waits["id"], waits["tasks"], waits["code"]) == (array, "3-7", "limit")
    for job_id in (array, f"{array}_6"):
        assert "5 tasks (3-7) will start" in hopsctl(site, "explain", job_id).stdout
    site.cluster.run("scontrol", "hold", f"{array}_5")
    site.hopsd.wait_for(lambda s: {w["id"] for w in s["waiting"]} == {array, f"{array}_5"})
    assert "no waiting hops job" in hopsctl(site, "release", f"{array}_99").stderr
    assert hopsctl(site, "release", array).returncode == 0
    site.let_go()
    site.cluster.run("scontrol", "release", f"{array}_5")
    site.wait_until_all_completed()
    assert len(site.states()) == 8


@pytest.mark.long
def test_a_bad_configuration_is_refused_and_the_old_one_kept(site: Site) -> None:
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    assert site.hopsd.process is not None
    site.hopsd.config.write_text("[daemon]\nrefresh_second = 1\n")
    site.hopsd.process.send_signal(signal.SIGHUP)
    site.hopsd.wait_for(lambda _: "reload refused" in site.hopsd.log.read_text())
    assert "refresh_seconds" in site.hopsd.log.read_text()
    site.submit("hops:reqs=1", 1.0)
    site.wait_until_all_completed()
    site.hopsd.configure(round_seconds=77.0)
    site.hopsd.process.send_signal(signal.SIGHUP)
    site.hopsd.wait_for(lambda _: '"reloaded"' in site.hopsd.log.read_text())
    assert '"from_the_next_round": ["daemon.round_seconds"]' in site.hopsd.log.read_text()


def test_systemd_is_notified_of_start_progress_and_stop(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(site.folder / "notify"))
        systemd.settimeout(60.0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(site.folder / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        site.hopsd.start(wait=False)
        messages = [systemd.recv(4096).decode()]
        while not messages[-1].startswith("STATUS="):  # read at once: the kernel keeps ten for us
            messages.append(systemd.recv(4096).decode())
        assert messages[-1].startswith("STATUS=first plan")
        assert site.hopsd.terminate() == 0
        while messages[-1] != "STOPPING=1":
            messages.append(systemd.recv(4096).decode())
    assert messages[0] == "READY=1"
    assert "WATCHDOG=1" in messages


@pytest.mark.long
def test_only_one_hopsd_acts_and_the_other_takes_over(site: Site) -> None:
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    second = Hopsd(site.folder, site.hopsd.dsn, site.cluster, "second")
    second.configure(round_seconds=300.0)
    second.start()
    try:
        assert second.status()["mode"] == "standby"
        assert "leads" in second.status()["sentence"]
        site.submit("hops:reqs=1", 3.0)
        site.hopsd.wait_for(lambda s: s["running"])
        site.hopsd.kill()
        second.wait_for(lambda s: s["mode"] == "active" and s["running"])
        site.submit("hops:reqs=1", 1.0)
        site.wait_until_all_completed()
    finally:
        second.stop()


@pytest.mark.long
def test_a_job_held_by_its_user_waits_until_the_user_releases_it(site: Site) -> None:
    site.hopsd.start()
    held_job = site.submit("hops:reqs=1", 1.0, "--hold")
    first = site.submit("hops:reqs=1", 1.0)
    later = site.submit("hops:reqs=1", 1.0, f"--dependency=afterok:{held_job}")
    status = site.hopsd.wait_for(lambda s: {w["id"] for w in s["waiting"]} == {held_job, later})
    assert {w["id"]: w["code"] for w in status["waiting"]} == {
        held_job: "held",
        later: "dependency",
    }
    assert site.states()[first] in ("RUNNING", "COMPLETED", "COMPLETING")
    wait_seconds = {w["id"]: w["wait_seconds"] for w in status["waiting"]}
    assert wait_seconds[held_job] == 0.0
    site.cluster.run("scontrol", "release", held_job)
    site.wait_until_all_completed()


@pytest.mark.long
def test_a_job_whose_dependency_can_never_be_met_says_so(site: Site) -> None:
    site.hopsd.start()
    held_job = site.submit("hops:reqs=1", 1.0, "--hold")
    later = site.submit("hops:reqs=1", 1.0, f"--dependency=afterok:{held_job}")
    site.hopsd.wait_for(lambda s: {w["id"] for w in s["waiting"]} == {held_job, later})
    site.cluster.run("scancel", held_job)
    status = site.hopsd.wait_for(
        lambda s: [w["id"] for w in s["waiting"] if "never starts" in w["reason"]] == [later]
    )
    assert status["waiting"][0]["code"] == "dependency"
    site.cluster.run("scontrol", "update", f"jobid={later}", "dependency=")
    site.hopsd.wait_for(lambda s: not s["running"] and not s["waiting"])
    assert [job for job, _, _ in site.runs()] == [later]


@pytest.mark.long
def test_a_job_held_by_an_operator_waits_until_an_operator_releases_it(site: Site) -> None:
    site.hopsd.start()
    hopsctl(site, "pause")
    site.hopsd.wait_for(lambda s: s["mode"] == "paused")
    held_job, released_job, free = (site.submit("hops:reqs=1", 1.0) for _ in range(3))
    site.cluster.run("scontrol", "hold", f"{held_job},{released_job}")
    hopsctl(site, "resume")
    status = site.hopsd.wait_for(
        lambda s: {w["id"] for w in s["waiting"]} == {held_job, released_job}
    )
    assert {w["code"] for w in status["waiting"]} == {"held"}
    assert site.states()[free] != "PENDING"
    unknown = hopsctl(site, "release", "999")
    assert (unknown.returncode, unknown.stderr[:30]) == (2, "hopsctl: no waiting hops job 9")
    assert hopsctl(site, "release", released_job).returncode == 0
    site.hopsd.wait_for(
        lambda s: [w["id"] for w in s["waiting"] if w["released"]] == [released_job]
    )
    site.cluster.run("scontrol", "release", f"{held_job},{released_job}")
    site.wait_until_all_completed()
    assert {job for job, _, _ in site.runs()} == {held_job, released_job, free}


@pytest.mark.long
def test_a_job_that_hops_has_not_read_yet_is_not_unknown(site: Site) -> None:
    site.hopsd.configure(round_seconds=3600.0)
    text = site.hopsd.config.read_text()
    site.hopsd.config.write_text(text.replace("refresh_seconds = 1", "refresh_seconds = 3600"))
    site.hopsd.start()
    new, plain = site.submit("hops:reqs=1"), site.submit("mine")
    result = hopsctl(site, "explain", new)
    assert result.returncode == 1
    assert (
        f"job {new} is PENDING, and hops has not looked at it yet: it looks every 36"
        in result.stderr
    )
    assert "has no hops comment: only Slurm schedules it" in hopsctl(site, "explain", plain).stderr
    assert "hops knows no job 999" in hopsctl(site, "explain", "999").stderr


@pytest.mark.long
def test_ordinary_users_see_everything_but_change_nothing(site: Site) -> None:
    site.hopsd.start()
    if os.geteuid() != 0:
        pytest.skip("needs root, to act as another account")
    asker = """
import json, socket, sys
for command in ("status", "pause"):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sys.argv[1])
        s.sendall(json.dumps({"command": command}).encode() + b"\\n")
        answer = json.loads(s.makefile().readline())
        print("error" if "error" in answer else "data", answer.get("error", "")[:60])
"""
    result = subprocess.run(
        [_python_of_everybody(), "-c", asker, str(site.hopsd.socket)],
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[0].strip() == "data"
    assert result.stdout.splitlines()[1].startswith("error pause is for root")
    with pytest.raises(InputError, match="accepted"):
        ask(site.hopsd.socket, "drop table")


def _python_of_everybody() -> str:
    """A Python outside root's home."""
    for path in ("/usr/bin/python3", sys.executable):
        if Path(path).exists() and not Path(path).resolve().is_relative_to("/root"):
            return path
    pytest.skip("no Python that every account may run")


@pytest.mark.long
def test_status_and_explain_say_where_and_why(site: Site) -> None:
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    for gpus in (4, 4, 2):
        site.submit(f"hops:reqs={gpus}", LONG)
    site.hopsd.wait_for(lambda s: len(s["running"]) == 3)
    waiting = site.submit("hops:reqs=2,4", 1.0)
    site.hopsd.wait_for(lambda s: s["waiting"] and s["waiting"][0]["reason"])
    status = hopsctl(site, "status").stdout
    assert "0 idle" in status
    assert "no_configuration" in status
    explanation = hopsctl(site, "explain", waiting)
    assert "waits because" in explanation.stdout
    document = json.loads(hopsctl(site, "explain", "1", "--json").stdout)
    assert document["job"]["placement"] == document["history"]["placements"][0]["nodes"]
    assert hopsctl(site, "explain", "4711").returncode == 1
    assert hopsctl(site, "explain", "\udcff").returncode == 2
    nobody_there = subprocess.run(
        [BIN / "hopsctl", "status", "--socket", str(site.folder / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert nobody_there.returncode == 4
    site.let_go()
    site.wait_until_all_completed()
    site.hopsd.wait_for(lambda s: not s["running"] and not s["waiting"])
    explanation_of_first = json.loads(hopsctl(site, "explain", "1", "--json").stdout)
    assert explanation_of_first["history"]["record"]["state"] == "COMPLETED"
    assert "COMPLETED" in hopsctl(site, "explain", "1").stdout


@pytest.mark.long
def test_hopsd_survives_a_restart_of_postgresql(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with EmbeddedPostgres() as postgres:
        migrate(postgres.dsn())
        hopsd = Hopsd(site.folder, postgres.dsn(), site.cluster, "own")
        hopsd.configure(round_seconds=8.0)
        hopsd.start()
        try:
            site.submit("hops:reqs=1,2", 10.0)
            hopsd.wait_for(lambda s: s["running"])
            postgres.kill()
            hopsd.wait_for(lambda s: s["error"] is not None)
            postgres.start()
            hopsd.wait_for(lambda s: s["error"] is None and s["mode"] == "active")
            site.submit("hops:reqs=1,2", 2.0)
            site.wait_until_all_completed()
            hopsd.wait_for(lambda s: not s["running"] and not s["waiting"])
            assert len(site.runs()) == sum(job.restarts + 1 for job in site.cluster.read_jobs())
        finally:
            hopsd.stop()


@pytest.mark.long
def test_a_job_runs_in_its_own_partition(site: Site) -> None:
    site.cluster.run("scontrol", "create", "PartitionName=small", "Nodes=n1", "State=UP")
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    small = [site.submit("hops:reqs=2,4", 1.0, "--partition=small") for _ in range(2)]
    larger = site.submit("hops:reqs=8", 1.0, "--partition=small")
    anywhere = site.submit("hops:reqs=4", 1.0, "--partition=main,small")
    site.hopsd.wait_for(lambda s: [w["id"] for w in s["waiting"]] == [larger])
    assert "has 4 in one server" in site.hopsd.status()["waiting"][0]["reason"]
    site.cluster.run("scancel", larger)
    site.hopsd.wait_for(lambda s: not s["running"] and not s["waiting"])
    assert {nodes for job, _, nodes in site.runs() if job in small} == {("n1",)}
    assert {site.states()[job] for job in (*small, anywhere)} == {"COMPLETED"}


@pytest.mark.long
def test_setting_the_clock_stops_nothing(site: Site) -> None:
    offset = site.folder / "offset"
    offset.write_text("0")
    script = ROOT / "bench" / "chaos" / "shifted_clock.py"
    site.hopsd.command = [sys.executable, str(script), str(offset)]
    site.hopsd.start()
    site.submit("hops:reqs=1", 6.0)
    site.hopsd.wait_for(lambda s: s["running"])
    for seconds in (-3600, 3600, 0):
        offset.write_text(str(seconds))
        ticks = site.hopsd.status()["ticks"]
        site.hopsd.wait_for(lambda s, before=ticks: s["ticks"] > before + 1)
    site.submit("hops:reqs=2", 1.0)
    site.wait_until_all_completed()


@pytest.mark.long
def test_a_job_that_would_run_into_a_reservation_is_placed_elsewhere(site: Site) -> None:
    """One of two equal nodes will be taken out of service within the job's time limit."""
    site.cluster.run(
        *("scontrol", "create", "reservation", "reservationname=mend", "starttime=now+30minutes"),
        *("duration=60", "nodes=n0", "users=root", "flags=maint"),
    )
    site.hopsd.configure(round_seconds=300.0)
    site.hopsd.start()
    long = [site.submit("hops:reqs=2,4", 1.0, "--time=60") for _ in range(2)]
    short = site.submit("hops:reqs=4", 1.0, "--time=5")
    larger = site.submit("hops:reqs=8", 1.0, "--time=60")
    site.hopsd.wait_for(lambda s: [w["id"] for w in s["waiting"]] == [larger])
    site.cluster.run("scancel", larger)
    site.hopsd.wait_for(lambda s: not s["running"] and not s["waiting"])
    nodes_of = {job: nodes for job, _, nodes in site.runs()}
    assert nodes_of[short] in (("n0",), ("n1",))
    assert {nodes_of[job] for job in long} <= {("n1",), ("n2",)}
    site.cluster.run("scontrol", "delete", "reservationname=mend")


@pytest.mark.long
def test_time_min_starts_a_job_before_a_reservation_as_plain_slurm_does(site: Site) -> None:
    """All nodes are taken out of service within the time limit, but after its minimum."""
    site.cluster.run(
        *("scontrol", "create", "reservation", "reservationname=mend", "starttime=now+30minutes"),
        *("duration=60", "nodes=ALL", "users=root", "flags=maint"),
    )
    site.hopsd.start()
    short = site.submit("hops:reqs=2", LONG, "--time=120", "--time-min=10")
    waits = site.submit("hops:reqs=2", LONG, "--time=120", "--time-min=60")
    site.hopsd.wait_for(lambda s: [job["id"] for job in s["running"]] == [short])
    assert [job["id"] for job in site.hopsd.status()["waiting"]] == [waits]

    def minutes(job: str) -> str:
        return site.cluster.run("squeue", "--noheader", "--format=%l", "--job", job).strip()

    assert minutes(short) in ("28:00", "29:00")
    assert minutes(waits) == "2:00:00"
    site.cluster.run("scontrol", "delete", "reservationname=mend")
    site.cluster.run("scontrol", "requeue", short)
    site.hopsd.wait_for(lambda s: {job["id"] for job in s["running"]} == {short, waits})
    wait_until(lambda: minutes(short) == minutes(waits) == "2:00:00")


@pytest.mark.long
def test_a_persons_requeuehold_is_a_hold_and_hops_own_is_not(site: Site) -> None:
    """Regression: 18 of 18 jobs that a person requeued and held were started again."""

    def waits(job: str, ticks: int) -> None:
        first = site.hopsd.wait_for(lambda s: job in {w["id"] for w in s["waiting"]})["ticks"]
        status = site.hopsd.wait_for(lambda s: s["ticks"] > first + ticks)
        [row] = [w for w in status["waiting"] if w["id"] == job]
        assert "held" in row["reason"]
        begin = site.cluster.run("squeue", "--noheader", "--format=%S", "--job", job)
        assert begin.startswith("2100-01-01")

    site.hopsd.configure(round_seconds=3.0)
    site.hopsd.start()
    jobs = [site.submit("hops:reqs=4", LONG) for _ in range(2)]
    site.hopsd.wait_for(lambda s: len(s["running"]) == 2)
    site.cluster.run("scontrol", "requeuehold", jobs[0])
    waits(jobs[0], 5)
    site.hopsd.kill()
    site.cluster.run("scontrol", "requeuehold", jobs[1])
    site.hopsd.start()
    for job in jobs:
        waits(job, 3)
    for job in jobs:
        site.cluster.run("scontrol", "release", job)
    site.hopsd.wait_for(lambda s: len(s["running"]) == 2)
    site.let_go()
    site.wait_until_all_completed()
    last = {job: restart for job, restart, _ in site.runs()}
    assert last == dict.fromkeys(jobs, 1)


@pytest.mark.long
def test_a_clock_that_is_temporarily_an_hour_ahead_leaves_no_record(
    site: Site, database: str
) -> None:
    """Regression: it was in 85 of 741 records, with ends in the future and negative run times."""
    clock_offset = site.folder / "ahead"
    clock_offset.write_text("0")
    script = ROOT / "bench" / "chaos" / "shifted_clock.py"
    site.hopsd.command = [sys.executable, str(script), str(clock_offset)]
    site.hopsd.configure(round_seconds=3.0)
    site.hopsd.start()
    start_time = time.time()
    jobs = [site.submit("hops:reqs=4", 2.0) for _ in range(4)]
    site.hopsd.wait_for(lambda s: s["running"])
    clock_offset.write_text("3600")
    ticks = site.hopsd.status()["ticks"]
    site.hopsd.wait_for(lambda s: s["ticks"] > ticks + 4)
    clock_offset.write_text("0")
    site.wait_until_all_completed()
    site.hopsd.wait_for(lambda s: not s["running"] and not s["waiting"])
    now = time.time()
    with psycopg.connect(conninfo(database)) as connection:
        records = connection.execute(
            "SELECT id, submit, seen, ended, wait_seconds, run_seconds FROM jobs"
        ).fetchall()
    assert {row[0] for row in records} == set(jobs)
    for _, submit, seen_at, end_time, wait, run in records:
        assert start_time - 2.0 <= submit <= end_time <= seen_at + 1.0 <= now + 2.0
        assert 0.0 <= wait <= now - start_time + 2.0
        assert 0.0 <= run <= now - start_time + 2.0
    for job in jobs:
        for placement in site.store.placements(JobId(job)):
            assert placement.end is not None
            assert start_time - 2.0 <= placement.start <= placement.end <= now + 2.0
