"""How long running jobs keep the GPUs that they have, where the policy may take them.

Playouts give GPUs as one amount and change more than plans do: in plans a job's servers, and what
moving costs, hold it where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId
from hopsd.predict.situation import Situation

PRIOR_CHANGES, PRIOR_SECONDS = 4.0, 10 * 3600.0
"""What a predictor begins with: a job's GPUs change every two and a half hours. On three generated
works under ``hops`` and ``hops+`` it was 0.35 to 0.45 times an hour.
"""


@dataclass(slots=True)
class Keeping:
    """Changes of running jobs' GPUs, and how long jobs ran."""

    changes: float = PRIOR_CHANGES
    seconds: float = PRIOR_SECONDS
    _at: float = 0.0
    _allocations: dict[JobId, Allocation] = field(default_factory=dict)

    def note(self, situation: Situation) -> None:
        """Compare with the situation before; jobs that are gone have ended."""
        now = dict(zip(situation.ids, situation.running, strict=True))
        for job, before in self._allocations.items():
            if job in now:
                self.changes += now[job] != before
                self.seconds += situation.now - self._at
        self._at = situation.now
        self._allocations = {job: allocation for job, allocation in now.items() if allocation}

    def chance(self, seconds: Floats) -> Floats:
        """That a job keeps its GPUs for so long."""
        kept: Floats = np.exp(-seconds * self.changes / self.seconds)
        return kept
