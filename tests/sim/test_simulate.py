"""`hopsctl simulate`: the files are exact, and every figure can be recomputed from them."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from hopsd.ctl.study.simulate import simulate as command

pytestmark = pytest.mark.slow  # each command is a process

CLUSTER = {
    "nodes": [
        {"name": "n0", "gpu_type": "slow", "gpus": 4},
        {"name": "n1", "gpu_type": "slow", "gpus": 4},
        {"name": "f0", "gpu_type": "fast", "gpus": 8},
    ],
    "gpu_types": {"slow": {"b_link": 2e9, "b_net": 1e9}, "fast": {"b_link": 2e9, "b_net": 1e9}},
}
TABLE = {
    "slow": {"aggregated": {"1": 10.0, "4": 9.0}, "distributed": {"2": 7.0}},
    "fast": {"aggregated": {"1": 30.0, "8": 24.0}},
}
POLICIES = ("fifo", "srtf", "hops", "gavel")


def document(jobs: int = 12) -> dict[str, Any]:
    sizes = [[1, 2, 4], [2], [4, 8], [1], [3, 6]]
    return {
        "throughput": {"net/one": TABLE},
        "server_factor": {"net/one": {"n1": 0.9}},
        "jobs": [
            {
                "id": str(i),
                "user": f"u{i % 3}",
                "submit": 37.5 * i,
                "workload": "net/one",
                "samples": 4000.0 * (1 + i % 4),
                "reqs": sizes[i % 5],
                "preemptible": i % 5 != 3,
            }
            for i in range(jobs)
        ],
    }


def simulate(
    folder: Path, *options: str, jobs: int = 12, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    (folder / "workload.json").write_text(json.dumps(document(jobs)))
    return subprocess.run(
        [sys.executable, "-c", "from hopsd.ctl import main; main()", "simulate",
         "--cluster", str(folder / "cluster.json"), "--workload", str(folder / "workload.json"),
         "--out", str(folder / "out"), "--round", "100", "--restart-cost", "7", *options],
        capture_output=True, text=True, timeout=240, check=False, env=env,
    )  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("study")
    result = simulate(folder, "--json", *(f"--policy={p}" for p in POLICIES))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), folder / "out"


def rate(placement: dict[str, int]) -> float:
    """Return samples per second, from the documents above alone."""
    gpus = sum(placement.values())
    slow = [n for n in placement if n.startswith("n")]
    if len(placement) > 1:
        per_gpu = 7.0
    elif slow:
        per_gpu = float(np.interp(gpus, [1, 4], [10.0, 9.0]))
    else:
        per_gpu = float(np.interp(gpus, [1, 8], [30.0, 24.0]))
    return per_gpu * gpus * (0.9 if "n1" in placement else 1.0)


def age(job: dict[str, Any]) -> float:
    """Return the age by eq. 9; every job can use both GPU types, since 8 GPUs can be spread."""
    mean = sum(job["reqs"]) / len(job["reqs"])
    return sum(0.5 * job["samples"] / (r * mean) for r in (10.0, 30.0))


def test_the_object_has_the_keys_of_the_format(study: tuple[dict[str, Any], Path]) -> None:
    answer, folder = study
    assert answer.keys() == {"policies", "jobs", "rounds"}
    assert (answer["jobs"], answer["rounds"]) == (
        str(folder / "jobs.csv"),
        str(folder / "rounds.csv"),
    )
    assert list(answer["policies"]) == list(POLICIES)
    for figures in answer["policies"].values():
        assert list(figures) == [
            "makespan_h", "avg_jct_h", "p50_jct_h", "p99_jct_h", "avg_wait_h",
            "max_latency_ratio", "mean_latency_ratio", "avg_fragments", "max_ftf", "max_ftf_eq9",
            "unfair_share", "gpu_utilisation", "restarts", "restarts_per_job_hour",
            "needless_restarts", "rounds", "solve_seconds",
            "proven_gap", "wall_seconds",
        ]  # fmt: skip
    first_lines = [(folder / n).read_text().splitlines()[0] for n in ("jobs.csv", "rounds.csv")]
    assert first_lines == [
        "policy,id,submit,first_start,end,wait,age,latency_ratio,ftf,restarts",
        "policy,time,queued,running,idle,fragments,throughput,solve_seconds,gap",
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_figure_follows_from_the_timeline(
    study: tuple[dict[str, Any], Path], policy: str
) -> None:
    """Independent code recomputes them from ``timeline.jsonl`` and the input documents."""
    answer, folder = study
    figures = answer["policies"][policy]
    jobs = {job["id"]: job for job in document()["jobs"]}
    lines = [json.loads(line) for line in (folder / "timeline.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["policy"] == policy]
    assert lines == sorted(lines, key=lambda line: line["time"])

    now: dict[str, dict[str, int]] = {}
    since: dict[str, float] = {}
    gpu_seconds_by_job: dict[str, float] = defaultdict(float)
    samples_done: dict[str, float] = defaultdict(float)
    starts: dict[str, list[float]] = defaultdict(list)
    gpu_seconds, end = 0.0, {}
    by_instant: dict[float, dict[str, dict[str, int]]] = defaultdict(dict)
    for line in lines:
        by_instant[line["time"]][line["job"]] = line["placement"]
    history: list[tuple[float, dict[str, dict[str, int]]]] = []
    for moment, changes in sorted(by_instant.items()):
        for job, placement in changes.items():
            before = now.get(job, {})
            if before == placement:
                continue
            if before:
                seconds = moment - since[job]
                gpu_seconds_by_job[job] += seconds
                gpu_seconds += seconds * sum(before.values())
                restart = 7.0 if len(starts[job]) > 1 else 0.0
                samples_done[job] += max(0.0, seconds - restart) * rate(before)
            if placement:
                starts[job].append(moment)
                since[job] = moment
            now[job] = placement
            end[job] = moment
        history.append((moment, {j: dict(p) for j, p in now.items()}))
        usage: dict[str, int] = defaultdict(int)
        for placement in now.values():
            for node, gpus in placement.items():
                usage[node] += gpus
        assert all(usage[n["name"]] <= n["gpus"] for n in CLUSTER["nodes"])  # type: ignore[index]

    for job in jobs:
        assert samples_done[job] == pytest.approx(jobs[job]["samples"], rel=1e-9)
    jct = np.array([end[j] - jobs[j]["submit"] for j in jobs])
    wait = np.array([end[j] - jobs[j]["submit"] - gpu_seconds_by_job[j] for j in jobs])
    ratio = wait / np.array([age(job) for job in jobs.values()])
    makespan = max(end.values())
    assert figures["makespan_h"] == pytest.approx(makespan / 3600)
    assert figures["avg_jct_h"] == pytest.approx(jct.mean() / 3600)
    assert figures["p50_jct_h"] == pytest.approx(np.percentile(jct, 50) / 3600)
    assert figures["p99_jct_h"] == pytest.approx(np.percentile(jct, 99) / 3600)
    assert figures["avg_wait_h"] == pytest.approx(wait.mean() / 3600, abs=1e-12)
    assert figures["max_latency_ratio"] == pytest.approx(ratio.max(), abs=1e-12)
    assert figures["mean_latency_ratio"] == pytest.approx(ratio.mean(), abs=1e-12)
    assert figures["gpu_utilisation"] == pytest.approx(gpu_seconds / (16 * makespan))
    assert figures["restarts"] == sum(len(s) - 1 for s in starts.values())
    assert figures["max_ftf"] == pytest.approx(max(rho(jobs, end).values()))

    idle_at_rounds = []
    for moment in np.arange(0.0, makespan, 100.0):
        state = [s for t, s in history if t <= moment][-1]
        running = {j for j, p in state.items() if p}
        waiting = {j for j in jobs if jobs[j]["submit"] <= moment < end[j]} - running
        idle = 16 - sum(sum(p.values()) for p in state.values())
        idle_at_rounds.append(idle if waiting else 0)
    assert figures["rounds"] == len(idle_at_rounds)
    assert figures["avg_fragments"] == pytest.approx(np.mean(idle_at_rounds))
    with (folder / "rounds.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == policy]
    assert [int(row["fragments"]) for row in rows] == idle_at_rounds


def rho(jobs: dict[str, Any], end: dict[str, float]) -> dict[str, float]:
    """Return the finish-time fairness, with the number of jobs present averaged by the second."""
    rho_by_job = {}
    for job_id, job in jobs.items():
        start, stop = job["submit"], end[job_id]
        presence_seconds = sum(
            max(0.0, min(stop, end[competitor]) - max(start, jobs[competitor]["submit"]))
            for competitor in jobs
        )
        share = min(16 / (presence_seconds / (stop - start)), max(job["reqs"]))
        alone = job["samples"] / (20.0 * share)
        rho_by_job[job_id] = (stop - start) / alone
    return rho_by_job


@pytest.mark.long
def test_an_interrupted_run_continues_to_the_same_result(tmp_path: Path) -> None:
    """Interrupted after some plans and resumed, a run has the same timeline and figures."""
    whole = tmp_path / "whole"
    whole.mkdir()
    assert simulate(whole, "--policy=hops", jobs=60).returncode == 0
    root = tmp_path / "cut"
    root.mkdir()
    journal = root / "out" / "journal" / "hops.jsonl"
    (root / "out" / "journal").mkdir(parents=True)
    (root / "cluster.json").write_text(json.dumps(CLUSTER))
    (root / "workload.json").write_text(json.dumps(document(60)))
    command = [sys.executable, "-c", "from hopsd.ctl import main; main()", "simulate",
               "--cluster", str(root / "cluster.json"), "--workload", str(root / "workload.json"),
               "--out", str(root / "out"), "--round", "100", "--restart-cost", "7",
               "--policy=hops"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (
            not journal.exists() or journal.read_text().count("\n") < 5
        ):
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
        assert running.returncode == 130, stderr
    assert b"--resume" in stderr
    line_count = journal.read_text().count("\n")
    assert simulate(root, "--policy=hops", "--resume", jobs=60).returncode == 0
    assert journal.read_text().count("\n") > line_count
    timelines = [(f / "out" / "timeline.jsonl").read_text() for f in (whole, root)]
    assert timelines[0] == timelines[1]


@pytest.mark.long
def test_a_journal_of_other_inputs_is_refused(tmp_path: Path) -> None:
    assert simulate(tmp_path, "--policy=fifo").returncode == 0
    result = simulate(tmp_path, "--policy=fifo", "--resume", jobs=11)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "other inputs" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy=best"], "no policy 'best'"),
        (["--policy=fifo", "--jobs=3"], "go with generated"),
        (["--policy=fifo", "--workload=paper-64"], "only be used with the cluster paper-64"),
        (["--policy=fifo", "--workload=philly:/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_is_named_in_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    result = simulate(tmp_path, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_an_unwritable_output_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = simulate(tmp_path, "--policy=fifo", "--out", str(tmp_path / "file" / "out"))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"hopsctl: {tmp_path / 'file' / 'out'}: Not a directory\n"


def test_names_of_any_language_work_in_any_locale(tmp_path: Path) -> None:
    """No name may control a terminal."""
    log = tmp_path / "log.csv"
    rows = "id,user,submit,gpus,seconds\njöb✓,ü,0,1,10\n\x1b[31mred,u,0,99,10\n"
    log.write_text(rows, encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    options = ("--policy=fifo", "--report", "--workload", f"csv:{log}")
    result = simulate(tmp_path, *options, env={**os.environ, **ascii_only})
    assert (result.returncode, "job \\x1b[31mred fits nowhere" in result.stderr) == (0, True)
    assert "fifo,jöb✓,0.0" in (tmp_path / "out" / "jobs.csv").read_text(encoding="utf-8")


def test_the_report_is_one_page_with_every_server_and_policy(tmp_path: Path) -> None:
    assert simulate(tmp_path, "--policy=fifo", "--policy=hops", "--report").returncode == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "http" not in page.replace("http-equiv", "")
    for node in ("n0", "n1", "f0"):
        assert page.count(f">{node}</text>") == 2
    assert page.count("<title>job 3 on") >= 2


@pytest.mark.long
def test_failures_are_read_from_a_file(tmp_path: Path) -> None:
    """A lost server's jobs are preempted at once, and nothing runs there until it is back."""
    failures = {"failures": [{"at": 450, "node": "f0", "seconds": 300}, {"at": 500.5, "job": "1"}]}
    (tmp_path / "failures.json").write_text(json.dumps(failures))
    result = simulate(tmp_path, "--policy=fifo", "--failures", str(tmp_path / "failures.json"))
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "out" / "timeline.jsonl").read_text().splitlines()
    changes = [json.loads(line) for line in lines]
    assert any(c["time"] == 450.0 and c["placement"] == {} for c in changes)
    assert not any("f0" in c["placement"] for c in changes if 450.0 <= c["time"] < 750.0)
    failures["failures"][0]["seconds"] = 1e300
    (tmp_path / "failures.json").write_text(json.dumps(failures))
    result = simulate(tmp_path, "--policy=fifo", "--failures", str(tmp_path / "failures.json"))
    assert (result.returncode, "failures[0].seconds: 1e+300" in result.stderr) == (2, True)
    failures["failures"][0]["seconds"] = 300
    failures["failures"][1]["job"] = "99"
    (tmp_path / "failures.json").write_text(json.dumps(failures))
    result = simulate(tmp_path, "--policy=fifo", "--failures", str(tmp_path / "failures.json"))
    assert result.returncode == 2
    assert "failures[1].job: '99', but it must be a job of the workload" in result.stderr


