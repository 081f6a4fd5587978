"""Why a job waits, given by the stage that decided it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReasonCode(StrEnum):
    OUTSIDE_WINDOW = "outside_window"
    LIMIT = "limit"
    NO_CONFIGURATION = "no_configuration"
    LOST_TO_OTHERS = "lost_to_others"
    HELD = "held"
    DEPENDENCY = "dependency"
    PROFILING = "profiling"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code for programs and a sentence for people."""

    code: ReasonCode
    text: str
