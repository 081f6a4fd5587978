"""Reading Sia's published folder: made-up measurements, results computed by hand."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from bench.rivals import gavel, sia
from bench.rivals.__main__ import main
from bench.rivals.compare import comparison
from bench.rivals.late import later
from hopsd.errors import InputError

STEPS = "placement,local_bsz,step_time,sync_time\n"
WIDE = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One application: steps of 32 and 64 take 1 s and 2 s on one GPU; the exchange takes 0.5 s."""
    traces = tmp_path / "traces" / "ncf"
    traces.mkdir(parents=True)
    for gpu_type in sia.SERVERS:
        rows = "1,32,1.0,0.0\n1,64,2.0,0.0\n2,32,1.5,0.5\n2,64,2.5,0.5\n44,32,2.0,1.0\n"
        (traces / f"placements-{gpu_type}.csv").write_text(STEPS + rows)
        (traces / f"scalability-{gpu_type}.csv").write_text(WIDE + "1,8,32,1.5,0.5\n3,24,32,3,2\n")
    epochs = "\n".join(f"{number},{100 * number}" for number in range(1, 11))
    (traces / "validation-64.csv").write_text(f"progress,iteration\n{epochs}\n")
    (traces / "validation-128.csv").write_text(
        "progress,iteration\n" + epochs.replace(",1000", ",500")
    )
    works = tmp_path / "workloads" / "small"
    works.mkdir(parents=True)
    (works / "workload-1.csv").write_text(
        "name,time,application,num_replicas,batch_size\nncf-0,5,ncf,2,128\nncf-1,9,ncf,1,96\n"
    )
    return tmp_path


def test_speeds_and_lengths_match_values_by_hand(folder: Path) -> None:
    load = sia.workload(folder, sia.traces(folder)["small-1"], rigid=False)
    first, second = load.jobs
    assert (first.submit, first.samples, first.reqs) == (5.0, 500 * 128.0, (1, 2, 4))
    assert second.samples == 750 * 96.0, "half-way between batches of 64 and of 128"
    table = next(iter(load.throughput[first.workload].values()))
    # One GPU: two turns of 64 in 4 s; two GPUs: 64 each in 2.5 s; a slowdown of 1.5.
    assert table.aggregated[1] == pytest.approx(128 / 4 / 1.5)
    assert table.aggregated[2] == pytest.approx(128 / 2.5 / 2 / 1.5)
    assert table.distributed[2] == pytest.approx(128 / 2.0 / 8 / 1.5)


def test_rigid_jobs_keep_the_count_of_the_trace(folder: Path) -> None:
    load = sia.workload(folder, sia.traces(folder)["small-1"], rigid=True)
    assert [job.reqs for job in load.jobs] == [(2,), (1,)]


@pytest.mark.slow
def test_the_table_has_a_row_for_every_policy(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--sia", str(folder), "--trace", "small-1", "--policy", "sia", "--policy", "hops+"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[2] for line in lines[2:]] == ["`sia`", "`hops+`"]
    with pytest.raises(SystemExit):
        main(["--sia", str(folder), "--trace", "large-1"])
    assert "there are small-1" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.slow
def test_delayed_arrivals_change_the_rows_and_no_delay_does_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ["--policy", "hops+", "--policy", "sia"]
    common = ["--sia", str(folder), "--trace", "small-1", *policies]
    main([*common, "--late", "0", "--seed", "1", "--seed", "2"])
    later_rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    main(common)
    first_rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[2] for row in later_rows] == ["`hops+`", "`sia`", "`hops+` over `sia`"]
    later_cells = [[cell.removesuffix(" |") for cell in row] for row in later_rows[:2]]
    alone = [[cell.removesuffix(" |") for cell in row] for row in first_rows]
    assert later_cells == [row[:3] + [f"{value} ± 0" for value in row[3:]] for row in alone]
    main([*common, "--late", "600", "--seed", "1", "--seed", "2"])
    assert [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]] != later_rows