@pytest.mark.long
def test_the_weights_of_hops_plus_trade_the_short_job_for_the_long_one(tmp_path: Path) -> None:
    """A job of 4,000 s runs on the only GPU; a job of 500 s arrives when half of that is over."""
    load = document(2) | {"server_factor": {}}
    cluster = CLUSTER | {"nodes": [{"name": "n0", "gpu_type": "slow", "gpus": 1}]}
    for job, (name, submit, samples) in zip(
        load["jobs"], [("long", 0.0, 40_000.0), ("short", 2_000.0, 5_000.0)], strict=True
    ):
        job |= {"id": name, "submit": submit, "samples": samples, "reqs": [1], "preemptible": True}
    (tmp_path / "one.json").write_text(json.dumps(cluster))
    (tmp_path / "two.json").write_text(json.dumps(load))

    def ends(*weights: str) -> dict[str, float]:
        scenario = (
            "--cluster",
            str(tmp_path / "one.json"),
            "--workload",
            str(tmp_path / "two.json"),
        )
        result = simulate(tmp_path, "--policy=hops+", *weights, *scenario)
        assert result.returncode == 0, result.stderr
        with (tmp_path / "out" / "jobs.csv").open(newline="") as file:
            return {row["id"]: float(row["end"]) for row in csv.DictReader(file)}

    mean = ends("--set=tail_weight=0")
    assert mean["short"] < mean["long"]
    assert ends("--set=tail_weight=10")["short"] > mean["short"]


