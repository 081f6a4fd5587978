"""Reading Shockwave's published folder: a made-up trace, results computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.rivals import shockwave
from bench.rivals.__main__ import main
from hopsd.errors import InputError
from hopsd.model.ids import GpuType

V100, P100 = GpuType("v100"), GpuType("p100")


def line(model: str, steps: int, gpus: int, arrival: int) -> str:
    return f"{model}\trun\tdir\t--steps\t1\t{steps}\t{gpus}\tgns\t1\t-1.0\t9\t{arrival}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """120 jobs: two of LM on two GPUs for each of Recommendation, which was measured on one."""
    kinds = [("LM (batch size 10)", 600, 2), ("LM (batch size 10)", 600, 2)]
    kinds.append(("Recommendation (batch size 512)", 30, 1))
    lines = [line(*kinds[i % 3], 60 * i) for i in range(120)]
    trace_folder = tmp_path / "traces" / "reproduce"
    trace_folder.mkdir(parents=True)
    (trace_folder / "120_0.2_5_0,0.5_dynamic.trace").write_text("\n".join(lines) + "\n")
    speeds = {
        "v100": {
            "('LM (batch size 10)', 1)": {"null": 2.0},
            "('LM (batch size 10)', 2)": {"null": 3.0},
            "('Recommendation (batch size 512)', 1)": {"null": 1.0},
        },
        "v100_unconsolidated": {"('LM (batch size 10)', 2)": {"null": 2.5}},
        "p100": {"('LM (batch size 10)', 1)": {"null": 1.0}},
        "p100_unconsolidated": {},
        "k80": {},
        "k80_unconsolidated": {},
    }
    (tmp_path / "speeds.json").write_text(json.dumps(speeds))
    return tmp_path


def test_speeds_counts_and_servers_match_values_by_hand(folder: Path) -> None:
    trace = shockwave.traces(folder)["120_0.2_5"]
    rigid = shockwave.workload(folder / "speeds.json", trace, "mixed", rigid=True)
    elastic = shockwave.workload(folder / "speeds.json", trace, "mixed", rigid=False)
    assert [job.reqs for job in rigid.jobs[:3]] == [(2,), (2,), (1,)]
    assert [job.reqs for job in elastic.jobs[:3]] == [(1, 2), (1, 2), (1,)]
    assert [job.samples for job in rigid.jobs[:3]] == [6000.0, 6000.0, 30 * 512.0]
    assert [job.submit for job in rigid.jobs[:3]] == [0.0, 60.0, 120.0]
    table = elastic.throughput[elastic.jobs[0].workload]
    assert table[V100].aggregated == {1: 20.0, 2: 15.0}
    assert table[V100].distributed == {2: 12.5}
    assert table.keys() == {V100, P100}
    assert rigid.throughput[rigid.jobs[0].workload].keys() == {V100}
    servers = shockwave.cluster(trace, "mixed").servers
    assert sum(server.gpus for server in servers) == 32
    assert {server.gpu_type for server in servers} == {"v100", "p100", "k80"}


@pytest.mark.slow
def test_the_table_has_a_row_for_every_policy(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--shockwave", str(folder), "--policy", "fifo", "--policy", "srtf"]
    main([*common, "--speeds", str(folder / "speeds.json"), "--rigid"])
    rows = [row.split(" | ") for row in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["| 120_0.2_5, v100, rigid", "360", "`fifo`"],
        ["| 120_0.2_5, v100, rigid", "360", "`srtf`"],
    ]
    with pytest.raises(SystemExit):
        main(common)
    assert "needs --speeds" in capsys.readouterr().err


def test_a_folder_without_traces_or_with_a_bad_trace_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = ["--speeds", str(folder / "speeds.json")]
    with pytest.raises(SystemExit):
        main(["--shockwave", str(folder / "traces"), *speeds])
    assert f"{folder / 'traces'} has no traces" in capsys.readouterr().err
    shockwave.traces(folder)["120_0.2_5"].write_text(line("LM (batch size 10)", 5, 1, 0) + "\n")
    with pytest.raises(SystemExit):
        main(["--shockwave", str(folder), *speeds])
    assert "1 jobs; only traces of 120" in capsys.readouterr().err


def test_a_trace_of_another_size_or_with_an_unmeasured_model_is_named(folder: Path) -> None:
    trace = shockwave.traces(folder)["120_0.2_5"]
    trace.write_text(line("LM (batch size 10)", 5, 8, 0) + "\n")
    with pytest.raises(InputError, match=r"1 jobs; only traces of 120, 220, 460, 900"):
        shockwave.cluster(trace, "v100")
    with pytest.raises(InputError, match=r"LM \(batch size 10\) was not measured on 8 GPUs"):
        shockwave.workload(folder / "speeds.json", trace, "v100", rigid=True)
