"""The generated jobs of Hare's experiments."""

from __future__ import annotations

import numpy as np

from bench.hare.workload import MODELS, Scenario


def test_a_task_has_as_many_mini_batches_as_fit_its_time() -> None:
    scenario = Scenario(jobs=50, batch=2.0)
    seconds = scenario.instance().train[:, 0] / scenario.batches()
    assert set(np.round(seconds, 9)) <= {round(2.0 * model.seconds, 9) for model in MODELS}