def test_delayed_arrivals_keep_all_jobs_in_order(folder: Path) -> None:
    load = sia.workload(folder, sia.traces(folder)["small-1"], rigid=False)
    later_load = later(load, 600.0, seed=1)
    assert later_load == later(load, 600.0, seed=1) != later(load, 600.0, seed=2)
    assert sorted(job.submit for job in later_load.jobs) == [job.submit for job in later_load.jobs]
    before = {job.id: job.submit for job in load.jobs}
    assert before.keys() == {job.id for job in later_load.jobs}
    assert all(0.0 <= job.submit - before[job.id] <= 600.0 for job in later_load.jobs)


SCHEDULER = """
import logging
from types import SimpleNamespace
from runtime.rpc import scheduler_client, scheduler_server

class Scheduler:
    def __init__(
        self, policy, throughputs_file, simulate, seed, time_per_iteration,
        minimum_time_between_allocation_resets,
    ):
        assert (policy, simulate, time_per_iteration) == ("max_min_fairness_perf ECOS", True, 360.0)
        self._reset = minimum_time_between_allocation_resets
        self._logger = SimpleNamespace(logger=logging.getLogger())
        open(throughputs_file).close()

    def simulate(self, cluster_spec, arrival_times, jobs, num_gpus_per_server):
        assert (cluster_spec["v100"], num_gpus_per_server["v100"]) == (24, 8)
        print("much is printed")
        self._job_completion_times = {
            number: 3600.0 * job.scale_factor + self._reset for number, job in enumerate(jobs)
        }
"""
JOB = """
from types import SimpleNamespace

def Job(job_type, total_steps, scale_factor, **others):
    assert job_type == "ResNet-50 (batch size 64)" and total_steps >= 1
    return SimpleNamespace(scale_factor=scale_factor)
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Path:
    """A simulator with the authors' interface in which a job takes an hour for each of its GPUs,
    and the time for which shares are kept.
    """
    (tmp_path / "scheduler.py").write_text(SCHEDULER)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "utils.py").write_text(
        "def get_policy(name, solver, seed):\n    return f'{name} {solver}'\n"
    )
    speeds = {f"('ResNet-50 (batch size 64)', {n})": {"null": 2.0 * n} for n in (1, 2, 4, 8)}
    (tmp_path / "simulation_throughputs.json").write_text(
        json.dumps(dict.fromkeys(("v100", "p100", "k80"), speeds))
    )
    return tmp_path


@pytest.mark.slow
def test_gavels_simulator_and_ours_simulate_the_same_jobs(
    scheduler: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = gavel.work(scheduler, 0, jobs=5, gpus=64)
    authors_result = gavel.run_authors_simulator(
        scheduler, sys.executable, "gavel", work, 360.0, "ECOS", 0.0
    )
    assert authors_result == [float(job.reqs[0]) for job in work.workload.jobs]
    assert [job.samples for job in work.workload.jobs] == [64.0 * n for n in work.steps]
    twice = comparison(
        work.workload, authors_result, [2.0 * hours for hours in authors_result]
    ).split(" | ")
    assert (float(twice[2]), float(twice[-1])) == (2.0, 1.0)
    common = ["--gavel", str(scheduler), "--python", sys.executable, "--gpus", "64", "--jobs", "5"]
    main([*common, "--policy", "gavel", "--reset", "0", "--reset", "1920"])
    rows = [row.split(" | ") for row in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1:4] for row in rows] == [["360", "0", "`gavel`"], ["360", "1920", "`gavel`"]]
    means = [float(row[4]) for row in rows]
    assert means[1] - means[0] == pytest.approx(1920 / 3600, rel=1e-3)
    for wrong in (["--policy", "hops"], ["--gpus", "60"]):
        with pytest.raises(SystemExit):
            main([*common, *wrong])


def test_a_job_does_not_run_on_types_without_a_measurement_for_its_size(scheduler: Path) -> None:
    """The table says 0 where the memory is too small."""
    path = scheduler / "simulation_throughputs.json"
    speeds = json.loads(path.read_text())
    for n in (2, 4, 8):
        speeds["k80"][f"('ResNet-50 (batch size 64)', {n})"]["null"] = 0.0
    path.write_text(json.dumps(speeds))
    work = gavel.work(scheduler, 0, jobs=20, gpus=64)
    for job in work.workload.jobs:
        assert ("k80" in work.workload.throughput[job.workload]) == (job.reqs == (1,))
    assert not work.workload.server_factor, "the authors' servers are alike"
    assert len({job.reqs for job in work.workload.jobs}) > 1


def test_jobs_that_the_authors_skip_are_left_out(scheduler: Path) -> None:
    given_up = SCHEDULER.replace(
        "3600.0 * job.scale_factor + self._reset", "None if number == 0 else 3600.0 * number"
    )
    (scheduler / "scheduler.py").write_text(given_up)
    work = gavel.work(scheduler, 0, jobs=5, gpus=64)
    authors_result = gavel.run_authors_simulator(
        scheduler, sys.executable, "gavel", work, 360.0, "ECOS", 0.0
    )
    cells = comparison(work.workload, authors_result, [99.0, 1.0, 2.0, 3.0, 5.0]).split(" | ")
    assert (float(cells[0]), float(cells[1])) == (2.5, 2.75)


def test_the_last_output_of_gavels_simulator_is_shown(scheduler: Path) -> None:
    (scheduler / "job.py").write_text("raise RuntimeError('no cvxpy')")
    work = gavel.work(scheduler, 0, jobs=2, gpus=64)
    with pytest.raises(InputError, match="no cvxpy"):
        gavel.run_authors_simulator(scheduler, sys.executable, "gavel", work, 360.0, "ECOS")


SIAS_SIMULATOR = """
import csv, json, sys