REQUIRED_OPTIONS = ["--cluster", "c", "--workload", "w", "--out", "o", "--policy", "fifo"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--round", "nan", "nan is not a finite number"),
        ("--profiling", "inf", "inf is not "),
        ("--seed", "-1", "-1 is not in the range x>=0"),
    ],
)
def test_an_option_out_of_its_range_is_refused(option: str, value: str, message: str) -> None:
    result = CliRunner().invoke(command, [*REQUIRED_OPTIONS, option, value])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("alpha=1.5", "alpha: 1.5, but it must be a finite number, 0 or more and at most 1"),
        ("filter_share=nan", "filter_share: 'nan', but it must be a finite number"),
        ("lease_seconds=Infinity", "lease_seconds: inf, but it must be a finite number"),
        ("patience_seconds=-1", "patience_seconds: -1, but it must be a finite number, 0 or more"),
        ("tail_weight=11", "11, but it must be a finite number, 0 or more and at most 10"),
        ("tail_weight=NaN", "tail_weight: nan, but it must be a finite number"),
        ("gap=2", "gap: 2, but it must be a finite number, 0 or more and at most 1"),
        ("effort=0.5", "effort: 0.5, but it must be a whole number, 0 or more"),
        ("priority=las-vegas", "priority: 'las-vegas', but it must be one of"),
        ("gap", "'gap': give KEY=VALUE, such as gap=0.02"),
        ("tide=1", "tide: unknown key; the keys are lambda, sigma"),
        ("seed=1", "seed: use --seed"),
        ("policy=las", "policy: use --policy"),
    ],
)
def test_a_setting_that_does_not_affect_planning_is_refused(assignment: str, message: str) -> None:
    result = CliRunner().invoke(command, [*REQUIRED_OPTIONS, "--set", assignment])
    assert result.exit_code == 2
    assert message in result.output


def test_failures_of_jobs_that_are_left_out_are_ignored(tmp_path: Path) -> None:
    load = document(2)
    load["jobs"][1]["reqs"] = [99]
    (tmp_path / "large.json").write_text(json.dumps(load))
    (tmp_path / "failures.json").write_text('{"failures": [{"at": 50, "job": "1"}]}')
    result = simulate(tmp_path, "--policy=fifo", "--failures", str(tmp_path / "failures.json"),
                    "--workload", str(tmp_path / "large.json"))  # fmt: skip
    assert result.stderr == "hopsctl: job 1 fits nowhere, even on an idle cluster: left out\n"
    assert result.returncode == 0


@pytest.mark.parametrize("option", ["--cluster", "--workload", "--failures"])
def test_an_error_in_a_file_names_the_file(tmp_path: Path, option: str) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"nodes": [], "jobs": [], "failures": []')
    result = simulate(tmp_path, "--policy=fifo", option, str(wrong))
    assert result.returncode == 2
    assert result.stderr.startswith(f"hopsctl: {wrong}: not a JSON document: ")
