"""Adds missing lines to slurm.conf, as a marked block at its end.

Slurm uses the last value of a key, so the block repeats the items of the site's lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

BEGIN = "# BEGIN hops: written by hopsctl setup, taken out by hopsctl setup --undo"
END = "# END hops"

PROLOGS = {"Prolog": "/etc/hops/prolog.sh", "Epilog": "/etc/hops/epilog.sh"}
REQUEUE_EXIT_CODE = "85"
SCHEDULER = {"batch_sched_delay": "0", "sched_interval": "5"}
SHORTEST_MEMORY = 60
"""MinJobAge in seconds: two of hopsd's default refreshes."""

_BLOCK = re.compile(rf"\n?{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.DOTALL)


def without_block(text: str) -> str:
    return _BLOCK.sub("", text)


def with_block(text: str, lines: Mapping[str, str]) -> str:
    """Add a block of ``lines`` at the end of the text, in place of an existing block."""
    site_text = without_block(text)
    if not lines:
        return site_text
    block = "\n".join([BEGIN, *(f"{key}={value}" for key, value in lines.items()), END])
    gap = "" if site_text.endswith("\n") or not site_text else "\n"
    return f"{site_text}{gap}\n{block}\n"


def values(path: Path, depth: int = 0) -> dict[str, str]:
    """Read the keys in lower case with their last values outside the block, also from included
    files.

    Lines of nodes and partitions are ignored, since their keys repeat.
    """
    settings: dict[str, str] = {}
    text = without_block(path.read_text(errors="replace")).replace("\\\n", " ")
    for line in text.splitlines():
        words = line.partition("#")[0].strip()
        if match := re.fullmatch(r"(?i)include\s+(\S+)", words):
            if depth < 8 and (included_file := path.parent / match[1]).is_file():
                settings |= values(included_file, depth + 1)
        elif pair := re.fullmatch(r"(\w+)\s*=\s*(\S.*)", words):
            key = pair[1].lower()
            if key not in ("nodename", "partitionname", "downnodes", "nodeset"):
                settings[key] = pair[2].strip().strip('"')
    return settings


def required_lines(conf: Mapping[str, str]) -> dict[str, str]:
    """The lines that hops needs in addition to ``conf``, which comes from :func:`values`."""
    lines = {
        "JobSubmitPlugins": _with_item(conf, "JobSubmitPlugins", "lua"),
        "RequeueExitHold": _exit_codes(conf.get("requeueexithold", "")),
        "SchedulerParameters": _parameters(conf.get("schedulerparameters", "")),
    }
    result = {key: value for key, value in lines.items() if value is not None}
    for key, path in PROLOGS.items():
        if key.lower() not in conf:
            result[key] = path
    if "jobfileappend" not in conf:
        result["JobFileAppend"] = "1"
    return result


def remarks(conf: Mapping[str, str], running: Mapping[str, str]) -> Iterator[str]:
    """Yield settings with which hops works less well, for the site to decide; ``running`` is
    slurmctld's running configuration.
    """
    for key, script in PROLOGS.items():
        site_script = conf.get(key.lower())
        if site_script is not None and site_script != script:
            yield f"{key}={site_script} is the site's own: call {script} from it and exit with 0"
    if conf.get("jobfileappend") == "0":
        yield "JobFileAppend=0: Slurm empties a job's output file each time hops moves it"
    elif "jobfileappend" not in conf:
        yield (
            "JobFileAppend=1 keeps a job's output when it is moved; plain jobs, too, now append to"
            " an existing file. A JobFileAppend=0 of your own in slurm.conf takes precedence"
        )
    if running.get("JobRequeue", "1") == "0":
        yield "JobRequeue=0: jobs that Slurm may not requeue are not moved"
    age = re.match(r"\d+", running.get("MinJobAge", ""))
    if age is not None and int(age[0]) < SHORTEST_MEMORY:
        yield f"MinJobAge={age[0]}: hopsd may miss how jobs ended; better {SHORTEST_MEMORY} or more"
    memory = "Memory" in running.get("SelectTypeParameters", "").title()
    defaults = [running.get(f"DefMemPer{unit}") for unit in ("GPU", "CPU", "Node")]
    if memory and not any(map(_is_set, defaults)):
        yield (
            "no DefMemPerGPU: a job that requests no memory gets all of its node's, and no second"
            " job fits beside it"
        )


def refusal(running: Mapping[str, str]) -> str | None:
    """Why hops cannot work with this Slurm; None if it can."""
    selector = running.get("SelectType", "")
    if selector != "select/cons_tres":
        return f"SelectType={selector}; accepted: select/cons_tres, which alone supports GPUs"
    if "gpu" not in running.get("GresTypes", "").split(","):
        return "no GresTypes=gpu: Slurm must know the nodes' GPUs before hops can place jobs"
    return None


def in_force(lines: Mapping[str, str], running: Mapping[str, str]) -> bool:
    """Whether slurmctld runs with these lines."""
    return all(
        set(value.split(",")) <= set(running.get(key, "").split(","))
        for key, value in lines.items()
    )


def _is_set(value: str | None) -> bool:
    return value not in (None, "", "UNLIMITED", "0")


def _with_item(conf: Mapping[str, str], key: str, word: str) -> str | None:
    plugins = [item.strip() for item in conf.get(key.lower(), "").split(",") if item.strip()]
    if any(item in (word, f"job_submit/{word}") for item in plugins):
        return None
    return ",".join([*plugins, word])


def _exit_codes(codes: str) -> str | None:
    for item in filter(None, codes.split(",")):
        low, _, high = item.partition("-")
        if low.isdigit() and int(low) <= int(REQUEUE_EXIT_CODE) <= int(high or low):
            return None
    return f"{codes},{REQUEUE_EXIT_CODE}" if codes else REQUEUE_EXIT_CODE


def _parameters(text: str) -> str | None:
    items = [item.strip() for item in text.split(",") if item.strip()]
    names = {item.partition("=")[0].lower() for item in items}
    missing = [f"{name}={value}" for name, value in SCHEDULER.items() if name not in names]
    return ",".join([*items, *missing]) if missing else None
