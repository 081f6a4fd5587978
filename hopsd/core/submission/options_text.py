"""Parses the script's own sbatch options, as passed on by job_submit.lua.

``slurm_plugin/job_submit.lua`` reads the options when a job is submitted and stores them in the
admin comment: ``hops:asks|shape:even|per_node:4|tasks:1/1|cores:8/1``. Options that Slurm itself
records (features, excluded nodes, reservation, memory) are in the job's own fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from hopsd.core.submission.nodelist import node_names
from hopsd.model import bounds
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.rules import ShapeRule
from hopsd.model.script_options import NO_OPTIONS, SIGNALS, ScriptOptions

MARK = "hops:asks"

_NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT", "1": "HUP"}
_SECONDS = 60
"""How long before the end Slurm sends a signal if ``--signal`` names no time."""

_OPTION = re.compile(r"\{?(?:([RB]*):)?(?:SIG)?(\w+?)(?:@(\d{1,5}))?\}?", re.IGNORECASE)
_WHOLE = re.compile(r"[1-9][0-9]{0,11}")
_SECONDS_WORD = re.compile(r"[0-9]{1,12}")
_RATIO = re.compile(r"([1-9][0-9]{0,11})/([1-9][0-9]{0,11})")


@lru_cache(maxsize=8192)
def read_script_options(admin_comment: str) -> ScriptOptions:
    """Parse the options. Other text is ignored, since administrators write there, too."""
    for word in admin_comment.split():
        mark, *pairs = word.split("|")
        if mark == MARK:
            return _options(
                {key: value for key, _, value in (pair.partition(":") for pair in pairs)}
            )
    return NO_OPTIONS


def with_signal(options: ScriptOptions, option: str) -> ScriptOptions:
    """Replace the signal of ``options`` with the value of a ``--signal``, such as ``B:USR1@60``.

    A signal that nobody traps (KILL) counts as none, as in ``job_submit.lua``.
    """
    match = _OPTION.fullmatch(option.strip("\"'"))
    if match is None:
        return options
    flags, word, seconds = match[1] or "", match[2].upper(), match[3]
    name = _NUMBERS.get(word, word)
    if name not in SIGNALS:
        return options
    return replace(
        options,
        signal=name,
        signal_steps="B" not in flags.upper(),
        signal_seconds=int(seconds or _SECONDS) or None,
    )


def _options(pairs: Mapping[str, str]) -> ScriptOptions:
    shape = pairs.get("shape", "")
    switches, _, wait = pairs.get("switches", "").partition("@")
    segments = pairs.get("segments", "").split(",")
    time_min = _whole_number(pairs.get("time_min"))
    target, name, seconds = (*pairs.get("signal", "").split(":", 2), "", "", "")[:3]
    return ScriptOptions(
        shape=ShapeRule(shape) if shape in tuple(ShapeRule) else None,
        per_node=_whole_number(pairs.get("per_node")) if shape == ShapeRule.EVEN else None,
        tasks_per_gpu=_ratio(pairs.get("tasks")),
        tasks_each=_whole_number(pairs.get("tasks_each")) or 1,
        cores_per_gpu=_ratio(pairs.get("cores")),
        memory_mb_per_gpu=_whole_number(pairs.get("memory")),
        memory_mb_per_core=_whole_number(pairs.get("per_core")),
        whole_memory=pairs.get("memory") == "node",
        default_memory=pairs.get("memory") == "default",
        exclusive=pairs.get("exclusive") == "yes",
        gpu_type=GpuType(pairs["type"]) if pairs.get("type") else None,
        gres=pairs.get("gres", ""),
        disk_mb=_whole_number(pairs.get("disk")) or 0,
        nodes=_nodes(pairs.get("nodes")),
        signal=name if name in SIGNALS else "",
        signal_steps=name in SIGNALS and target == "steps",
        signal_seconds=_whole_number(seconds) if name in SIGNALS else None,
        traps=frozenset(pairs["traps"].split(",")) - {"none"} if pairs.get("traps") else None,
        ends=frozenset(filter(None, pairs.get("ends", "").split(","))),
        ranks=_whole_number(pairs.get("ranks")),
        switches=_whole_number(switches),
        switches_seconds=int(wait) if _SECONDS_WORD.fullmatch(wait) else None,
        segment=_whole_number(pairs.get("segment")),
        spread_segments="spread" in segments,
        consolidate_segments="consolidate" in segments,
        starts=frozenset(filter(None, pairs.get("starts", "").split(","))),
        repeats=frozenset(filter(None, pairs.get("repeats", "").split(","))),
        preempt=pairs.get("preempt") == "yes",
        time_min_seconds=None if time_min is None else 60.0 * time_min,
    )


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and _WHOLE.fullmatch(text) else None


def _ratio(text: str | None) -> Fraction | None:
    match = _RATIO.fullmatch(text or "")
    return Fraction(int(match[1]), int(match[2])) if match else None


def _nodes(text: str | None) -> frozenset[NodeName] | None:
    if not text:
        return None
    try:
        return frozenset(node_names(text, int(bounds.NAMED_NODES.maximum)))
    except ValueError:
        return frozenset()  # no node: the request cannot be met
