"""Sessions on a full cluster: salloc and srun get GPUs within seconds, from trainings that save."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest
from daemon_site import LONG, ROOT, Site
from fixtures_cluster import running_cluster, wait_until

from examples.demo.cluster import NodeSpec
from hopsd.model.ids import JobId

pytestmark = pytest.mark.live

SECONDS = 30.0
"""Maximum wait of a session on a full cluster."""

SAVES = """#!/bin/bash
# An elastic training that saves on the signal and has Slurm start it again.
trap 'echo "saved $SLURM_JOB_ID" >> $LOG; scontrol requeue $SLURM_JOB_ID; sleep 600' USR1
echo "run $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $SLURM_GPUS_ON_NODE" >> $LOG
while [ ! -e $FOLDER/go ]; do sleep 0.2; done
"""


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    nodes = [NodeSpec("a100", gpus=4, cpus=8)] * 2
    with (
        running_cluster(nodes=nodes) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        text = site.hopsd.config.read_text().replace("refresh_seconds = 1\n", "")
        site.hopsd.config.write_text(text.replace("round_seconds = 8.0", "round_seconds = 3600"))
        site.worker.write_text(SAVES)
        yield site


def environment(site: Site) -> dict[str, str]:
    return {**os.environ, **site.cluster.env}


def fill(site: Site) -> list[str]:
    """Start hopsd, and fill the cluster with elastic trainings."""
    site.hopsd.start()
    jobs = [site.submit("hops:reqs=1,2,4", LONG) for _ in range(2)]
    site.hopsd.wait_for(lambda status: {j["id"] for j in status["running"]} == set(jobs))
    status = site.hopsd.status()
    assert sum(node["idle"] for node in status["nodes"]) == 0
    return jobs


@contextmanager
def session(site: Site, *command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=environment(site),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """Return the first line of output that contains ``word``; stop when the process ends."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return line
    raise AssertionError(f"no {word!r} in {''.join(lines)}")


@pytest.mark.long
def test_salloc_gets_a_gpu_of_a_training_that_saves_first(site: Site) -> None:
    trainings = fill(site)
    begin = time.monotonic()
    shell = ("salloc", "--chdir=/", "--comment=hops:reqs=1;interactive", "bash", "-c")
    with session(site, *shell, "echo here $SLURM_JOB_ID $SLURM_JOB_NODELIST; read") as terminal:
        _, job, node = read_until(terminal, "here ").split()
        seconds = time.monotonic() - begin
        assert seconds < SECONDS
        status = site.hopsd.wait_for(
            lambda status: {j["id"] for j in status["running"]} == {*trainings, job}
        )
        rows = {row["id"]: row for row in status["running"]}
        assert rows[job]["placement"] == {node: 1}
        shrunk = [t for t in trainings if sum(rows[t]["placement"].values()) < 4]
        assert len(shrunk) == 1
        log = site.worker_log.read_text()
        assert f"saved {shrunk[0]}" in log, "it saves before it makes room"
        assert terminal.stdin is not None
        terminal.stdin.write("\n")
        terminal.stdin.flush()
        terminal.wait(timeout=60)
    print(f"waited {seconds:.1f} s")


