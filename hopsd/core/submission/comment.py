"""The job comment that asks hops for GPUs: ``hops:reqs=1,2,4,8;samples=1.28e9;lr=0.1@1``.

``slurm_plugin/job_submit.lua`` accepts and refuses the same texts with the same messages: change
both together. ``tests/plugin/test_comment.py`` compares them, message by message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hopsd.errors import CommentError, InputError
from hopsd.model import bounds
from hopsd.model.bounds import ValueRange
from hopsd.model.ids import AppName, WorkloadName
from hopsd.model.rules import ShapeRule

PREFIX = "hops:"
DEFAULT_RANGE_VALUES = 8
BLANKS = " \t"

_OURS = re.compile(
    r"(?:^|(?<=[ \t;,]))hops:[ \t]*"
    r"((?:[^ \t]|(?<=[;=,])[ \t]+|[ \t]+(?=[;=,])|[ \t]+\Z)*)",
    re.DOTALL,
)
_NEAR_PREFIX = re.compile(
    r"(?:^|[ \t;,])hops?[ \t]*[:=;]|(?:^|[ \t;,:._-])reqs?[ \t]*=[ \t]*[0-9]",
    re.IGNORECASE | re.ASCII,
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
    """What a job asks for. ``reqs``: ascending GPU counts; ``batch_size``: samples per GPU.

    ``lr``: as given, by GPU count; a plain rate applies to the smallest requirement. ``cpu``: the
    job may run on CPU devices instead of GPUs, in the counts of ``reqs``. ``app``: the job's
    hyper-parameter search; ``phase``: its phase there, 0 if none. ``shape``, and ``per_node`` GPUs
    on each node; None for the script's own options. ``profile``: the user lets hops run the job
    briefly on one GPU of each type to measure its speed. ``segment``: the number of nodes in each
    group within one rack, None as in the script. ``interactive``: somebody waits for the job (srun,
    salloc, Jupyter), and it is never moved.
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
    segment: int | None = None
    interactive: bool = False

    def up_to(self, gpus: int | None) -> Comment:
        """Drop requirements above ``gpus`` (None: no bound); keep all if none would be left."""
        smaller = tuple(count for count in self.reqs if gpus is None or count <= gpus)
        return replace(self, reqs=smaller) if 0 < len(smaller) < len(self.reqs) else self


def is_ours(text: str) -> bool:
    """Whether a comment requests hops."""
    return our_part(text) is not None


def our_part(text: str) -> str | None:
    """Return the text after ``hops:`` in a comment that may also have other text; None without it.

    ``hops:`` is at the beginning or after a blank, ``;`` or ``,``. The part extends to the end, or
    to the first blanks not next to ``;``, ``=`` or ``,``: ``laion; hops:reqs=8, 16 other``.
    """
    match = _OURS.search(text)
    return match and match[1]


def unread_part(text: str) -> str:
    """Return the text that follows our part and looks like more of it, "" if there is none.

    For ``hops:reqs=1 2,4`` it is ``2,4``. Other text may follow, as in ``hops:reqs=1 night run``.
    """
    match = _OURS.search(text)
    if match is None:
        return ""
    remainder = text[match.end() :].strip(BLANKS)
    last_key = match[1].rpartition(";")[2].partition("=")[0].strip(BLANKS)
    is_more = last_key in _TEXT_KEYS or _COUNT_FIRST.match(remainder) or _PAIR.search(remainder)
    return remainder if remainder and is_more else ""


def remark(text: str) -> str:
    """Return what the user should know about a comment that is not refused; "" if nothing."""
    if is_ours(text):
        remainder = unread_part(text)
        return remainder and (
            f"not read: {_printable(remainder)}; the part for hops ends at the first blank that"
            " is not next to ';', '=' or ','"
        )
    if is_ours(text.lower()):
        return "an ordinary job: write hops: in small letters to have hops place it"
    if _NEAR_PREFIX.search(text):
        return "an ordinary job: to have hops place it, begin the comment with hops:reqs="
    return ""


def parse(text: str, *, range_values: int = DEFAULT_RANGE_VALUES) -> Comment:
    """Parse a job's comment; ``range_values``: how many counts a range without ``num`` gives.

    Raises:
        NotOursError: there is no ``hops:`` in the text.
        CommentError: the text is bad; the message is one line with key, value and what to write.
    """
    body = our_part(text)
    if body is None:
        raise NotOursError(f"{_printable(text)} is not a hops comment: there is no 'hops:' in it")
    length = len(text.encode(errors="surrogatepass"))
    if not bounds.COMMENT_CHARACTERS.holds(length):
        raise CommentError(
            f"the comment has {length} characters: write at most"
            f" {bounds.COMMENT_CHARACTERS.maximum}"
        )
    pairs = _pairs(body)
    _check_together(pairs)
    num = _whole_number(pairs["num"], bounds.RANGE_COUNTS) if "num" in pairs else range_values
    reqs = _reqs(pairs["reqs"], num)
    app, phase = read_app(pairs["app"]) if "app" in pairs else (None, 0)
    per_node = _gpus(pairs["per_node"]) if "per_node" in pairs else None
    shape = ShapeRule(pairs["shape"]) if "shape" in pairs else None
    interactive = pairs.get("interactive", "no") == "yes"
    return Comment(
        reqs=reqs,
        samples=_decimal(pairs["samples"], bounds.SAMPLES) if "samples" in pairs else None,
        batch_size=_whole_number(pairs["batch"], bounds.BATCH) if "batch" in pairs else None,
        lr=_rates(pairs["lr"], reqs[0]) if "lr" in pairs else {},
        lr_rule=LrRule(pairs.get("lr_rule", "none")),
        preempt=pairs.get("preempt", "yes") == "yes" and not interactive,
        workload=WorkloadName(pairs["workload"]) if "workload" in pairs else None,
        cpu=pairs.get("cpu", "no") == "yes",
        app=app,
        phase=phase,
        shape=ShapeRule.EVEN if per_node is not None else shape,
        per_node=per_node,
        profile=pairs.get("profile", "no") == "yes",
        segment=_gpus(pairs["segment"]) if "segment" in pairs else None,
        interactive=interactive,
    )


