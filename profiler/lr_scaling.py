"""The learning rate for the current number of GPUs (section 2.2 of the paper), opt-in by one line.

optimizer = torch.optim.SGD(model.parameters(), lr=hops_profiler.learning_rate(0.1))
"""

from __future__ import annotations

import math

from hops_profiler import environment


def learning_rate(default: float) -> float:
    """Return the comment's learning rate for the current number of GPUs, else ``default``."""
    return environment.learning_rate() or default


def scaled(lr: float, gpus: int, reference: int = 1, rule: str = "linear") -> float:
    """Scale ``lr`` for ``reference`` GPUs to ``gpus`` by ``rule``.

    Raises:
        ValueError: if ``rule`` is not ``linear``, ``sqrt`` or ``none``, or a count is below 1.
    """
    if gpus < 1 or reference < 1:
        raise ValueError(f"GPU counts must be 1 or more, not {gpus} and {reference}")
    if rule not in ("linear", "sqrt", "none"):
        raise ValueError(f"rule {rule!r}: give linear, sqrt or none")
    ratio = gpus / reference
    return lr * {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[rule]