def test_srun_gets_an_idle_gpu_without_moving_any_job(site: Site) -> None:
    site.hopsd.start()
    training = site.submit("hops:reqs=4", LONG)
    site.hopsd.wait_for(lambda status: [j["id"] for j in status["running"]] == [training])
    result = subprocess.run(
        ["srun", "--chdir=/", "--comment=hops:reqs=2;interactive",
         "bash", "-c", "echo $SLURM_GPUS_ON_NODE $HOPS_GPUS $CUDA_VISIBLE_DEVICES"],
        env=environment(site), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == "2", (result.stdout, result.stderr)
    assert "as a session that nothing moves" in result.stderr
    assert site.worker_log.read_text().count("run ") == 1


WARNING, SESSION_END = "session_warned", "session_ended"


def events(site: Site, job: str) -> list[tuple[str, float]]:
    return [(event.kind, event.at) for event in reversed(site.store.events(JobId(job)))]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_idle_and_long_sessions_are_warned_in_their_terminal_and_ended(database: str) -> None:
    """One session sleeps; the other computes now and then, until its hours are over."""
    gather = ("JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=5")
    hours, warning = 0.1, 60.0
    ending = f"[interactive]\nidle_minutes = 0.5\nhours = {hours}\nwarning_minutes = 1\nshare = 1\n"
    works = "while :; do i=0; while [ $i -lt 150000 ]; do i=$((i + 1)); done; sleep 1; done"
    with (
        running_cluster(nodes=[NodeSpec("a100", gpus=4, cpus=8)], extra_conf=gather) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        site.hopsd.configure(tables=ending)
        site.hopsd.start()
        training = site.submit("hops:reqs=1", LONG)
        ask = ("--chdir=/", "--comment=hops:reqs=1;interactive")
        with (
            session(
                site, "srun", *ask, "sh", "-c", "echo job=$SLURM_JOB_ID; exec sleep 1000"
            ) as idle,
            session(
                site, "salloc", *ask, "sh", "-c", f"echo job=$SLURM_JOB_ID; srun sh -c '{works}'"
            ) as busy,
        ):
            began = time.time()
            jobs = [read_until(terminal, "job=").split("=")[1].strip() for terminal in (idle, busy)]
            text = read_until(idle, "hops ends this session at ")
            assert "it has used no processor time for" in text
            read_until(idle, "hops ended the session: it has used no processor time")
            idle.wait(timeout=60)
            wait_until(lambda: events(site, jobs[0])[-1][0] == SESSION_END)
            (before, warned_at), (_, ended_at) = events(site, jobs[0])[-2:]
            assert before == WARNING
            assert ended_at - warned_at >= warning
            assert busy.poll() is None
            read_until(busy, "hops ended the session: the site ends sessions after 0.1 h")
            busy.wait(timeout=60)
            assert time.time() - began >= hours * 3600.0
        wait_until(lambda: [kind for kind, _ in events(site, jobs[1])] == [WARNING, SESSION_END])
        site.hopsd.wait_for(lambda status: [j["id"] for j in status["running"]] == [training])


STANDS_IN = f"""#!{sys.executable}
# Answers in place of JupyterLab if the token is right.
import http.server, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path.endswith(os.environ["JUPYTER_TOKEN"]) else 403)
        self.end_headers()
options = dict(word[2:].split("=") for word in sys.argv if "=" in word)
http.server.HTTPServer((options["ip"], int(options["port"])), Page).serve_forever()
"""


@pytest.fixture(params=["stand-in", "JupyterLab"])
def jupyter(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment in which `jupyter lab` is a stand-in or the real program."""
    programs, real = tmp_path / "bin", Path(sys.executable).with_name("jupyter")
    programs.mkdir()
    program = programs / "jupyter"
    if request.param == "stand-in":
        program.write_text(STANDS_IN)
        program.chmod(0o755)
    elif real.exists() and shutil.which("jupyter-lab", path=str(real.parent)):
        program.symlink_to(real)
    else:
        pytest.skip("JupyterLab is not installed beside this Python")
    config = tmp_path / "config"
    config.mkdir()
    (config / "jupyter_server_config.json").write_text('{"ServerApp": {"allow_root": true}}')
    return {
        "PATH": f"{programs}:{real.parent}:{os.environ['PATH']}",
        "JUPYTER_CONFIG_DIR": str(config),
        "HOME": str(tmp_path),
        "USER": "root",
    }


def through_tunnel(tunnel: str, address: str) -> int:
    """The status that a browser gets at ``address`` through the ssh of ``tunnel``."""
    _, host, port = tunnel.split()[2].split(":")
    page = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    with closing(connection):
        connection.request("GET", f"{page.path}?{page.query}", headers={"Host": page.netloc})
        return connection.getresponse().status


@pytest.mark.long
def test_jupyter_is_reachable_on_a_full_cluster(
    site: Site, jupyter: dict[str, str], tmp_path: Path
) -> None:
    trainings = fill(site)
    begin = time.monotonic()
    result = subprocess.run(
        ["sbatch", "--parsable", f"--chdir={tmp_path}", ROOT / "examples" / "jupyter.sh"],
        env=environment(site) | jupyter, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    job = result.stdout.strip()
    site.hopsd.wait_for(
        lambda status: {row["id"] for row in status["running"]} == {*trainings, job}
    )
    print(f"running after {time.monotonic() - begin:.1f} s")
    url = tmp_path / f"jupyter-{job}.url"
    deadline, answer = time.monotonic() + 90.0, 0
    while answer != HTTPStatus.OK and time.monotonic() < deadline:
        with suppress(OSError):
            answer = through_tunnel(*url.read_text().splitlines())
        time.sleep(0.2)
    assert answer == HTTPStatus.OK, (tmp_path / f"jupyter-{job}.log").read_text()
    assert url.stat().st_mode & 0o77 == 0, "the token is its user's"
    print(f"answers after {time.monotonic() - begin:.1f} s")
    assert site.hopsd.status()["running"], "the trainings go on"
