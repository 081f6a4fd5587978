"""The job comment that asks hops for GPUs: ``hops:reqs=1,2,4,8;samples=1.28e9;lr=0.1@1``.

``slurm_plugin/job_submit.lua`` accepts and rejects the same texts: change both together; both are
tested with ``tests/plugin/comment_cases.json``. Only ASCII can be accepted, so characters and bytes
are the same on both sides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from hopsd.errors import CommentError, InputError
from hopsd.model import bounds
from hopsd.model.bounds import Bound
from hopsd.model.ids import AppName, WorkloadName
from hopsd.model.rules import ShapeRule

PREFIX = "hops:"
DEFAULT_RANGE_VALUES = 8
BLANKS = " \t"

T = TypeVar("T")

_OURS = re.compile(
    r"(?:^|(?<=[ \t;,]))hops:[ \t]*"
    r"((?:[^ \t]|(?<=[;=,])[ \t]+|[ \t]+(?=[;=,])|[ \t]+$)*)",
    re.DOTALL,
)
_WHOLE = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORKLOAD = re.compile(r"[A-Za-z0-9._-]{1,64}")
_APP = re.compile(r"([A-Za-z0-9._-]{1,64})(?::([1-9][0-9]{0,2}))?")


class NotOursError(InputError):
    """The comment has no ``hops:``, so hops does not handle the job."""


class LrRule(StrEnum):
    """How the learning rate follows the GPU count (section 2.2 of the paper)."""

    LINEAR = "linear"
    SQRT = "sqrt"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Comment:
    """What a job asks for. ``reqs`` ascending GPU counts; ``batch_size`` samples per GPU.

    ``lr`` as given, by GPU count; a plain rate applies to the smallest requirement. ``cpu``: it may
    run on CPU devices instead of GPUs, in the counts of ``reqs``. ``app``: the hyper-parameter
    search that it belongs to; ``phase``: its phase in that, 0: none.
    ``shape``, and ``per_node`` GPUs on each node; None: as in the script's own options.
    ``profile``: its user lets hops run it briefly on one GPU of each type to measure its speed.
    """

    reqs: tuple[int, ...]
    samples: float | None = None
    batch_size: int | None = None
    lr: Mapping[int, float] = field(default_factory=dict)
    lr_rule: LrRule = LrRule.NONE
    preempt: bool = True
    workload: WorkloadName | None = None
    cpu: bool = False
    app: AppName | None = None
    phase: int = 0
    shape: ShapeRule | None = None
    per_node: int | None = None
    profile: bool = False


def is_ours(text: str) -> bool:
    """Whether a comment requests hops."""
    return our_part(text) is not None


def our_part(text: str) -> str | None:
    """The text after ``hops:`` in a comment that may also hold other text; None without it.

    It starts at the beginning or after a blank, ``;`` or ``,``. It extends to the end, or to the
    first blanks not next to ``;``, ``=`` or ``,``: ``laion; hops:reqs=8, 16 other``.
    """
    found = _OURS.search(text)
    return found and found[1]


def parse(text: str, *, range_values: int = DEFAULT_RANGE_VALUES) -> Comment:
    """Parse a job's comment; ``range_values``: how many counts a range without ``num`` gives.

    Raises:
        NotOursError: there is no ``hops:`` in the text.
        CommentError: a bad text; the message is one line with key, value and what is accepted.
    """
    ours = our_part(text)
    if ours is None:
        raise NotOursError(f"{_shown(text)} is not a hops comment: there is no 'hops:' in it")
    if not bounds.COMMENT_CHARACTERS.holds(len(text)):
        raise CommentError(
            f"the comment has {len(text)} characters; accepted are at most"
            f" {bounds.COMMENT_CHARACTERS.maximum}"
        )
    pairs = _pairs(ours)
    if "reqs" not in pairs:
        raise CommentError("reqs is missing; accepted is a comment such as 'hops:reqs=1,2,4,8'")
    num = _given(pairs, "num", lambda v: _whole("num", v, bounds.RANGE_COUNTS))
    reqs = _reqs(pairs["reqs"], num, range_values)
    app, phase = read_app(pairs["app"]) if "app" in pairs else (None, 0)
    per_node = _given(pairs, "per_node", lambda v: _gpus("per_node", v, v))
    shape = _given(pairs, "shape", lambda v: ShapeRule(_choice("shape", v, tuple(ShapeRule))))
    if per_node is not None:
        shape = _even(pairs, shape, per_node)
    return Comment(
        reqs=reqs,
        samples=_given(pairs, "samples", lambda v: _decimal("samples", v, bounds.SAMPLES)),
        batch_size=_given(pairs, "batch", lambda v: _whole("batch", v, bounds.BATCH)),
        lr=_lr(pairs["lr"], reqs[0]) if "lr" in pairs else {},
        lr_rule=LrRule(_choice("lr_rule", pairs.get("lr_rule", "none"), tuple(LrRule))),
        preempt=_choice("preempt", pairs.get("preempt", "yes"), ("yes", "no")) == "yes",
        workload=_given(pairs, "workload", _workload),
        cpu=_choice("cpu", pairs.get("cpu", "no"), ("yes", "no")) == "yes",
        app=app,
        phase=phase,
        shape=shape,
        per_node=per_node,
        profile=_choice("profile", pairs.get("profile", "no"), ("yes", "no")) == "yes",
    )


def spread_over_range(low: int, high: int, num: int) -> tuple[int, ...]:
    """At most ``num`` evenly spaced whole numbers from ``low`` to ``high``, both included.

    Halves round up, duplicates are dropped. If ``num`` exceeds the range, all its numbers result:
    with a spacing below 1 every whole number is the nearest to some point.
    """
    steps = min(num - 1, high - low)
    if steps == 0:
        return (low,)
    return tuple(
        sorted({low + (2 * (high - low) * i + steps) // (2 * steps) for i in range(steps + 1)})
    )


def learning_rate(comment: Comment, gpus: int) -> float | None:
    """The rate on ``gpus`` GPUs: the one given for that count, else scaled from the nearest below.

    ``linear``: lr x k, ``sqrt``: lr x sqrt k with k = gpus / reference GPUs, ``none``: as it
    is. None where the user gave no rate.
    """
    if not comment.lr:
        return None
    reference = max((given for given in comment.lr if given <= gpus), default=min(comment.lr))
    rate, ratio = comment.lr[reference], gpus / reference
    scale: Mapping[LrRule, Callable[[float], float]] = {
        LrRule.LINEAR: lambda k: k,
        LrRule.SQRT: math.sqrt,
        LrRule.NONE: lambda _: 1.0,
    }
    return rate * scale[comment.lr_rule](ratio)


KEYS = (
    *("reqs", "num", "samples", "batch", "lr", "lr_rule", "preempt", "workload", "cpu", "app"),
    *("shape", "per_node", "profile"),
)


def _given(pairs: Mapping[str, str], key: str, read: Callable[[str], T]) -> T | None:
    return read(pairs[key]) if key in pairs else None


def _pairs(body: str) -> dict[str, str]:
    pieces = [piece.strip(BLANKS) for piece in body.split(";")]
    if len(pieces) > 1 and not pieces[-1]:
        pieces.pop()  # a trailing ';' ends the last pair
    pairs: dict[str, str] = {}
    for piece in pieces if body.strip(BLANKS) else ():
        key, equals, value = (part.strip(BLANKS) for part in piece.partition("="))
        if not equals:
            raise CommentError(f"{_shown(piece)} has no '='; accepted is key=value joined by ';'")
        if key not in KEYS:
            raise CommentError(f"key {_shown(key)} is unknown; accepted are {', '.join(KEYS)}")
        if key in pairs:
            raise CommentError(f"{key}={_shown(value)} is the second {key}; accepted is one")
        pairs[key] = value
    return pairs


def _reqs(value: str, num: int | None, range_values: int) -> tuple[int, ...]:
    low, dash, high = value.partition("-")
    if dash:
        first, last = _gpus("reqs", low, value), _gpus("reqs", high, value)
        if first > last:
            raise _bad("reqs", value, "a range min-max with min not above max")
        return spread_over_range(first, last, range_values if num is None else num)
    if num is not None:
        raise CommentError(
            f"num={num} goes with a range only; accepted are reqs=min-max with num, "
            f"or a list such as reqs={_shown(value, quoted=False)} without"
        )
    return tuple(sorted({_gpus("reqs", item, value) for item in value.split(",")}))


def _even(pairs: Mapping[str, str], shape: ShapeRule | None, per_node: int) -> ShapeRule:
    if shape not in (None, ShapeRule.EVEN):
        raise CommentError(
            f"per_node={per_node} with shape={shape}; accepted is shape=even with it"
        )
    low, dash, high = pairs["reqs"].partition("-")
    if dash:
        found = int(high) - int(high) % per_node >= int(low)
    else:
        found = any(int(count) % per_node == 0 for count in pairs["reqs"].split(","))
    if not found:
        raise CommentError(
            f"reqs={_shown(pairs['reqs'])} has no multiple of per_node={per_node};"
            f" accepted is one at least, such as reqs={2 * per_node}"
        )
    return ShapeRule.EVEN


def _lr(value: str, smallest: int) -> dict[int, float]:
    if ":" not in value:
        rate, at, gpus = value.partition("@")
        return {_gpus("lr", gpus, value) if at else smallest: _rate(rate, value)}
    rates: dict[int, float] = {}
    for item in value.split(","):
        gpus, _, rate = item.partition(":")
        count = _gpus("lr", gpus, value)
        if count in rates:
            raise _bad("lr", value, f"one rate for {count} GPUs")
        rates[count] = _rate(rate, value)
    return rates


def _rate(item: str, value: str) -> float:
    return _decimal("lr", item, bounds.LEARNING_RATE, value)


def _gpus(key: str, item: str, value: str) -> int:
    return _whole(key, item, bounds.GPUS, value)


def _whole(key: str, item: str, bound: Bound, value: str | None = None) -> int:
    text = item.strip(BLANKS)
    if not _WHOLE.fullmatch(text) or not bound.holds(int(text)):
        raise _bad(key, item if value is None else value, _ACCEPTED[key])
    return int(text)


def _decimal(key: str, item: str, bound: Bound, value: str | None = None) -> float:
    text = item.strip(BLANKS)
    if not _DECIMAL.fullmatch(text) or not bound.holds(float(text)):
        raise _bad(key, item if value is None else value, _ACCEPTED[key])
    return float(text)


def _choice(key: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise _bad(key, value, " or ".join(choices))
    return value


def _workload(value: str) -> WorkloadName:
    if not _WORKLOAD.fullmatch(value):
        raise _bad("workload", value, _NAME)
    return WorkloadName(value)


def read_app(value: str) -> tuple[AppName, int]:
    """Parse ``NAME`` or ``NAME:PHASE``; the phase is 0 by default.

    Raises:
        CommentError: it is neither.
    """
    found = _APP.fullmatch(value)
    if not found:
        raise _bad("app", value, f"{_NAME}; if it has phases, then ':' and 1 to 999, as in lm:2")
    return AppName(found[1]), int(found[2] or 0)


_NAME = "1 to 64 of the letters A-Z a-z, digits, '.', '_' and '-'"
_ACCEPTED = {
    "reqs": f"GPU counts from {bounds.GPUS} joined by ',' or one range such as 1-16",
    "per_node": f"GPUs on each node, from {bounds.GPUS}",
    "num": f"a whole number from {bounds.RANGE_COUNTS}",
    "samples": f"a number from {bounds.SAMPLES}, such as 1.28e9",
    "batch": f"a whole number from {bounds.BATCH}",
    "lr": "a rate 0.1, one for a GPU count 0.1@4, or one a count 1:0.1,2:0.18, each from"
    f" {bounds.LEARNING_RATE}",
}


def _bad(key: str, value: str, accepted: str) -> CommentError:
    return CommentError(f"{key}={_shown(value)} is refused; accepted is {accepted}")


def _shown(text: str, *, quoted: bool = True) -> str:
    """One printable line of at most 80 characters, whatever the user sent."""
    short = text if len(text) <= 80 else text[:77] + "..."
    return ascii(short) if quoted else ascii(short)[1:-1]
