"""`hopsd.api`: its tables agree with the results, and docs/api.md and the examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopsd import api

pytestmark = pytest.mark.slow  # the page's examples are processes

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()


@pytest.fixture(scope="module")
def results() -> list[api.Result]:
    cluster = api.read_cluster("paper-64")
    workload = api.read_workload("paper-64", cluster, seed=1, jobs=6)
    return [api.simulate(cluster, workload, name) for name in ("fifo", "srtf")]


def test_all_public_names_exist() -> None:
    assert sorted(api.__all__) == api.__all__
    for name in api.__all__:
        assert hasattr(api, name)


def test_tables_have_a_row_for_each_entry_of_each_result(results: list[api.Result]) -> None:
    for table, count in (
        (api.summaries(*results), 2),
        (api.jobs(*results), 12),
        (api.rounds(*results), sum(len(r.rounds) for r in results)),
    ):
        assert {len(column) for column in table.values()} == {count}
        assert set(table["policy"]) == {"fifo", "srtf"}


def test_tables_agree_with_each_other(results: list[api.Result]) -> None:
    jobs, figures, changes = (f(*results) for f in (api.jobs, api.summaries, api.timeline))
    for row, policy in enumerate(figures["policy"]):
        rows = jobs["policy"] == policy
        mean = np.mean(jobs["end"][rows] - jobs["submit"][rows]) / 3600
        assert figures["avg_jct_h"][row] == pytest.approx(mean)
        assert jobs["jct"][rows].mean() / 3600 == pytest.approx(mean)
        last = changes["time"][changes["policy"] == policy].max()
        assert last == jobs["end"][rows].max()


def test_a_job_that_never_ended_has_no_end(results: list[api.Result]) -> None:
    cluster = api.read_cluster("paper-64")
    workload = api.read_workload("paper-64", cluster, seed=1, jobs=6)
    settings = api.SimulationSettings(horizon=720.0)
    jobs = api.jobs(api.simulate(cluster, workload, "fifo", settings=settings))
    assert np.isnan(jobs["end"]).any()
    assert jobs["end"].dtype == float


@pytest.mark.parametrize("table", [api.jobs, api.rounds, api.timeline, api.summaries])
def test_no_results_are_an_empty_table_of_the_same_columns(
    table: Callable[..., dict[str, api.Column]], results: list[api.Result]
) -> None:
    empty, full = table(), table(*results)
    assert list(empty) == list(full)
    assert {name: column.dtype.kind for name, column in empty.items()} == {
        name: column.dtype.kind for name, column in full.items()
    }
    assert {len(column) for column in empty.values()} == {0}


def test_a_plan_equals_that_of_hopsctl_plan(tmp_path: Path) -> None:
    snapshot, settings = api.read_snapshot(str(ROOT / "examples" / "files" / "snapshot.json"))
    plan = api.plan(snapshot, settings)
    assert plan.placements[api.JobId("17")].gpus in (4, 8)
    assert api.plan(snapshot, settings, "fifo").placements != plan.placements
    path = tmp_path / "bad.json"
    path.write_text("{}")
    with pytest.raises(api.InputError, match=re.escape(str(path))):
        api.read_snapshot(str(path))


def test_a_job_that_fits_nowhere_is_named() -> None:
    cluster = api.read_cluster("paper-64")
    workload = api.read_workload("paper-64", cluster, jobs=2)
    large = replace(workload.jobs[1], reqs=(64,))
    with pytest.raises(api.InputError, match=f"job {large.id} fits nowhere"):
        api.simulate(cluster, replace(workload, jobs=(workload.jobs[0], large)), "fifo")


def test_a_plan_that_cannot_be_carried_out_is_refused() -> None:
    cluster = api.read_cluster("paper-64")
    workload = api.read_workload("paper-64", cluster, jobs=2)

    def twice(snapshot: api.Snapshot, settings: api.PlanSettings) -> api.Plan:
        node = snapshot.nodes[0]
        return api.Plan({j.id: api.Allocation.of({node.name: 99}) for j in snapshot.jobs})

    with pytest.raises(api.HopsError, match="99"):
        api.simulate(cluster, workload, twice)


def test_the_python_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    pytest.importorskip("pandas")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    exec("\n".join(blocks), {})  # noqa: S102 - the page's own


@pytest.mark.long
@pytest.mark.parametrize("command", re.findall(r"^    \$ python (examples/.+)$", PAGE, re.M))
def test_the_examples_of_the_page_run(command: str) -> None:
    result = subprocess.run(
        [sys.executable, *command.split()],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) >= 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 1e-320}, "samples: 1e-320; give 1e-3 to 1e18"),
        ({"age_seconds": 5e-324}, "age_seconds: 5e-324; give 1e-3 to 1e10"),
        ({"wait_seconds": float("nan")}, "wait_seconds: nan"),
        ({"priority": 1e300}, "priority: 1e+300"),
        ({"reqs": (0,)}, "reqs.0: 0; give 1 to 65536"),
        (
            {"throughput": {"v100": api.ThroughputTable({1: 5e-324}, {})}},
            "throughput.v100.aggregated.1: 5e-324",
        ),
    ],
)
def test_snapshots_built_in_python_are_validated_like_files(
    changes: dict[str, Any], message: str
) -> None:
    """Regression: the solver raised a traceback."""
    snapshot, settings = api.read_snapshot(str(ROOT / "examples" / "files" / "snapshot.json"))
    first, *rest_of_jobs = snapshot.jobs
    wrong = replace(snapshot, jobs=(replace(first, **changes), *rest_of_jobs))
    with pytest.raises(api.InputError, match=re.escape(f"job {first.id}: {message}")):
        api.plan(wrong, settings)


def test_workloads_built_in_python_are_validated_like_files() -> None:
    cluster = api.read_cluster("paper-64")
    workload = api.read_workload("paper-64", cluster, seed=1, jobs=2)
    first, next_job = workload.jobs
    wrong = replace(workload, jobs=(replace(first, samples=1e-320), next_job))
    with pytest.raises(api.InputError, match=r"samples: 1e-320; give 1e-3 to 1e18"):
        api.simulate(cluster, wrong, "fifo")
