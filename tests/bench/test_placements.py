"""The benchmark of placements: its models equal the product's, and its fits recover exponents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.estimate.__main__ import main
from bench.estimate.placements import (
    CANDIDATES,
    Measurements,
    cross_validated,
    paper,
    read,
    ring,
    step_seconds,
    throughput_errors,
)
from hopsd.core.speed.throughput import (
    BasicTimes,
    Communication,
    DataTime,
    IterationModel,
    Pattern,
    communication_seconds,
    iteration_seconds,
)
from hopsd.ctl.study.estimate import estimate

PLACEMENTS = ["1", "2", "4", "11", "13", "22", "44", "111", "134", "1111", "2444", "4444"]
MODELS = {"paper": Communication.PAPER, "ring": Communication.RING}


def times(batch: int, params: float) -> BasicTimes:
    """Step times; two thirds of a step are the backward pass, as the benchmark assumes."""
    return BasicTimes(
        batch_size=batch,
        params=params,
        pattern=Pattern.SERIAL,
        t_f=0.01 * batch / 3,
        t_b=0.02 * batch / 3,
        t_u=0.0,
        t_d=DataTime(1.0, 0.0, 0.0),
        b_link=4e8,
        b_net=1e8,
    )


def write(folder: Path, communication: Communication) -> None:
    """Write measurements of two applications that follow the product's model."""
    model = IterationModel(communication=communication)
    for name, params in (("small", 1e7), ("large", 1e8)):
        lines = ["placement,local_bsz,step_time,sync_time"]
        for placement in PLACEMENTS:
            gpus, servers = sum(map(int, placement)), len(placement)
            for batch in (4, 16):
                seconds = iteration_seconds(times(batch, params), gpus, servers, model)
                lines.append(f"{placement},{batch},{seconds!r},0.0")
        (folder / f"{name}.csv").write_text("\n".join(lines))


@pytest.mark.parametrize(("name", "shape"), [("paper", paper), ("ring", ring)])
@pytest.mark.parametrize("net", ["11", "22", "44"])
def test_the_right_model_predicts_unseen_measurements(
    tmp_path: Path, name: str, shape: object, net: str
) -> None:
    write(tmp_path, MODELS[name])
    applications = read(tmp_path)
    assert set(applications) == {"small", "large"}
    right, wrong = (paper, ring) if shape is paper else (ring, paper)
    for rows in applications.values():
        assert np.abs(throughput_errors(rows, right, np.zeros(0), net)).max() < 1e-3
    large = applications["large"]
    assert np.abs(throughput_errors(large, wrong, np.zeros(0), net)).max() > 0.1


def test_exponents_are_fitted_on_the_other_applications(tmp_path: Path) -> None:
    write(tmp_path, Communication.RING)
    (candidate,) = [c for c in CANDIDATES if len(c.begin) == 1]
    result = cross_validated(read(tmp_path), candidate, "11")
    assert len(result.exponents) == 2
    assert result.all_errors.max() < 0.02


def test_factors_equal_the_products() -> None:
    unit_values = np.ones(2)
    rows = Measurements(
        np.array(["13", "444"]),
        unit_values,
        unit_values,
        np.array([4.0, 12]),
        np.array([2.0, 3]),
        unit_values,
    )
    for name, shape in (("paper", paper), ("ring", ring)):
        model = IterationModel(communication=MODELS[name])
        iteration_seconds = [
            communication_seconds(times(1, 1e8), *shape_on_nodes, model)
            for shape_on_nodes in ((4, 2), (12, 3))
        ]
        assert shape(rows, np.zeros(0)) == pytest.approx(iteration_seconds)
    t_c = np.array([0.001, 3.0])
    iteration_seconds = [1 - 2 / 3 + max(2 / 3 + 0.2 * t, t) for t in t_c]
    assert step_seconds(rows, t_c) == pytest.approx(iteration_seconds)


def test_the_command_line_accepts_both_models(tmp_path: Path) -> None:
    path = tmp_path / "theory.json"
    document = {
        "batch_size": 32, "params": 1e8, "pattern": 1, "t_f": 0.1, "t_b": 0.2, "t_u": 0.01,
        "t_d": {"p_cache": 1, "mu_cache": 0.01, "sigma_cache": 0, "mu_load": None,
                "sigma_load": None},
        "t_w": {"cache": 0, "load": 0}, "b_link": 1e9, "b_net": 1e8,
    }  # fmt: skip
    path.write_text(json.dumps(document))

    def t_c(*options: str) -> float:
        command = ["--theory", str(path), "--gpu-type", "t4", "--gpus", "16", "--nodes", "4"]
        result = CliRunner().invoke(estimate, [*command, "--json", *options])
        assert result.exit_code == 0, result.output
        return float(json.loads(result.output)["t_c"])

    assert t_c() == t_c("--communication", "paper") == pytest.approx(1.0)
    assert t_c("--communication", "ring") == pytest.approx(2 * 15 / 16 / np.sqrt(2))


def test_a_folder_without_measurements_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bert").mkdir()
    monkeypatch.setattr("sys.argv", ["estimate", "--executions", "0", "--pollux", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "has no APPLICATION.csv" in capsys.readouterr().err
