"""The old interface of `gym`, based on gymnasium; ``Pixels`` replaces an Atari game."""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium
import numpy as np

np.bool8 = np.bool_  # type: ignore[attr-defined]


class Old(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Returns four values from a step, and one from a reset."""

    unwrapped = property(lambda self: self)  # type: ignore[assignment]

    def reset(self, **_: Any) -> Any:
        return self.env.reset()[0]

    def step(self, action: Any) -> Any:
        state, reward, is_done, is_cut, info = self.env.step(action)
        return state, reward, is_done or is_cut, info

    def seed(self, seed: int) -> None:
        self.env.reset(seed=seed)


class Action(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Converts actions by ``action``, or by ``_action``, the method's older name."""

    def step(self, action: Any) -> Any:
        convert = getattr(self, "action", None) or self._action
        return self.env.step(convert(action))

    def seed(self, seed: int) -> None:
        self.env.seed(seed)  # type: ignore[attr-defined]


class Pixels:
    """Yields random frames; an episode has 50 steps."""

    def __init__(self, *_: Any) -> None:
        self.observation_space = types.SimpleNamespace(shape=(4, 84, 84))
        self.action_space = types.SimpleNamespace(n=4)
        self._random, self._steps = np.random.default_rng(0), 0

    def _frame(self) -> Any:
        return self._random.integers(0, 255, (4, 84, 84), dtype=np.uint8)

    def reset(self) -> Any:
        return self._frame()

    def step(self, _: int) -> Any:
        self._steps += 1
        return self._frame(), float(self._random.normal()), self._steps % 50 == 0, {}

    def seed(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def close(self) -> None:
        pass


def make(name: str, **options: Any) -> Old:
    return Old(gymnasium.make(name.replace("-v0", "-v1"), **options))


gym = types.ModuleType("gym")
gym.__dict__.update(
    ActionWrapper=Action,
    make=make,
    spaces=gymnasium.spaces,
    Space=gymnasium.Space,
    Env=gymnasium.Env,
)
gym.__dict__.update(dict.fromkeys(("Wrapper", "ObservationWrapper", "RewardWrapper"), object))
sys.modules.update({"gym": gym, "gym.spaces": gymnasium.spaces})
