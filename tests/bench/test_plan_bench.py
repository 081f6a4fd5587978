"""The benchmark of plans measures what its options request."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from bench.plan import __main__ as table
from bench.plan.cells import cells
from bench.plan.instances import Case, Noise, snapshot


def test_a_row_uses_every_option_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(stdout=json.dumps({}))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(table, "_line", str)
    options = "--gpus 40 --case a --noise rank-1 --gap 0.02 --jobs 7 --seed 3 --no-plain"
    monkeypatch.setattr("sys.argv", ["bench.plan", *options.split()])
    table.main()
    assert len(commands) == 1
    monkeypatch.setattr("sys.argv", commands[0][2:])
    row_options = table._options()
    assert (row_options.gap, row_options.jobs, row_options.seed, row_options.no_plain) == (
        0.02,
        7,
        3,
        True,
    )


def test_growth_is_the_exponent_of_the_gpus() -> None:
    rows = [
        {
            "gpus": gpus,
            "case": case,
            "noise": "none",
            "demands": "none",
            "seconds": {"total": 1e-4 * gpus**1.5},
            "cpu_seconds": 2e-4 * gpus**1.25,
            "peak_gib": 0.5,
        }
        for case, sizes in (("a", (512, 2048, 10_000)), ("b", (512,)))
        for gpus in sizes
    ]
    (line,) = table.growth(rows)
    expected = "seconds 1.50, CPU seconds 1.25, GiB "
    assert line.startswith(f"a none none: GPUs to the power of: {expected}")
    assert abs(float(line.removeprefix(line.partition("GiB ")[0] + "GiB "))) < 1e-6


def test_cells_have_every_server_and_job_once_and_equal_types() -> None:
    whole = snapshot(1000, Case.IDLE, Noise.SERVER, 0)
    parts = cells(whole, 4, [job.id for job in whole.jobs])
    assert sorted(node.name for part in parts for node in part.nodes) == sorted(
        node.name for node in whole.nodes
    )
    assert sorted(job.id for part in parts for job in part.jobs) == sorted(
        job.id for job in whole.jobs
    )
    by_type = [Counter(node.gpu_type for node in part.nodes) for part in parts]
    for kind in {node.gpu_type for node in whole.nodes}:
        assert (
            max(counts[kind] for counts in by_type) - min(counts[kind] for counts in by_type) <= 1
        )
