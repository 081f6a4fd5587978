"""Metrics of real ticks, scraped as by Prometheus; the rules and dashboard that use them."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from controller_rig import Rig, job

from hopsd.config import Config
from hopsd.config.listen import ListenAddress
from hopsd.errors import HopsError, SlurmUnavailableError
from hopsd.metrics import SCRAPES, Metrics
from hopsd.model.ids import JobId
from hopsd.model.reading import Reading
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.predict.calibration import Kind
from hopsd.predict.outlook import Errors
from hopsd.serve.http import HttpServer

pytest.importorskip("prometheus_client")
from prometheus_client import make_wsgi_app
from prometheus_client.parser import text_string_to_metric_families

from hopsd.metrics.exposition import Figures

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf" / "prometheus"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (package prometheus)")


class Site:
    """A controller in memory whose figures are served on a socket, or at an address."""

    def __init__(self, folder: Path, rig: Rig, address: str = "") -> None:
        self.rig, self.socket = rig, folder / "metrics.sock"
        config = Config()
        listen = ListenAddress(address or str(self.socket))
        self.config = replace(config, metrics=replace(config.metrics, listen=listen))
        self.metrics = Metrics(self.config)

    def tick(self, *, fails: bool = False) -> None:
        if fails:
            self.rig.port.now += 30.0
            self.rig.controller.tick()
        else:
            self.rig.tick()
        controller = self.rig.controller
        self.metrics.after_tick(
            controller.document, controller.result, controller.backing_off, self.config
        )

    def text(self) -> str:
        return scrape(self.socket)

    def figures(self) -> dict[tuple[str, ...], float]:
        """Return the values by name and label values."""
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
        }


def scrape(path: Path) -> str:
    with closing(http.client.HTTPConnection("localhost")) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(30.0)
        connection.sock.connect(str(path))
        connection.request("GET", "/metrics")
        with connection.getresponse() as answer:
            assert answer.status == 200
            return answer.read().decode()


def serve(address: ListenAddress) -> HttpServer:
    return HttpServer(address, make_wsgi_app(Figures().registry), SCRAPES, "metrics")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "reports").mkdir()
    jobs = [job(1, "hops:reqs=2"), job(2, "hops:reqs=32"), job(3, "hops:reqs=8,16")]
    metrics_site = Site(tmp_path, Rig(tmp_path / "reports", *jobs))
    yield metrics_site
    metrics_site.metrics.close()


def test_metrics_show_the_figures_of_a_tick(site: Site) -> None:
    assert ("hops_mode", "active") not in site.figures()
    site.tick()
    figures = site.figures()
    document = site.rig.controller.document
    assert figures["hops_mode", "active"] == 1
    assert figures["hops_ticks_total", "planned"] == 1
    assert figures["hops_plans_total", "first"] == 1
    assert figures["hops_steps_total", "start", "done"] == len(document["running"])
    assert figures["hops_running_jobs",] == len(document["running"]) > 0
    assert figures["hops_waiting_jobs", "no_configuration"] == 1
    idle = sum(node["idle"] for node in document["nodes"])
    assert figures["hops_gpus", "a100", "idle"] == idle
    assert figures["hops_gpus", "a100", "used"] == 16 - idle
    assert figures["hops_nodes", "usable"] == 2
    assert figures["hops_plan_gap_ratio",] <= figures["hops_plan_gap_limit_ratio",]
    assert figures["hops_planning_duration_seconds_count",] == 1
    assert figures["hops_last_round_timestamp_seconds",] > 0


def test_prediction_errors_are_a_histogram(site: Site) -> None:
    """A start that was 90 s off, within its interval, and an end two hours off."""
    site.tick()
    errors = Errors()
    errors.note(Kind.START, 90.0, right=True)
    errors.note(Kind.END, -7200.0, right=False)
    predictions = {"at": 50.0, "seconds": 2.0, "errors": errors.as_dict()}
    document = {**site.rig.controller.document, "predictions": predictions}
    site.metrics.after_tick(document, site.rig.controller.result, 0, site.config)
    figures = site.figures()
    name = "hops_prediction_error_seconds"
    bucket_counts = {
        kind: [figures[f"{name}_bucket", kind, bound] for bound in ("60.0", "300.0", "14400.0")]
        for kind in ("start", "end")
    }
    assert bucket_counts == {"start": [0.0, 1.0, 1.0], "end": [0.0, 0.0, 1.0]}
    assert figures[f"{name}_sum", "end"] == 7200.0
    assert figures["hops_predictions_within_interval_total", "start"] == 1.0
    assert figures["hops_predictions_within_interval_total", "end"] == 0.0
    assert figures["hops_predictions_timestamp_seconds",] == 50.0


def test_a_failed_tick_counts_no_round_but_its_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.tick()
    old_figures = site.figures()

    def read() -> Reading:
        raise SlurmUnavailableError("no slurmctld")

    monkeypatch.setattr(site.rig.port, "read", read)
    site.tick(fails=True)
    new_figures = site.figures()
    assert new_figures["hops_ticks_total", "failed"] == 1
    for name in (("hops_plans_total", "first"), ("hops_last_round_timestamp_seconds",)):
        assert new_figures[name] == old_figures[name]
    assert (
        new_figures["hops_last_tick_timestamp_seconds",]
        > old_figures["hops_last_tick_timestamp_seconds",]
    )


def test_fitting_jobs_counts_jobs_that_would_fit_on_idle_gpus(site: Site) -> None:
    """Jobs that wait for another reason, or whose start was postponed, do not count."""
    site.tick()
    assert site.figures()["hops_fitting_jobs",] == 0
    controller = site.rig.controller
    assert controller.result is not None
    idle = dict.fromkeys(("n0", "n1"), 8)
    document = {
        **controller.document,
        "nodes": [{**n, "idle": idle[n["name"]]} for n in controller.document["nodes"]],
        "waiting": [
            {"id": number, "code": code, "released": False, "wait_seconds": 1.0}
            for number, code in (("1", "lost_to_others"), ("2", "outside_window"), ("3", "held"))
        ],
    }
    site.metrics.after_tick(document, controller.result, 0, site.config)
    assert site.figures()["hops_fitting_jobs",] == 1
    step = Step(JobId("1"), StepKind.START)
    result = replace(controller.result, outcomes=[StepOutcome(step, OutcomeStatus.PUT_OFF)])
    site.metrics.after_tick(document, result, 0, site.config)
    assert site.figures()["hops_fitting_jobs",] == 0


def test_a_node_that_accepts_no_work_has_no_idle_gpus(site: Site) -> None:
    site.rig.port.nodes[1] = replace(site.rig.port.nodes[1], usable=False)
    site.rig.port.jobs.clear()
    site.tick()
    figures = site.figures()
    assert figures["hops_gpus", "a100", "idle"] == figures["hops_gpus", "a100", "unusable"] == 8
    assert figures["hops_nodes", "unusable"] == 1


@pytest.mark.slow
def test_a_defect_in_the_metrics_keeps_the_previous_ones(site: Site) -> None:
    site.tick()
    old_figures = site.figures()
    site.metrics.after_tick({}, None, 0, site.config)
    assert site.figures()["hops_running_jobs",] == old_figures["hops_running_jobs",]


def test_no_label_names_a_job_user_or_node(site: Site) -> None:
    site.tick()
    labels = {
        name
        for family in text_string_to_metric_families(site.text())
        for sample in family.samples
        for name in sample.labels
    }
    assert labels == {
        "gpu_type", "kind", "le", "mode", "outcome", "policy", "port", "reason",
        "slurm_version", "state", "status", "version",
    }  # fmt: skip
    assert "ann" not in re.findall(r'"(.*?)"', site.text())


HOLDER = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
for client in held[::2]:
    try:
        client.sendall(b"GET /met")
    except OSError:
        pass
print("held", flush=True)
sys.stdin.read()
"""
SCRAPER = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=30).status)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as other accounts")
def test_silent_and_slow_clients_block_nobody_else() -> None:
    """Regression: eight such connections by any account blocked Prometheus."""
    server, port = on_a_port()
    words = ["/usr/bin/python3", "-c", HOLDER, str(port), str(2 * SCRAPES.per_user)]
    with (
        closing(server),
        subprocess.Popen(words, user=65531, stdin=-1, stdout=-1, text=True) as holder,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        result = subprocess.run(
            ["/usr/bin/python3", "-c", SCRAPER, f"http://127.0.0.1:{port}/metrics"],
            user=65532, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert result.stdout == "200\n", result.stderr
        holder.communicate(timeout=60)


def test_surplus_clients_are_turned_away_without_delaying_the_daemon(site: Site) -> None:
    silent = []
    for _ in range(SCRAPES.per_user):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(site.socket))
        silent.append(client)
    with pytest.raises((http.client.HTTPException, OSError)):
        site.text()
    site.tick()
    silent.pop().close()
    for client in silent:
        client.close()


def on_a_port() -> tuple[HttpServer, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return serve(ListenAddress(f"127.0.0.1:{port}")), port


def test_an_address_and_the_socket_of_a_killed_process_are_reused(tmp_path: Path) -> None:
    server, port = on_a_port()
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        assert "hops_ticks_total" in answer.read().decode()
    server.close()
    path = tmp_path / "m.sock"
    with socket.socket(socket.AF_UNIX) as stale_socket:
        stale_socket.bind(str(path))
    server = serve(ListenAddress(str(path)))
    assert path.stat().st_mode & 0o777 == 0o660
    with pytest.raises(HopsError, match=r"each needs its own metrics\.listen"):
        serve(ListenAddress(str(path)))
    server.close()
    assert not path.exists()


def test_a_failure_to_listen_stops_nothing(tmp_path: Path) -> None:
    config = Config()
    listen = ListenAddress(str(tmp_path / "none" / "m.sock"))
    metrics = Metrics(replace(config, metrics=replace(config.metrics, listen=listen)))
    metrics.after_tick({}, None, 0, config)
    metrics.close()


@pytest.mark.parametrize("text", ["", "/run/x.sock", "127.0.0.1:9817", "127.1.2.3:1", "[::1]:9817"])
def test_addresses_are_parsed(text: str) -> None:
    assert ListenAddress(text) == text


@pytest.mark.parametrize(
    "text",
    ["x", "9817", ":9817", "localhost:9817", "0.0.0.0:9817", "10.0.0.1:9817", "::1:9817",
     "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:\u0661", "[127.0.0.1:1"],
)  # fmt: skip
def test_addresses_that_are_not_local_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the setting's text tells what is accepted
        ListenAddress(text)


def names_of_metrics(site: Site) -> set[str]:
    site.tick()
    return {
        name
        for family in text_string_to_metric_families(site.text())
        for name in (family.name, *(sample.name for sample in family.samples))
    }


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"\bhops_[a-z_]+", text))