def spread_over_range(low: int, high: int, num: int) -> tuple[int, ...]:
    """Return at most ``num`` evenly spaced whole numbers from ``low`` to ``high``, both included.

    Halves round up, duplicates are dropped. If ``num`` exceeds the range, the result is all of its
    numbers: with a spacing below 1, every whole number is the nearest to some point.
    """
    steps = min(num - 1, high - low)
    if steps == 0:
        return (low,)
    return tuple(
        sorted({low + (2 * (high - low) * i + steps) // (2 * steps) for i in range(steps + 1)})
    )


def learning_rate(comment: Comment, gpus: int) -> float | None:
    """Return the rate on ``gpus`` GPUs: as given, or else scaled from the nearest count below.

    ``linear``: lr x k, ``sqrt``: lr x sqrt k with k = gpus / reference GPUs, ``none``: unchanged.
    Returns None if the user gave no rate.
    """
    if not comment.lr:
        return None
    reference = max((count for count in comment.lr if count <= gpus), default=min(comment.lr))
    rate, ratio = comment.lr[reference], gpus / reference
    scale: Mapping[LrRule, Callable[[float], float]] = {
        LrRule.LINEAR: lambda k: k,
        LrRule.SQRT: math.sqrt,
        LrRule.NONE: lambda _: 1.0,
    }
    return rate * scale[comment.lr_rule](ratio)


def read_app(value: str) -> tuple[AppName, int]:
    """Parse ``NAME`` or ``NAME:PHASE``; the phase is 0 by default.

    Raises:
        CommentError: the value is neither.
    """
    match = _APP.fullmatch(value)
    if not match:
        raise _bad("app", value)
    return AppName(match[1]), int(match[2] or 0)


def _pairs(body: str) -> dict[str, str]:
    """Return the values by key, each of which its reader accepts."""
    pieces = [piece.strip(BLANKS) for piece in body.split(";")]
    if len(pieces) > 1 and not pieces[-1]:
        pieces.pop()  # a trailing ';' ends the last pair
    pairs: dict[str, str] = {}
    for piece in pieces if body.strip(BLANKS) else ():
        key, equals, value = (part.strip(BLANKS) for part in piece.partition("="))
        if not equals and key in _FLAGS:
            equals, value = "=", "yes"
        if not equals:
            raise CommentError(f"{_printable(piece)} has no '=': write key=value joined by ';'")
        if key not in KEYS:
            raise CommentError(_unknown(key))
        if key in pairs:
            raise CommentError(f"{key}={_printable(value)} is the second {key}: give one")
        try:
            KEYS[key].parse(value)
        except ValueError as error:
            raise _bad(key, value) from error
        pairs[key] = value
    return pairs


def _unknown(key: str) -> str:
    suggestion = next((name for name in KEYS if _normal(name) == _normal(key)), None)
    hint = f"did you mean {suggestion}? " if suggestion else ""
    return f"unknown key {_printable(key)}: {hint}The keys are {', '.join(KEYS)}"


def _normal(key: str) -> str:
    """Map ``req`` and ``reqs``, ``lr-rule`` and ``lr_rule``, ``LR`` and ``lr`` to the same text."""
    return "".join(c for c in key if c.isascii() and c.isalnum()).lower().rstrip("s")


def _check_together(pairs: Mapping[str, str]) -> None:
    """Check that pairs which are valid on their own go together.

    Raises:
        CommentError: they do not.
    """
    if "reqs" not in pairs:
        raise CommentError("reqs is missing: give the GPU counts, as in hops:reqs=1,2,4,8")
    reqs, per_node, shape = pairs["reqs"], pairs.get("per_node"), pairs.get("shape")
    if pairs.get("interactive") == "yes" and not _WHOLE.fullmatch(reqs):
        raise CommentError(
            f"reqs={_printable(reqs)} with interactive: a session keeps its GPUs, so give one count"
        )
    if "num" in pairs and "-" not in reqs:
        raise CommentError(
            f"num={_printable(pairs['num'])} goes with a range only: write reqs=min-max, or leave"
            " num out"
        )
    if per_node is None:
        return
    if shape not in (None, ShapeRule.EVEN):
        raise CommentError(
            f"per_node={per_node} with shape={shape}: leave one out, or write shape=even"
        )
    if not _has_multiple(reqs, int(per_node)):
        raise CommentError(
            f"reqs={_printable(reqs)} has no multiple of per_node={per_node}: add one, such as"
            f" {2 * int(per_node)}"
        )


def _has_multiple(reqs: str, per_node: int) -> bool:
    low, dash, high = reqs.partition("-")
    if dash:
        return int(high) - int(high) % per_node >= int(low)
    return any(int(count) % per_node == 0 for count in reqs.split(","))


def _counts(value: str) -> tuple[int, ...]:
    low, dash, high = value.partition("-")
    counts = tuple(map(_gpus, (low, high) if dash else value.split(",")))
    if dash and counts[0] > counts[1]:
        raise ValueError(value)
    return counts


def _reqs(value: str, num: int) -> tuple[int, ...]:
    counts = _counts(value)
    if "-" in value:
        return spread_over_range(counts[0], counts[1], num)
    return tuple(sorted(set(counts)))


def _rates(value: str, smallest: int = 1) -> dict[int, float]:
    """Return the learning rate by GPU count; a plain rate is for the ``smallest``."""
    if ":" not in value:
        rate, separator, gpus = value.partition("@")
        return {_gpus(gpus) if separator else smallest: _decimal(rate, bounds.LEARNING_RATE)}
    rates: dict[int, float] = {}
    for item in value.split(","):
        gpus, _, rate = item.partition(":")
        if _gpus(gpus) in rates:
            raise ValueError(value)
        rates[_gpus(gpus)] = _decimal(rate, bounds.LEARNING_RATE)
    return rates


def _gpus(item: str) -> int:
    return _whole_number(item, bounds.GPUS)


def _whole_number(item: str, bound: ValueRange) -> int:
    text = item.strip(BLANKS)
    if not _WHOLE.fullmatch(text) or not bound.holds(int(text)):
        raise ValueError(item)
    return int(text)


def _decimal(item: str, bound: ValueRange) -> float:
    text = item.strip(BLANKS)
    if not _DECIMAL.fullmatch(text) or not bound.holds(float(text)):
        raise ValueError(item)
    return float(text)


def _name(value: str) -> str:
    if not _WORKLOAD.fullmatch(value):
        raise ValueError(value)
    return value


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the comment.

    ``accepts`` completes "give ..."; ``parse`` raises ValueError for a value that is not accepted.
    """

    accepts: str
    parse: Callable[[str], object]


def _choice(*words: str) -> Key:
    def read(value: str) -> str:
        return words[words.index(value)]

    return Key(" or ".join(words), read)


_NAME = "1 to 64 of the letters A-Z a-z, digits, '.', '_' and '-'"
KEYS: Mapping[str, Key] = {
    "reqs": Key(f"GPU counts from {bounds.GPUS} joined by ',' or one range such as 1-16", _counts),
    "num": Key(
        f"a whole number from {bounds.RANGE_COUNTS}",
        lambda v: _whole_number(v, bounds.RANGE_COUNTS),
    ),
    "samples": Key(
        f"a number from {bounds.SAMPLES}, such as 1.28e9", lambda v: _decimal(v, bounds.SAMPLES)
    ),
    "batch": Key(f"a whole number from {bounds.BATCH}", lambda v: _whole_number(v, bounds.BATCH)),
    "lr": Key(
        "a rate 0.1, one for a GPU count 0.1@4, or one a count 1:0.1,2:0.18, each from"
        f" {bounds.LEARNING_RATE}",
        _rates,
    ),
    "lr_rule": _choice(*LrRule),
    "preempt": _choice("yes", "no"),
    "workload": Key(_NAME, _name),
    "cpu": _choice("yes", "no"),
    "app": Key(f"{_NAME}; if it has phases, then ':' and 1 to 999, as in lm:2", read_app),
    "shape": _choice(*ShapeRule),
    "per_node": Key(f"GPUs on each node, from {bounds.GPUS}", _gpus),
    "profile": _choice("yes", "no"),
    "segment": Key(f"nodes in a rack together, from {bounds.GPUS}", _gpus),
    "interactive": _choice("yes", "no"),
}
"""All keys; ``job_submit.lua`` has the same keys, in this order."""

_FLAGS = ("interactive",)
"""Keys that mean yes without a value."""

_TEXT_KEYS = ("workload", "app")
_COUNT_FIRST = re.compile(r"[-@:]?[ \t]*[0-9]")
_PAIR = re.compile(rf"(?:^|[ \t;,])(?:{'|'.join(KEYS)})[ \t]*=")


def _bad(key: str, value: str) -> CommentError:
    return CommentError(f"{key}={_printable(value)} is not valid: give {KEYS[key].accepts}")


def _printable(text: str) -> str:
    """Return one printable line of at most 80 bytes, whatever the user sent."""
    raw = text.encode(errors="surrogatepass")
    short = raw if len(raw) <= 80 else raw[:77] + b"..."
    return "'" + "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in short) + "'"
