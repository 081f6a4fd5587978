"""``bench.predict``: saved playouts give the same predictions; certain ones count separately."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.predict.__main__ import line, rows_that_came
from bench.predict.replay import Case, load_or_record, playouts_of, replay
from hopsd.predict.calibration import Kind
from hopsd.sim.information.knowledge import Knows
from hopsd.sim.presets import preset


def test_saved_playouts_give_the_same_predictions(tmp_path: Path) -> None:
    scene = preset("paper-64")
    workload = scene.workload(3, jobs=6, rate_per_hour=60.0)
    case = Case("few", scene.cluster(), workload, "hops", Knows.MEASURED)
    recording = load_or_record(case, tmp_path / "recording")
    new = replay(case, recording, playouts_of(case, recording, tmp_path / "playouts"))
    second_replay = replay(
        case,
        load_or_record(case, tmp_path / "recording"),
        playouts_of(case, recording, tmp_path / "playouts"),
    )
    assert new.predictions == second_replay.predictions
    assert {p.kind for p in second_replay.predictions} == set(Kind)
    for kind in Kind:
        rows = rows_that_came(second_replay, kind)
        assert len(rows)
        assert np.isfinite(rows[:, :5]).all()


def test_certain_predictions_are_counted_separately() -> None:
    """One of ten certain ones is wrong; of ten others, one start is too early and two too late."""
    rows = np.zeros((20, 9))
    rows[:, 1:4] = 100.0, 99.0, 101.0
    rows[:, 4] = 100.0
    rows[0, 4] = 500.0
    rows[10:, 2:4] = 50.0, 150.0
    rows[10, 4], rows[11:13, 4] = 10.0, 200.0
    rows[:, 5] = 1000.0
    rows[:10, 8] = 1.0
    cells = [cell.strip() for cell in line("all", rows).strip("|").split("|")]
    assert cells[1:5] == ["20", "50% (90%)", "70% (10%, 20%)", "100"]
    assert cells[6] == "900/874 (0%)"
    assert [cell.strip() for cell in line("none", rows[:0]).strip("|").split("|")][1] == "0"
    assert " 100% (90%) |  |  |" in line("certain", rows[:10])
