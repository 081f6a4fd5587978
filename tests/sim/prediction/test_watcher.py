"""A predictor learns from a simulation as it would from a daemon."""

from __future__ import annotations

import numpy as np
import pytest

from hopsd.model.ids import JobId
from hopsd.model.plan import PlanSettings
from hopsd.policies.registry import get
from hopsd.predict.calibration import Kind
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.predict.situation import Situation
from hopsd.predict.traits import traits_of
from hopsd.sim.engine import Simulation, SimulationSettings
from hopsd.sim.prediction.watcher import Watcher
from hopsd.sim.presets import preset


class Listener(Predictor):
    """Predicts nothing; records which jobs waited again after they had run, and their starts."""

    def __init__(self) -> None:
        Predictor.__init__(self, traits_of("srtf"))
        self.waits_again: dict[JobId, float] = {}
        self.starts: dict[JobId, float] = {}

    def start_of(self, situation: Situation, job: JobId, *, keep: bool = True) -> None:
        del situation, job, keep

    def all_of(self, situation: Situation) -> list[Prediction]:
        waits = situation.started & (situation.gpus_held == 0.0) & situation.competes
        for index in np.flatnonzero(waits).tolist():
            self.waits_again[situation.ids[index]] = situation.now
        return []

    def resolve(self, job: JobId, kind: Kind, time: float) -> None:
        if kind is Kind.START:
            self.starts[job] = time


@pytest.mark.slow
def test_a_stopped_job_starts_again() -> None:
    """Starts are predicted while the job waits: without the outcomes, all would count as late."""
    paper = preset("paper-64")
    listener = Listener()
    settings = SimulationSettings(plan=PlanSettings(policy="srtf"))
    workload = paper.workload(5, jobs=20, rate_per_hour=60.0)
    Simulation(paper.cluster(), workload, get("srtf"), settings, watcher=Watcher(listener)).run()
    assert listener.waits_again
    for job, last_wait in listener.waits_again.items():
        assert listener.starts[job] > last_wait
