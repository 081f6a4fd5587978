"""A site's own job_submit.lua calls ours: a marked block at its end, after the site's functions.

Ours then has the site's rules run first, and itself only for jobs that they accept.
"""

from __future__ import annotations

import re
from pathlib import Path

BEGIN = "-- BEGIN hops: written by hopsctl setup, taken out by hopsctl setup --undo"
END = "-- END hops"

_BLOCK = re.compile(rf"\n?{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.DOTALL)
_COMMENT = re.compile(r"--\[(=*)\[.*?\]\1\]|--[^\n]*", re.DOTALL)
_LAST_RETURN = re.compile(r"^return\b[^\n]*\s*\Z", re.MULTILINE)
_CALL = re.compile(r"""\bdofile\s*\(?\s*["']([^"']*job_submit\.lua)["']""")
_FUNCTION = re.compile(r"\bslurm_job_(?:submit|modify)\s*(?:\(|=\s*function)")


def is_ours(text: str) -> bool:
    """Whether a job_submit.lua is hops' own, of whatever release."""
    return text.startswith("-- hops: ")


def without_call(text: str) -> str:
    return _BLOCK.sub("", text)


def with_call(text: str, plugin: Path) -> str:
    """The text with a call of ``plugin`` at its end, which replaces an existing block."""
    rest = without_call(text)
    block = f'\n{BEGIN}\ndofile("{plugin}")\n{END}\n'
    if found := _LAST_RETURN.search(_blanked(rest)):
        return rest[: found.start()] + block + rest[found.start() :]
    return rest + ("" if rest.endswith("\n") or not rest else "\n") + block


def called(text: str) -> Path | None:
    """The plugin that the script calls; None: it calls none."""
    found = _last_call(text)
    return Path(found[1]) if found else None


def call_problem(text: str, plugin: Path) -> str | None:
    """Why a site's own script does not work with hops; None if it does."""
    found = _last_call(text)
    remedy = "hopsctl setup --only plugin"
    if found is None:
        return f"the site's own, and does not call {plugin}: run {remedy}"
    if not Path(found[1]).is_file():
        return f"calls {found[1]}, which is not there; slurmctld does not start: run {remedy}"
    if any(one.start() > found.start() for one in _FUNCTION.finditer(_blanked(text))):
        return (
            f"calls {found[1]} before its own rules, which then see jobs without their options:"
            " move the call to the end of the script"
        )
    return None


def _last_call(text: str) -> re.Match[str] | None:
    calls = list(_CALL.finditer(_blanked(text)))
    return calls[-1] if calls else None


def _blanked(text: str) -> str:
    """The text with blanks in place of comments: every character stays where it is."""
    return _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)
