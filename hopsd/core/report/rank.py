"""A process of a training, and whether it makes progress according to its reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hopsd.model.ids import JobId, NodeName


class RankState(StrEnum):
    """What a rank is doing.

    ``TRAINING``: it makes steps. ``BUSY``: it makes no steps, but its process works.
    ``INTERACTIVE``: somebody is debugging it. ``WAITING``: it waits for other ranks, without a sign
    of life; ``STOPPED``: it stands still elsewhere. ``SILENT``: its process does not answer.
    ``ENDED``: it has ended.
    """

    TRAINING = "training"
    BUSY = "busy"
    INTERACTIVE = "interactive"
    WAITING = "waiting"
    STOPPED = "stopped"
    SILENT = "silent"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Pause:
    """What a process reports about itself while it makes no steps.

    ``quiet``: seconds since its last step; ``still_seconds``: seconds without any sign of life,
    ``limit``: the number of such seconds that is unusual for it; ``is_stalled``: it has been still
    for longer. ``line``: the line of the user's code; ``waits_in``: the call in which the process
    waits for other ranks. ``stacks``: the file with its stacks.
    """

    state: RankState
    is_stalled: bool
    quiet: float
    still_seconds: float
    limit: float
    line: str = ""
    waits_in: str = ""
    stacks: str = ""


@dataclass(frozen=True, slots=True)
class Rank:
    """The last report of a process. ``pause`` is None while it makes steps.

    ``heard_at``: when hopsd first read this report; ``written_at``: when it was written, by the
    clock of the file server, which is the same for all ranks.
    """

    job: JobId
    node: NodeName
    rank: int
    world: int
    pid: int
    program: str
    ended: bool
    pause: Pause | None
    heard_at: float
    written_at: float