given = dict(word.split("=") for word in sys.argv[2:] if "=" in word)
assert (given["--policy"], given["--interval"]) == ("sia", "60")
rows = list(csv.DictReader(open(sys.argv[1])))
# A category caps a job at the trace's count, and alone keeps its batch.
rigid = all(row.get("category") == "rigid" for row in rows)
assert rigid or not any("category" in row for row in rows)
assert rigid != ("--disable_bsz_tuning" in sys.argv)
jobs = [
    {
        "name": row["name"],
        "submission_time": float(row["time"]),
        "completion_time": None
        if row["name"] == "ncf-1" and rigid
        else float(row["time"]) + 3600.0 * int(row["num_replicas"]),
    }
    for row in rows
]
with open(given["--output"], "w") as log:
    for past in ([], jobs):
        log.write(json.dumps({"submitted_jobs": past}) + "\\n")
"""


@pytest.mark.slow
def test_sias_simulator_and_ours_simulate_the_same_jobs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the fake simulator a job takes an hour per GPU of the trace; a rigid ncf-1 never ends."""
    (folder / "multi_simulator.py").write_text(SIAS_SIMULATOR)
    trace = sia.traces(folder)["small-1"]
    hours = [
        sia.run_authors_simulator(folder, sys.executable, trace, rigid=rigid, round_seconds=60.0)
        for rigid in (False, True)
    ]
    assert hours[0] == [2.0, 1.0]
    assert hours[1][0] == 2.0
    assert math.isnan(hours[1][1])
    main(["--sia", str(folder), "--python", sys.executable, "--trace", "small-1"])
    row = capsys.readouterr().out.splitlines()[-1].split(" | ")
    assert row[:2] == ["| small-1, elastic", "60"]
    assert float(row[2]) == 1.5
    load = sia.with_their_restarts(sia.workload(folder, trace, rigid=False))
    assert [job.restart_seconds for job in load.jobs] == [15.0, 15.0]


def test_the_last_output_of_sias_simulator_is_shown(folder: Path) -> None:
    (folder / "multi_simulator.py").write_text("raise RuntimeError('no autograd')")
    trace = sia.traces(folder)["small-1"]
    with pytest.raises(InputError, match="no autograd"):
        sia.run_authors_simulator(folder, sys.executable, trace, rigid=False, round_seconds=60.0)


def test_a_rival_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--sia" in capsys.readouterr().err