def test_rules_and_dashboard_use_existing_metrics(site: Site) -> None:
    document = {**site.rig.controller.document, "raqlr": 1.5}
    site.metrics.after_tick(document, None, 0, site.config)
    exported_names = names_of_metrics(site) | {"hops_latency_ratio_mean"}
    for name in ("hops.rules.yml", "hops.grafana.json"):
        assert metric_names((CONF / name).read_text()) - exported_names == set()


def test_every_metric_is_documented(site: Site) -> None:
    page = metric_names((ROOT / "docs" / "metrics.md").read_text())
    families = {
        re.sub(r"_(bucket|count|sum|created)$", "", name) for name in names_of_metrics(site)
    }
    hops_names = {name for name in families if name.startswith("hops_")}
    assert {n for n in hops_names if not {n, f"{n}_total", f"{n}_info"} & page} == set()


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads((CONF / "hops.grafana.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) > 0
    occupied_cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert position["x"] + position["w"] <= 24
        assert not occupied_cells & cells
        occupied_cells |= cells
        assert all(target["expr"] for target in panel["targets"])
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)\b", json.dumps(board))) <= variables


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", str(CONF / "hops.rules.yml")),
        ("check", "config", str(CONF / "hops.scrape.yml")),
        ("test", "rules", str(Path(__file__).with_name("hops.tests.yml"))),
    ],
    ids=lambda value: "-".join(value[:2]),
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    result = subprocess.run(
        [str(PROMTOOL), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_promtool_accepts_the_metrics(site: Site) -> None:
    site.tick()
    text = "".join(line for line in site.text().splitlines(keepends=True) if "_created" not in line)
    result = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=text, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_promtool_accepts_the_dashboards_queries(tmp_path: Path) -> None:
    """Queries are checked as rule expressions, with Grafana's variables substituted."""
    board = json.loads((CONF / "hops.grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [
        {"record": f"q{i}", "expr": query.replace("$__rate_interval", "5m")}
        for i, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    result = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.live
@pytest.mark.skipif(not shutil.which("prometheus"), reason="needs the package prometheus")
def test_a_prometheus_scrapes_it_and_evaluates_the_rules(tmp_path: Path) -> None:
    listen, web = (f"127.0.0.1:{free_port()}" for _ in range(2))
    (tmp_path / "reports").mkdir()
    site = Site(tmp_path, Rig(tmp_path / "reports", job(1, "hops:reqs=2")), listen)
    site.tick()
    file = tmp_path / "prometheus.yml"
    scrape_config = {"job_name": "hops", "static_configs": [{"targets": [listen]}]}
    file.write_text(json.dumps({
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(CONF / "hops.rules.yml")], "scrape_configs": [scrape_config],
    }))  # fmt: skip
    with (tmp_path / "log").open("w") as log, subprocess.Popen(
        ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address={web}"],
        cwd=tmp_path, stdout=log, stderr=log,
    ) as process:  # fmt: skip
        try:
            answer = wait_for(
                lambda: ask(web, "query?query=hops_running_jobs")["result"], process, log.name
            )
            rules = wait_for(
                lambda: [
                    rule
                    for group in ask(web, "rules")["groups"]
                    for rule in group["rules"]
                    if rule["health"] != "unknown"
                ],
                process,
                log.name,
            )
        finally:
            process.kill()
            site.metrics.close()
    (series,) = answer
    assert float(series["value"][1]) == len(site.rig.controller.document["running"])
    assert {rule["health"] for rule in rules} == {"ok"}


def ask(web: str, question: str) -> Any:
    try:
        with urlopen(f"http://{web}/api/v1/{question}", timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:  # it has not started yet
        return {"result": [], "groups": []}


def wait_for(probe: Callable[[], Any], process: subprocess.Popen[bytes], log: str) -> Any:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and process.poll() is None:
        if value := probe():
            return value
        time.sleep(0.1)
    raise AssertionError(Path(log).read_text()[-2000:])


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
