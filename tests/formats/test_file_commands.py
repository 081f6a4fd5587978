"""The commands that read the neutral files, as a user calls them."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import SNAPSHOT, THEORY
from jsonschema import Draft202012Validator

pytestmark = pytest.mark.slow  # each command is a process

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"


def hopsctl(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    call = "from hopsd.ctl import main; main()"
    return subprocess.run(
        [sys.executable, "-c", call, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def valid(output: str, schema: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(output)
    Draft202012Validator(json.loads((SCHEMAS / f"{schema}.schema.json").read_text())).validate(
        document
    )
    return document


def test_plan_reads_standard_input_and_prints_what_the_schema_describes() -> None:
    document = copy.deepcopy(SNAPSHOT)
    waits = {"id": "18", "reqs": [16], "running": {}, "priority": None, "age": None, "per_node": 8}
    document["jobs"].append({**document["jobs"][0], **waits})
    result = hopsctl("plan", "--snapshot", "-", "--json", stdin=json.dumps(document))
    assert (result.returncode, result.stderr) == (0, "")
    plan = valid(result.stdout, "plan")
    assert plan["window"] == ["17", "18"]
    assert set(plan["jobs"]) == {"17", "18"}
    assert plan["placements"].keys() | {w["id"] for w in plan["waiting"]} == {"17", "18"}


def test_plan_for_people_shows_where_jobs_run_and_why_others_wait(tmp_path: Path) -> None:
    document = copy.deepcopy(SNAPSHOT)
    document["jobs"].append({**document["jobs"][0], "id": "18", "running": {}, "state": "held"})
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(document))
    result = hopsctl("plan", "--snapshot", file)
    assert result.returncode == 0
    assert "1 job on 2 GPUs of 16, 1 wait, 0 fragments" in result.stdout
    assert "held by its user or an operator" in result.stdout


@pytest.mark.parametrize("policy", ["fifo", "gavel", "slurm"])
def test_plans_of_other_policies_have_the_same_form(policy: str) -> None:
    document = {**SNAPSHOT, "settings": {"policy": policy}}
    result = hopsctl("plan", "--snapshot", "-", "--json", stdin=json.dumps(document))
    assert (result.returncode, result.stderr) == (0, "")
    assert set(valid(result.stdout, "plan")["placements"]) == {"17"}


def test_plan_refuses_bad_input_in_one_line(tmp_path: Path) -> None:
    bad = {**SNAPSHOT, "settings": {"policy": "oracle"}}
    result = hopsctl("plan", "--snapshot", "-", "--json", stdin=json.dumps(bad))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("hopsctl: no policy 'oracle'; there are ")
    result = hopsctl("plan", "--snapshot", tmp_path / "none.json")
    assert result.returncode == 2
    assert result.stderr == f"hopsctl: {tmp_path}/none.json: No such file or directory\n"
    (tmp_path / "latin1.json").write_bytes(b'{"now": "\xe9"}')
    result = hopsctl("plan", "--snapshot", tmp_path / "latin1.json")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "not UTF-8 at byte 9" in result.stderr


def run_estimate(
    gpus: int, nodes: int, *options: object, **times: Any
) -> subprocess.CompletedProcess[str]:
    shape = ("--gpu-type", "v100", "--gpus", gpus, "--nodes", nodes)
    theory = json.dumps({**THEORY, **times})
    return hopsctl("estimate", "--theory", "-", *shape, *options, stdin=theory)


def estimate(gpus: int, nodes: int, *options: object, **times: Any) -> dict[str, Any]:
    result = run_estimate(gpus, nodes, *options, "--json", **times)
    assert result.returncode == 0, result.stderr
    return valid(result.stdout, "estimate")


def test_estimate_is_exact_within_one_server() -> None:
    times_of_iteration = estimate(8, 1)
    t_c = 25.6e6 / 2.5e9 * 7 / 8
    cache_seconds = max(0.02, max(0.06 + 0.2 * t_c, t_c) + 0.01) + 0.03 + 0.0
    load_seconds = max(0.2, max(0.06 + 0.2 * t_c, t_c) + 0.01) + 0.03 + 0.01
    t_iter = 0.75 * cache_seconds + 0.25 * load_seconds
    assert times_of_iteration["t_c"] == pytest.approx(t_c, rel=1e-12)
    assert times_of_iteration["t_iter"] == pytest.approx(t_iter, rel=1e-12)
    assert times_of_iteration["throughput_per_gpu"] == pytest.approx(128 / t_iter, rel=1e-12)
    assert times_of_iteration["throughput"] == pytest.approx(8 * 128 / t_iter, rel=1e-12)


def test_estimate_is_exact_over_servers_and_for_one_gpu() -> None:
    assert estimate(8, 2)["t_c"] == pytest.approx(25.6e6 / 1.1e9, rel=1e-12)
    assert estimate(1, 1)["t_c"] == 0.0


def test_estimate_adds_the_update_of_pattern_2_unless_paper_exact() -> None:
    one_mode = {
        "p_cache": 1,
        "mu_cache": 0.02,
        "sigma_cache": 0.0,
        "mu_load": None,
        "sigma_load": None,
    }
    wait = {"cache": 0.005, "load": 9.0}
    times_of_iteration = estimate(1, 1, pattern=2, t_d=one_mode, t_w=wait)
    assert times_of_iteration["t_iter"] == pytest.approx(
        0.02 + 0.06 + 0.01 + 0.03 + 0.005, rel=1e-12
    )
    exact = estimate(1, 1, "--paper-exact", pattern=2, t_d=one_mode, t_w=wait)
    assert exact["t_iter"] == pytest.approx(0.02 + 0.06 + 0.03 + 0.005, rel=1e-12)


@pytest.mark.parametrize(
    ("gpus", "nodes", "times", "message"),
    [
        (2, 4, {}, "--gpus 2: 4 nodes have at least 4 GPUs"),
        (2, 1, {"pattern": 3}, "pattern: 3, but it must be one of 1, 2"),
        (2, 1, {"b_link": 0}, "b_link: 0, but it must be a finite number, above 0"),
        (2, 1, {"t_f": 0, "t_b": 0}, "t_f: 0, but it must be above 0 where t_b is 0"),
    ],
)
def test_estimate_refuses_bad_input(
    gpus: int, nodes: int, times: dict[str, Any], message: str
) -> None:
    result = run_estimate(gpus, nodes, "--json", **times)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"hopsctl: {message}")


def test_estimate_for_people_shows_units() -> None:
    result = run_estimate(8, 1)
    assert result.returncode == 0
    assert "8 GPUs of type v100 on 1 node" in result.stdout
    assert "samples/s" in result.stdout


ROOT = SCHEMAS.parents[1]


def test_the_example_snapshot_is_planned_as_its_page_shows() -> None:
    result = hopsctl("plan", "--snapshot", ROOT / "examples/files/snapshot.json", "--json")
    plan = valid(result.stdout, "plan")
    assert {job: sum(place.values()) for job, place in plan["placements"].items()} == {
        "17": 8,
        "18": 4,
    }
    assert {w["id"]: w["code"] for w in plan["waiting"]} == {
        "19": "lost_to_others",
        "20": "outside_window",
    }


def test_the_formats_page_shows_the_real_estimate() -> None:
    page = (ROOT / "docs" / "formats.md").read_text()
    [command] = [
        line.split()[1:] for line in page.splitlines() if "hopsctl estimate --theory ex" in line
    ]
    command[2] = str(ROOT / command[2])
    example_output = "".join(
        line[4:] + "\n"
        for line in page.splitlines()
        if line.startswith(("    {", '      "', "    }"))
    )
    assert hopsctl(*command).stdout == example_output


def test_simulate_prints_what_the_schema_describes(tmp_path: Path) -> None:
    files = ROOT / "examples/files"
    result = hopsctl(
        "simulate", "--cluster", files / "cluster.json", "--workload", files / "workload.json",
        "--policy", "slurm", "--policy", "fifo", "--out", tmp_path, "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    simulation = valid(result.stdout, "simulation")
    assert set(simulation["policies"]) == {"slurm", "fifo"}
    assert simulation["policies"]["fifo"]["makespan_h"] > 0


@pytest.mark.parametrize(
    "text",
    [
        "hops:reqs=1,2",
        "hops:reqs=1-16;num=4;samples=1e9;batch=32;lr=1:0.1,6:0.2;workload=bert",
    ],
)
def test_comment_prints_what_the_schema_describes(text: str) -> None:
    assert valid(hopsctl("comment", text, "--json").stdout, "comment")["reqs"][0] == 1


def test_health_prints_what_the_schema_describes() -> None:
    file = ROOT / "examples/files/health.json"
    result = hopsctl("health", "--records", file, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    verdicts = valid(result.stdout, "health")
    assert [row["node"] for row in verdicts["slow"]] == ["n2"]
    assert [row["node"] for row in verdicts["lemons"]] == ["n4"]
    output = hopsctl("health", "--records", file).stdout
    assert "n2" in output
    assert "the first record" in output
    assert "n4" in output


def test_health_refuses_a_bad_record_and_reports_when_there_is_no_verdict() -> None:
    empty: dict[str, Any] = {
        "now": 10,
        "nodes": [{"name": "n0", "gpu_type": "a", "gpus": 4}],
        "records": [],
        "ends": [],
    }
    result = hopsctl("health", "--records", "-", stdin=json.dumps(empty))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "No node is certain to be slow or to break jobs.\n"
    result = hopsctl("health", "--records", "-", stdin=json.dumps({**empty, "records": [{}]}))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "hopsctl: records[0].at: missing\n"
