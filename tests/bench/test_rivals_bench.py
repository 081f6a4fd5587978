"""Sia's published folder read into a workload: made-up measurements, results by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rivals import sia
from bench.rivals.__main__ import main

STEPS = "placement,local_bsz,step_time,sync_time\n"
WIDE = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One application: a step of 32 takes 1 s on one GPU, of 64 takes 2 s; 0.5 s of exchange."""
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


def test_speeds_and_lengths_by_hand(folder: Path) -> None:
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


def test_a_row_for_every_policy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--sia", str(folder), "--trace", "small-1", "--policy", "sia", "--policy", "hops+"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[2] for line in lines[2:]] == ["`sia`", "`hops+`"]
    with pytest.raises(SystemExit):
        main(["--sia", str(folder), "--trace", "large-1"])
    assert "there are small-1" in capsys.readouterr().err
