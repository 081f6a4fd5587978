"""The script's own sbatch options, as job_submit.lua passed them on.

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
from hopsd.model.asked import NOTHING_ASKED, Asked
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.rules import ShapeRule

MARK = "hops:asks"

SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP")

_NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT", "1": "HUP"}
_SECONDS = 60
"""The warning that Slurm gives where ``--signal`` names no time."""

_OPTION = re.compile(r"\{?(?:([RB]*):)?(?:SIG)?(\w+?)(?:@(\d{1,5}))?\}?", re.IGNORECASE)
_WHOLE = re.compile(r"[1-9][0-9]{0,11}")
_SECONDS_WORD = re.compile(r"[0-9]{1,12}")
_RATIO = re.compile(r"([1-9][0-9]{0,11})/([1-9][0-9]{0,11})")


@lru_cache(maxsize=8192)
def read_asked(admin_comment: str) -> Asked:
    """Parse the options. Other text is ignored: administrators write there, too."""
    for word in admin_comment.split():
        mark, *pairs = word.split("|")
        if mark == MARK:
            return _asked({key: value for key, _, value in (pair.partition(":") for pair in pairs)})
    return NOTHING_ASKED


def with_signal(asked: Asked, option: str) -> Asked:
    """What is asked, with the value of a ``--signal`` in place of its signal: ``B:USR1@60``.

    A signal that nobody traps (KILL) stands for none, as in ``job_submit.lua``.
    """
    found = _OPTION.fullmatch(option.strip("\"'"))
    if found is None:
        return asked
    flags, word, seconds = found[1] or "", found[2].upper(), found[3]
    name = _NUMBERS.get(word, word)
    if name not in SIGNALS:
        return asked
    return replace(
        asked,
        signal=name,
        signal_steps="B" not in flags.upper(),
        signal_seconds=int(seconds or _SECONDS) or None,
    )


def _asked(said: Mapping[str, str]) -> Asked:
    shape = said.get("shape", "")
    switches, _, wait = said.get("switches", "").partition("@")
    segments = said.get("segments", "").split(",")
    time_min = _whole(said.get("time_min"))
    target, name, seconds = (*said.get("signal", "").split(":", 2), "", "", "")[:3]
    return Asked(
        shape=ShapeRule(shape) if shape in tuple(ShapeRule) else None,
        per_node=_whole(said.get("per_node")) if shape == ShapeRule.EVEN else None,
        tasks_per_gpu=_ratio(said.get("tasks")),
        tasks_each=_whole(said.get("tasks_each")) or 1,
        cores_per_gpu=_ratio(said.get("cores")),
        memory_mb_per_gpu=_whole(said.get("memory")),
        memory_mb_per_core=_whole(said.get("per_core")),
        whole_memory=said.get("memory") == "node",
        default_memory=said.get("memory") == "default",
        exclusive=said.get("exclusive") == "yes",
        gpu_type=GpuType(said["type"]) if said.get("type") else None,
        gres=said.get("gres", ""),
        disk_mb=_whole(said.get("disk")) or 0,
        nodes=_nodes(said.get("nodes")),
        signal=name if name in SIGNALS else "",
        signal_steps=name in SIGNALS and target == "steps",
        signal_seconds=_whole(seconds) if name in SIGNALS else None,
        traps=frozenset(said["traps"].split(",")) - {"none"} if said.get("traps") else None,
        ends=frozenset(filter(None, said.get("ends", "").split(","))),
        ranks=_whole(said.get("ranks")),
        switches=_whole(switches),
        switches_seconds=int(wait) if _SECONDS_WORD.fullmatch(wait) else None,
        segment=_whole(said.get("segment")),
        spread_segments="spread" in segments,
        consolidate_segments="consolidate" in segments,
        starts=frozenset(filter(None, said.get("starts", "").split(","))),
        repeats=frozenset(filter(None, said.get("repeats", "").split(","))),
        time_min_seconds=None if time_min is None else 60.0 * time_min,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and _WHOLE.fullmatch(text) else None


def _ratio(text: str | None) -> Fraction | None:
    found = _RATIO.fullmatch(text or "")
    return Fraction(int(found[1]), int(found[2])) if found else None


def _nodes(text: str | None) -> frozenset[NodeName] | None:
    if not text:
        return None
    try:
        return frozenset(node_names(text, int(bounds.NAMED_NODES.maximum)))
    except ValueError:
        return frozenset()  # no node: what is asked for cannot be given
