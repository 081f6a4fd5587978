"""The gain from lying about samples: python -m bench.lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.lies.__main__ import Scene, main
from hopsd.model.plan import PlanSettings
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings


def test_every_tenth_job_lies_and_the_others_do_not() -> None:
    scene = Scene.draw(seed=0, jobs=25)
    claims = {job.id: job.samples for job in scene.samples(10.0).jobs}
    factors = [claims[job.id] / job.samples for job in scene.truth.jobs]
    assert [n for n, factor in enumerate(factors) if factor != 1.0] == [5, 15]
    assert factors[5] == factors[15] == 10.0


@pytest.mark.long
@pytest.mark.slow
def test_a_true_claim_changes_nothing() -> None:
    scene = Scene.draw(seed=0, jobs=6)
    plan = PlanSettings(policy="hops+", effort=0, time_limit_seconds=MAX_PLAN_SECONDS)
    settings = SimulationSettings(plan=plan)
    honest = scene.completion(scene.truth, settings)
    assert scene.completion(scene.samples(1.0), settings) == honest
    assert min(honest) > 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--write", "--policy", "hops"], "--write is only for draws under hops+"),
        (["--sia", "FOLDER"], "no trace philly-1, only none"),
    ],
)
def test_an_invalid_scene_is_named(options: list[str], message: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path) if option == "FOLDER" else option for option in options]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.output
