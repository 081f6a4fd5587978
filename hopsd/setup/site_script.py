"""Adds a call of our job_submit.lua to a site's script, as a marked block at its end.

Our script then runs the site's rules first, and its own only for jobs that those accept.
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
    """Whether a job_submit.lua is hops' own, of any release."""
    return text.startswith("-- hops: ")


def without_call(text: str) -> str:
    return _BLOCK.sub("", text)


def with_call(text: str, plugin: Path) -> str:
    """Add a call of ``plugin`` at the end of the text, in place of an existing block."""
    site_text = without_call(text)
    block = f'\n{BEGIN}\ndofile("{plugin}")\n{END}\n'
    if match := _LAST_RETURN.search(_without_comments(site_text)):
        return site_text[: match.start()] + block + site_text[match.start() :]
    return site_text + ("" if site_text.endswith("\n") or not site_text else "\n") + block


def called_plugin(text: str) -> Path | None:
    """The plugin that the script calls, if any."""
    match = _last_call(text)
    return Path(match[1]) if match else None


def call_problem(text: str, plugin: Path) -> str | None:
    """Why a site's script does not work with hops; None if it does."""
    call = _last_call(text)
    remedy = "hopsctl setup --only plugin"
    if call is None:
        return f"the site's own, and does not call {plugin}: run {remedy}"
    if not Path(call[1]).is_file():
        return f"calls {call[1]}, which does not exist; slurmctld does not start: run {remedy}"
    functions = _FUNCTION.finditer(_without_comments(text))
    if any(function.start() > call.start() for function in functions):
        return (
            f"calls {call[1]} before its own rules, which then see jobs without their options:"
            " move the call to the end of the script"
        )
    return None


def _last_call(text: str) -> re.Match[str] | None:
    calls = list(_CALL.finditer(_without_comments(text)))
    return calls[-1] if calls else None


def _without_comments(text: str) -> str:
    """Blank the comments in the text; all positions stay the same."""
    return _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)
