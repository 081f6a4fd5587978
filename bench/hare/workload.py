"""Jobs like those of the paper's table 2 on GPUs like its own, as Hare's tasks.

We use what the paper prints: table 2's models and batch sizes, and task times from table 3 (Hare's
switching time over its share of the task). This file states what we assume for the rest: which GPU
those times are from, other GPUs' speeds except for two models, scales, weights, run times, and
arrivals (the paper takes a Google trace).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hopsd.model.arrays import Floats, Ints
from hopsd.policies.hare.tasks import Instance

TYPES = ("V100", "T4", "M60", "K80")

COMPUTE_BOUND = (7.0, 2.0, 1.4, 1.0)
"""Speed over a K80. V100 and T4: the paper's figure 2 for ResNet50; M60 is assumed."""

INPUT_BOUND = (2.0, 1.5, 1.2, 1.0)
"""V100: the text on GraphSAGE, where the GPU waits for its input; the rest is assumed."""

SPEECH = (5.0, 2.0, 1.4, 1.0)
"""Assumption: between the two."""


@dataclass(frozen=True, slots=True)
class Model:
    """``seconds`` of one mini-batch on a V100 (assumption: table 3 is about V100s); ``params`` in
    millions; ``minutes`` that a job trains on V100s at its scale (assumption: the paper only says
    that language jobs are the longest and recommendation jobs the shortest).
    """

    name: str
    domain: str
    seconds: float
    params: float
    speeds: tuple[float, ...]
    minutes: tuple[float, float]


MODELS = (
    Model("VGG-19", "CV", 0.152, 20.0, COMPUTE_BOUND, (8.0, 25.0)),
    Model("ResNet50", "CV", 0.055, 25.6, COMPUTE_BOUND, (8.0, 25.0)),
    Model("Inception V3", "CV", 0.172, 23.9, COMPUTE_BOUND, (8.0, 25.0)),
    Model("Bert_base", "NLP", 0.445, 110.0, COMPUTE_BOUND, (15.0, 50.0)),
    Model("Transformer", "NLP", 0.426, 65.0, COMPUTE_BOUND, (15.0, 50.0)),
    Model("DeepSpeech", "Speech", 0.342, 38.0, SPEECH, (8.0, 25.0)),
    Model("FastGCN", "Rec.", 0.040, 0.1, INPUT_BOUND, (3.0, 10.0)),
    Model("GraphSAGE", "Rec.", 0.029, 0.3, INPUT_BOUND, (3.0, 10.0)),
)
DOMAINS = ("CV", "NLP", "Speech", "Rec.")

SCALES = (1, 2, 4, 8)
WEIGHTS = (1, 2, 3, 4)

PIECES = 30
"""Rounds of a job here; each stands for as many mini-batches as make up 1/30 of the job."""

LATENCY = 2e-3
"""Assumption: seconds that a synchronisation takes in addition to sending its bytes."""

HIGH = {"V100": 40, "T4": 40, "M60": 40, "K80": 40}
"""Assumption: 160 GPUs, as many of each type."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """``gpus`` by type; ``mix`` are the shares of the domains. ``bandwidth`` is in Gbit/s,
    ``batch`` a factor on the default. Jobs arrive as a Poisson process over about ``hours``.
    """

    jobs: int = 200
    gpus: Mapping[str, int] = field(default_factory=lambda: dict(HIGH))
    mix: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(DOMAINS, 0.25))
    bandwidth: float = 25.0
    batch: float = 1.0
    hours: float = 1.0
    seed: int = 0

    def instance(self) -> Instance:
        """Draw the tasks; scenarios that differ in one parameter share all other draws.

        A synchronisation sends 4 bytes per parameter both ways at once. With a larger batch there
        are proportionally fewer synchronisations, and each mini-batch takes longer.
        """
        rng = np.random.default_rng(self.seed)
        draws = rng.random((self.jobs, 5))
        gaps = rng.exponential(self.hours * 3600.0 / self.jobs, self.jobs)
        models, seconds, batch = self._times(draws)
        speeds = np.array([m.speeds for m in models])
        send = np.array([m.params for m in models]) * 1e6 * 32 / (self.bandwidth * 1e9) + LATENCY
        sync = np.minimum(send / batch, 1.0) * seconds
        kinds = np.repeat(np.arange(len(TYPES)), [self.gpus.get(t, 0) for t in TYPES])
        return Instance(
            arrival=np.cumsum(gaps) - gaps[0],
            weight=_choose(WEIGHTS, draws[:, 3]).astype(float),
            rounds=np.full(self.jobs, PIECES),
            scale=_choose(SCALES, draws[:, 4]),
            train=seconds[:, None] * speeds[:, :1] / speeds,
            sync=np.repeat(sync[:, None], len(TYPES), axis=1),
            gpu_type=rng.permutation(kinds),
            free_from=np.zeros(len(kinds)),
        )

    def batches(self) -> Floats:
        """Number of mini-batches that a task stands for, (jobs,)."""
        draws = np.random.default_rng(self.seed).random((self.jobs, 5))
        _, seconds, batch = self._times(draws)
        return seconds / batch

    def _times(self, draws: Floats) -> tuple[list[Model], Floats, Floats]:
        """Each job's model, and seconds of a task and of a mini-batch on a V100."""
        models = [self._model(float(a), float(b)) for a, b in draws[:, :2]]
        low, high = np.array([m.minutes for m in models]).T
        seconds: Floats = 60.0 * low * (high / low) ** draws[:, 2] / PIECES
        batch: Floats = np.array([m.seconds for m in models]) * self.batch
        return models, seconds, batch

    def _model(self, domain: float, member: float) -> Model:
        """Choose a model by two uniform draws, one for the domain and one for its member."""
        edges = np.cumsum([self.mix[d] for d in DOMAINS])
        place = min(int(np.searchsorted(edges, domain * edges[-1], side="right")), len(edges) - 1)
        family = [m for m in MODELS if m.domain == DOMAINS[place]]
        return family[int(member * len(family))]


def _choose(values: tuple[int, ...], draws: Floats) -> Ints:
    choices: Ints = np.array(values)[(draws * len(values)).astype(int)]
    return choices
