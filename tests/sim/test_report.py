"""The report page in a real browser: how figures, plots and servers appear."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from sim_cases import cluster, job, workload

from hopsd.model.scenario import Workload
from hopsd.policies.registry import get
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import play
from hopsd.sim.study_page import write_report
from hopsd.sim.svg import Axis, chart

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CLUSTER = cluster(n0=4, n1=4, b0=8)

# Runs in the page once it is drawn, and stores its measurements in an attribute.
LOOK = """
<script>
addEventListener("load", () => {
  const box = e => { const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; };
  const bars = [...document.querySelectorAll("details[open] .gantt rect")]
    .filter(e => e.textContent.startsWith("job "))
    .map(e => ({text: e.textContent, box: box(e)}));
  const words = [...document.querySelectorAll("details[open] .gantt > text")]
    .map(e => ({text: e.textContent, box: box(e)}));
  const seen = {
    bars, words, wide: document.documentElement.scrollWidth > innerWidth,
    plots: [...document.querySelectorAll(".plots svg")].map(box),
    lines: [...document.querySelectorAll(".plots svg path > title")].map(e => e.textContent),
    rows: [...document.querySelectorAll("table tr")].map(
      r => [...r.children].map(c => c.textContent)),
    requests: performance.getEntriesByType("resource").map(e => e.name),
  };
  document.body.setAttribute("data-seen", encodeURIComponent(JSON.stringify(seen)));
});
</script></body>"""


def contended_workload() -> Workload:
    sizes = [(1, 2, 4), (2,), (4, 8), (1,), (6,)]
    jobs = [job(i, 700.0 * (1 + i % 4), *sizes[i % 5], submit=40.0 * i) for i in range(14)]
    return workload(jobs, a=1.0, b=2.0, spread=0.8)


@pytest.fixture(scope="module")
def page_view(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    browser = next((b for b in BROWSERS if shutil.which(b)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    folder = tmp_path_factory.mktemp("report")
    load = contended_workload()
    settings = SimulationSettings(100.0)
    results = [play(p, get(p), CLUSTER, load, settings) for p in ("hops", "fifo")]
    page = folder / "report.html"
    write_report(results, CLUSTER, load, page, "true speeds")
    page.write_text(page.read_text().replace("</body>", LOOK))
    dom = _open(browser, page, folder)
    match = re.search(r'data-seen="([^"]+)"', dom)
    assert match, dom[:2000]
    figures: dict[str, Any] = json.loads(unquote(match[1]))
    figures["moves"] = results[0].summary.restarts
    return figures


def _open(browser: str, page: Path, folder: Path) -> str:
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    result = subprocess.run(
        [browser, "--headless=new", *sandbox, "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={folder / 'profile'}", "--window-size=1300,1600",
         "--virtual-time-budget=5000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return result.stdout


def test_all_lines_of_a_plot_look_different() -> None:
    lines = {f"policy {n}": [(0.0, 0.0), (1.0, float(n))] for n in range(20)}
    plot = chart("plot", Axis("x", 0, 1), Axis("y", 0, 20), lines, steps=True)
    looks = re.findall(r'stroke="([^"]*)" stroke-width="1.6"([^>]*)><title>policy', plot)
    assert len(looks) == len(set(looks)) == 20


@pytest.mark.live
def test_the_figures_are_side_by_side(page_view: dict[str, Any]) -> None:
    assert page_view["rows"][0] == ["", "hops", "fifo"]
    labels = [row[0] for row in page_view["rows"]]
    assert {"Makespan, h", "Largest latency ratio", "Fragments a round"} <= set(labels)
    assert all(len(row) == 3 for row in page_view["rows"])


@pytest.mark.live
def test_four_plots_are_drawn_without_network_access(page_view: dict[str, Any]) -> None:
    assert len(page_view["plots"]) == 4
    assert all(width > 300 and height > 150 for _, _, width, height in page_view["plots"])
    assert page_view["lines"].count("hops") == page_view["lines"].count("fifo") == 4
    assert page_view["requests"] == []
    assert not page_view["wide"]


@pytest.mark.live
def test_every_job_is_a_bar_on_its_server_and_no_two_overlap(page_view: dict[str, Any]) -> None:
    bars = page_view["bars"]
    assert {re.match(r"job (\d+)", bar["text"])[1] for bar in bars} == {  # type: ignore[index]
        str(i) for i in range(14)
    }
    assert page_view["moves"] > 0
    boxes = sorted((b["box"] for b in bars), key=lambda b: (round(b[1], 1), b[0]))
    for bar, next_bar in itertools.pairwise(boxes):
        if abs(bar[1] - next_bar[1]) < 0.5:
            assert bar[0] + bar[2] <= next_bar[0] + 0.6
    tops = {word["text"]: word["box"][1] for word in page_view["words"]}
    assert tops["n0"] < tops["n1"] < tops["b0"]
    assert {"jobs waiting", "fragments"} <= tops.keys()
