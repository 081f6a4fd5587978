"""Why a job waits, given by the stage that decided it."""

from __future__ import annotations

import re
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


_PLURAL_END = re.compile(r"s\b")


def count_of(number: float, things: str) -> str:
    """Such as ``2 GPUs`` or ``1 GPU``; ``things``: a regular plural, or a phrase with one.

    Of a phrase, such as ``GPU minutes to run``, the first word that ends in s is the plural.
    """
    shown = f"{number:.12g}" if isinstance(number, float) else str(number)
    return f"{shown} {_PLURAL_END.sub('', things, count=1) if number == 1 else things}"
