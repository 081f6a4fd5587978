"""Parses hopsd.toml into a Config, or reports all of its errors at once."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from hopsd.config.lines import Lines
from hopsd.config.option import options
from hopsd.config.schema import DEFAULT_POLICY, PAPERS_POLICY, REMOVED_KEYS, SECTIONS, Config
from hopsd.errors import ConfigError
from hopsd.model.ids import GpuType, NodeName, RackName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Bandwidth

DEFAULT_PATH = Path("/etc/hops/hopsd.toml")


def load(path: Path | str) -> Config:
    """Load the configuration from ``path``.

    Raises:
        ConfigError: if the file cannot be read or is invalid; names every error, one per line.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{path}: {reason}; expected a readable TOML file") from error
    return parse(text, path)


def parse(text: str, path: Path | None = None) -> Config:
    """Parse the configuration in ``text``; error messages call it ``path``.

    Raises:
        ConfigError: as for `load`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = _section_twice(text, str(error))
        raise ConfigError(f"{path or 'configuration'}: not TOML: {error}{hint}") from error
    reader = _Reader(Lines(text), str(path or "configuration"))
    config = reader.config(document, path)
    if reader.errors:
        raise ConfigError("\n".join(reader.errors))
    return config


def _section_twice(text: str, error: str) -> str:
    """Return a hint that names the line of a section's first header if ``error`` says that a
    section is declared twice: the installed hopsd.toml already has all of them.
    """
    match = re.match(r"Cannot declare \('(\w+)',\) twice", error)
    if match is None:
        return ""
    lines = [line.strip() for line in text.splitlines()]
    header = f"[{match[1]}]"
    return (
        f": {header} is already in line {lines.index(header) + 1}; put the keys there"
        if (header in lines)
        else ""
    )


class _Reader:
    """Walks a document and collects its errors."""

    def __init__(self, lines: Lines, name: str) -> None:
        self._lines = lines
        self._name = name
        self._errors: list[tuple[int, str]] = []
        self._warnings: list[tuple[int, str]] = []
        self._explicit_keys: set[str] = set()

    @property
    def errors(self) -> list[str]:
        """All messages, ordered by line."""
        return [message for _, message in sorted(self._errors)]

    def config(self, document: Mapping[str, Any], path: Path | None) -> Config:
        self._refuse_unknown((), document, [*SECTIONS, "throughput", "bandwidth", "racks"])
        sections = {name: self._section(name, document.get(name, {})) for name in SECTIONS}
        throughput = self._throughput(document.get("throughput", {}))
        bandwidth = self._bandwidth(document.get("bandwidth", {}))
        racks = self._racks(document.get("racks", {}))
        config = Config(
            **sections,
            throughput=throughput,
            bandwidth=bandwidth,
            racks=racks,
            explicit_keys=frozenset(self._explicit_keys),
            path=path,
            warnings=tuple(message for _, message in sorted(self._warnings)),
        )
        daemon = config.daemon
        if daemon.refresh_seconds > daemon.round_seconds:
            self._error(
                ("daemon", "refresh_seconds"),
                f"is {daemon.refresh_seconds:g};"
                f" accepted: at most round_seconds = {daemon.round_seconds:g}",
            )
        if not config.plan.paper_exact or self._errors:
            return config
        if "plan.policy" not in self._explicit_keys:
            return replace(config, plan=replace(config.plan, policy=PAPERS_POLICY))
        if config.plan.policy == DEFAULT_POLICY:
            text = f"is {DEFAULT_POLICY}, which the paper does not have; accepted with paper_exact:"
            self._error(("plan", "policy"), f"{text} {PAPERS_POLICY}, its default, or another")
        return config

    def _section(self, name: str, table: Any) -> Any:
        section = SECTIONS[name]
        options_by_key = {option.key: option for option in options(section)}
        if not self._is_table((name,), table):
            return section()
        self._refuse_unknown((name,), table, options_by_key)
        values = {}
        for key in table.keys() & options_by_key.keys():
            option = options_by_key[key]
            try:
                values[option.name] = option.parse(table[key])
            except ValueError:
                text = "the value given" if option.secret else _display(table[key])
                self._error(
                    (name, key), f"{text} is not accepted; accepted: {option.accepted_values}"
                )
            self._explicit_keys.add(f"{name}.{key}")
        return section(**values)

    def _throughput(self, table: Any) -> Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]]:
        result: dict[WorkloadName, dict[GpuType, ThroughputTable]] = {}
        if not self._is_table(("throughput",), table):
            return result
        for workload, types in table.items():
            if not self._is_table(("throughput", workload), types):
                continue
            for gpu_type, entry in types.items():
                path = ("throughput", workload, gpu_type)
                if self._is_table(path, entry):
                    speeds = self._speeds(path, entry)
                    result.setdefault(WorkloadName(workload), {})[GpuType(gpu_type)] = speeds
        return result

    def _speeds(self, path: tuple[str, ...], table: Mapping[str, Any]) -> ThroughputTable:
        self._refuse_unknown(path, table, ["aggregated", "distributed"])
        if not table.get("aggregated"):
            self._error(path, 'needs aggregated, such as aggregated = { "1" = 100.0 }')
        self._explicit_keys.add(".".join(path))
        return ThroughputTable(
            aggregated=self._counts((*path, "aggregated"), table.get("aggregated", {}), 1),
            distributed=self._counts((*path, "distributed"), table.get("distributed", {}), 2),
        )

    def _bandwidth(self, table: Any) -> Mapping[GpuType, Bandwidth]:
        result: dict[GpuType, Bandwidth] = {}
        if not self._is_table(("bandwidth",), table):
            return result
        keys = ("b_link", "b_net")
        for gpu_type, entry in table.items():
            path = ("bandwidth", gpu_type)
            if not self._is_table(path, entry):
                continue
            self._refuse_unknown(path, entry, keys)
            for key in [key for key in keys if key not in entry]:
                self._error(path, f"needs {key}, in parameters per second")
            speeds = [self._rate((*path, key), entry[key]) for key in keys if key in entry]
            if len(speeds) == len(keys):
                result[GpuType(gpu_type)] = Bandwidth(GpuType(gpu_type), *speeds)
                self._explicit_keys.add(".".join(path))
        return result

    def _racks(self, table: Any) -> Mapping[RackName, tuple[NodeName, ...]]:
        result: dict[RackName, tuple[NodeName, ...]] = {}
        if not self._is_table(("racks",), table):
            return result
        rack_of: dict[NodeName, str] = {}
        for rack, hosts in table.items():
            nodes = _nodes(hosts)
            if not nodes:
                text = "is not accepted; accepted: a list of hosts as Slurm writes it, n[0-3,7]"
                self._error(("racks", rack), f"{_display(hosts)} {text}")
            for node in nodes:
                if node in rack_of:
                    self._error(("racks", rack), f"has {node}, which is in {rack_of[node]}")
                rack_of[node] = rack
            result[RackName(rack)] = nodes
            self._explicit_keys.add(f"racks.{rack}")
        return result

    def _counts(self, path: tuple[str, ...], table: Any, minimum: int) -> dict[int, float]:
        result: dict[int, float] = {}
        if not self._is_table(path, table):
            return result
        for key, value in table.items():
            if not (key.isascii() and key.isdigit() and int(key) >= minimum):
                text = f"is not a count; accepted: a whole number from {minimum}"
                self._error((*path, key), text)
            else:
                result[int(key)] = self._rate((*path, key), value)
        return dict(sorted(result.items()))

    def _rate(self, path: tuple[str, ...], value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._error(path, f"{_display(value)} is not accepted; accepted: a number")
        elif not (math.isfinite(value) and value > 0):
            self._error(path, f"{_display(value)} is not accepted; accepted: above 0")
        else:
            return float(value)
        return 1.0

    def _is_table(self, path: tuple[str, ...], value: Any) -> bool:
        if isinstance(value, dict):
            return True
        self._error(path, f"{_display(value)} is not accepted; accepted: a table")
        return False

    def _refuse_unknown(
        self, path: tuple[str, ...], table: Mapping[str, Any], accepted_keys: Iterable[str]
    ) -> None:
        accepted_keys = list(accepted_keys)
        for key in table.keys() - set(accepted_keys):
            if ".".join((*path, key)) in REMOVED_KEYS:
                line, place = self._location((*path, key))
                self._warnings.append(
                    (line, f"{place}: {'.'.join((*path, key))} has no effect any more; delete it")
                )
                continue
            close = difflib.get_close_matches(key, accepted_keys, n=1)
            hint = f"did you mean {close[0]}?" if close else "accepted: " + ", ".join(accepted_keys)
            self._error((*path, key), f"is unknown; {hint}")

    def _error(self, path: tuple[str, ...], text: str) -> None:
        line, place = self._location(path)
        self._errors.append((line, f"{place}: {'.'.join(path)} {text}"))

    def _location(self, path: tuple[str, ...]) -> tuple[int, str]:
        """The line of a key, 0 if unknown, and how a message names it."""
        line = self._lines.line_of(path)
        return line or 0, f"{self._name}:{line}" if line else self._name


def _nodes(hosts: Any) -> tuple[NodeName, ...]:
    """Expand a Slurm host list; empty if ``hosts`` is not one."""
    try:
        nodes = NodeSet(hosts, resolver=RESOLVER_NOGROUP) if isinstance(hosts, str) else ()
    except NodeSetException:
        return ()
    return tuple(map(NodeName, nodes))


def _display(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."
