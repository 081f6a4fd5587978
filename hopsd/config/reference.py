"""Renders the schema: the reference file, the documentation's tables, the settings in force."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ClusterShell.NodeSet import NodeSet

from hopsd.config.option import Option, options
from hopsd.config.schema import SECTIONS, Config


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force. ``origin`` is ``file`` or ``default``; passwords are hidden."""

    section: str
    key: str
    value: Any
    origin: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}"


def options_by_path() -> dict[str, Option]:
    """Every setting by its path, such as ``plan.policy``, in the schema's order."""
    return {
        f"{section}.{option.key}": option
        for section, kind in SECTIONS.items()
        for option in options(kind)
    }


def settings(config: Config) -> Iterator[Setting]:
    """Every setting of ``config``, in the schema's order, including its tables."""
    for section, kind in SECTIONS.items():
        values = getattr(config, section)
        for option in options(kind):
            value = option.plain(getattr(values, option.name))
            is_explicit = f"{section}.{option.key}" in config.explicit_keys
            yield Setting(section, option.key, value, "file" if is_explicit else "default")
    for workload, types in config.throughput.items():
        for gpu_type, table in types.items():
            section = f"throughput.{toml_key(workload)}.{toml_key(gpu_type)}"
            for key, speeds in (
                ("aggregated", table.aggregated),
                ("distributed", table.distributed),
            ):
                if speeds:
                    speeds_by_count = {str(count): speed for count, speed in speeds.items()}
                    yield Setting(section, key, speeds_by_count, "file")
    for gpu_type, bandwidth in config.bandwidth.items():
        section = f"bandwidth.{toml_key(gpu_type)}"
        yield Setting(section, "b_link", bandwidth.b_link, "file")
        yield Setting(section, "b_net", bandwidth.b_net, "file")
    for rack, nodes in config.racks.items():
        yield Setting("racks", toml_key(rack), str(NodeSet.fromlist(nodes)), "file")


def toml(config: Config) -> str:
    """Render ``config`` as a file that sets every key; passwords are hidden."""
    lines: list[str] = []
    section = ""
    for setting in settings(config):
        if setting.section != section:
            section = setting.section
            lines += ["", f"[{section}]"]
        line = f"{setting.key} = {toml_value(setting.value)}"
        lines.append(f"{line}  # {setting.origin}")
    return "\n".join(lines[1:])


def reference_file() -> str:
    """conf/hopsd.toml: every setting with its default, commented out."""
    parts = [_HEAD]
    for section, kind in SECTIONS.items():
        parts.append(f"\n[{section}]\n# {_summary(kind)}")
        parts += [_reference_entry(option) for option in options(kind)]
    parts += tables()
    return "\n".join(parts)


def documentation(text: str) -> str:
    """Regenerate the part of ``text`` after the mark: a table for each section."""
    return text.partition(MARK)[0] + MARK + "\n\n" + _tables()


def _tables() -> str:
    parts = []
    for section, kind in SECTIONS.items():
        parts.append(f"## `[{section}]`\n\n{_summary(kind)}\n")
        parts.append("| key | default | accepted | what it does |\n|---|---|---|---|")
        parts += [
            f"| `{option.key}` | `{_default(option)}` | {option.accepted_values} | {option.doc} |"
            for option in options(kind)
        ]
        parts.append("")
    return "\n".join(parts)[:-1] + "\n"


def toml_value(value: Any) -> str:
    """Render ``value`` as TOML, which is JSON except for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    # JSON does not escape DEL, which TOML does not accept.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare and not key.isdigit() else toml_value(key)


def tables() -> tuple[str, ...]:
    """The reference file's text about the sections whose keys the site chooses."""
    return _THROUGHPUT, _BANDWIDTH, _RACKS


def _default(option: Option) -> str:
    return toml_value(option.plain(option.default))


def _summary(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _reference_entry(option: Option) -> str:
    text = f"{option.doc} Accepted: {option.accepted_values}."
    comment = textwrap.indent(textwrap.fill(text, 90), "# ")
    return f"\n{comment}\n#{option.key} = {_default(option)}"


MARK = "<!-- Below: written by python -m hopsd.config -->"

_HEAD = """\
# Configuration of hopsd, with every setting at its default. To change one, remove the # in
# front of it. `hopsctl config check` reports what is wrong in a file, `hopsctl config show` what
# is in force. systemctl reload hopsd loads a changed file."""

_THROUGHPUT = """
# Speeds known in advance: samples per second per GPU of a workload on a GPU type, by GPU count
# in one server (aggregated) and by server count when spread (distributed). Between two counts
# hops interpolates linearly, outside them the nearest holds. No measurement changes these tables.
# The speeds of a workload without a table here are learnt from what its jobs report.
#
#[throughput.resnet50.rtx3090]
#aggregated = { "1" = 100.0, "2" = 98.0, "8" = 90.0 }
#distributed = { "2" = 70.0, "3" = 65.0 }
"""

_BANDWIDTH = """\
# Parameters per second between the GPUs of one server and between servers, for the model of
# communication (eq. 2 of the paper). For a type without a table here, calibration's result is used.
#
#[bandwidth.rtx3090]
#b_link = 2.5e9
#b_net = 1.1e9
"""

_RACKS = """\
# Which nodes are in one rack, as host lists. Nodes not named here count as one further rack.
# Where Slurm knows no switches or blocks, --switches and --segment count racks. themis assumes
# that a job not measured across racks is slower there (1.3 instead of 1.1).
#
#[racks]
#r1 = "n[0-15]"
#r2 = "n[16-31]"
"""
