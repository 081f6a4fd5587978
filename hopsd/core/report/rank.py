"""A process of a training, as its reports show whether it moves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hopsd.model.ids import JobId, NodeName


class RankState(StrEnum):
    """What a rank does. ``TRAINING``: it makes its steps. ``BUSY``: none, but its process works.
    ``INTERACTIVE``: somebody debugs it. ``WAITING``: for other ranks, without a sign of life;
    ``STOPPED``: elsewhere. ``SILENT``: its process does not answer. ``ENDED``: it is over.
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
    """What a process says of itself while it makes no steps.

    ``quiet``: seconds since its last step; ``still_seconds``: seconds without any sign of life,
    ``limit``: how many are unusual for it; ``is_stalled``: it was still for longer. ``line``: of
    the user's code; ``waits_in``: the call in which it waits for other ranks. ``stacks``: the file
    of its stacks.
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
    """The last word of a process. ``pause`` None: it makes steps. ``heard_at``: when hopsd first
    read this word; ``written_at``: when it was written, by the clock of the file server, the same
    for all ranks.
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
