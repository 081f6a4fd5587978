"""Stand-ins for packages that a program imports but does not need for its training."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import MagicMock

import numpy as np


def modules(*names: str) -> None:
    """Let ``import NAME`` succeed for packages that are not installed."""
    for name in names:
        module: Any = MagicMock(name=name)
        module.__path__, module.__spec__ = [], None
        sys.modules[name] = module


def d4rl(steps: int = 2000, seed: int = 0) -> None:
    """Provide `d4rl` with random transitions of Pendulum, and a `wandb` that logs nothing."""
    import old_gym

    modules("wandb", "d4rl")
    rng = np.random.default_rng(seed)
    ends = np.arange(1, steps + 1) % 100 == 0
    data = {
        "observations": rng.normal(size=(steps, 3)).astype("f4"),
        "next_observations": rng.normal(size=(steps, 3)).astype("f4"),
        "actions": rng.uniform(-1, 1, (steps, 1)).astype("f4"),
        "rewards": rng.normal(size=steps).astype("f4"),
        "terminals": ends,
        "timeouts": ends,
    }
    sys.modules["d4rl"].qlearning_dataset = lambda *_, **__: dict(data)
    old_gym.Old.get_dataset = lambda self: dict(data)
    old_gym.Old.get_normalized_score = lambda self, score: score
    gym = sys.modules["gym"]
    gym.make = lambda *_, **__: old_gym.make("Pendulum-v1")
    gym.wrappers = MagicMock()
    for wrapper in ("TransformObservation", "TransformReward"):
        setattr(gym.wrappers, wrapper, lambda environment, _: environment)
