"""Parses the command line: the torchrun options that trainings use."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WITHOUT_EFFECT = {
    "monitor_interval": "1",
    "start_method": "1",
    "rdzv_conf": "1",
    "rdzv_backend": "1",
    "role": "1",
    "log_dir": "1",
    "redirects": "1",
    "tee": "1",
    "local_ranks_filter": "1",
    "event_log_handler": "1",
    "logs_specs": "1",
    "virtual_local_rank": "0",
    "signals_to_handle": "1",
}
"""torchrun's options that have no effect here, and how many values each takes. Ranks write to the
launcher's output."""


@dataclass(frozen=True)
class Options:
    """The command line. ``per_node`` and ``nodes`` are None for as many as the allocation has.
    ``arguments`` are the script and its arguments. With ``module`` the script is the name of a
    module; with ``python`` False it is an executable. ``without_effect`` names other options of
    torchrun that were given.
    """

    per_node: int | None
    nodes: int | None
    node_rank: int | None
    address: str | None
    port: int | None
    run_id: str
    restarts: int
    module: bool
    python: bool
    arguments: tuple[str, ...]
    without_effect: tuple[str, ...]


def parse(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Parse ``arguments``, without the program's name; ``PET_*`` variables are the defaults.

    Exits with code 2 and a message if they are wrong.
    """
    parser = parser_of(environ)
    values = parser.parse_args(arguments)
    address, port = values.master_addr, values.master_port
    if values.rdzv_endpoint and not values.standalone:
        host, _, number = values.rdzv_endpoint.rpartition(":")
        address, port = address or host or values.rdzv_endpoint, port or _number(parser, number)
    nodes = 1 if values.standalone else _nodes(parser, values.nnodes)
    return Options(
        per_node=_per_node(parser, values.nproc_per_node),
        nodes=nodes,
        node_rank=values.node_rank,
        address=address,
        port=port,
        run_id=values.rdzv_id or "none",
        restarts=values.max_restarts,
        module=values.module,
        python=not values.no_python,
        arguments=(values.script, *values.arguments),
        without_effect=tuple(
            name for name in _WITHOUT_EFFECT if getattr(values, name) not in (None, False)
        ),
    )


def parser_of(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Make the parser of hops-run's command line, with defaults from ``PET_*``."""
    parser = argparse.ArgumentParser(
        prog="hops-run",
        allow_abbrev=False,
        description="Run a training script, one process for each GPU of the allocation.",
        epilog="Takes torchrun's options. By default, a job uses all its GPUs on all its nodes.",
    )

    def add(name: str, **options: Any) -> None:
        names = dict.fromkeys((f"--{name}", "--" + name.replace("_", "-")))
        default = environ.get(f"PET_{name.upper()}")
        if default is not None and "action" not in options:
            options["default"] = default
        parser.add_argument(*names, dest=name, **options)

    add("nproc_per_node", metavar="N|gpu|auto", help="processes on this node; default: its GPUs")
    add("nnodes", metavar="N", help="number of nodes; default: those of the job")
    add("node_rank", type=int, metavar="K", help="number of this node, from 0")
    add("master_addr", metavar="HOST", help="where rank 0 listens; default: the first node")
    add("master_port", type=int, metavar="PORT", help="default: a free one")
    add("rdzv_endpoint", metavar="HOST:PORT", help="the same as --master-addr and --master-port")
    add("rdzv_id", metavar="NAME", help="name of the run")
    add("standalone", action="store_true", help="this node alone")
    add("max_restarts", type=int, default=0, metavar="N", help="of one node's ranks; default 0")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name")
    add("no_python", action="store_true", help="SCRIPT is an executable")
    add("run_path", action="store_true", help=argparse.SUPPRESS)
    for name, values in _WITHOUT_EFFECT.items():
        short = {"redirects": ["-r"], "tee": ["-t"]}.get(name, [])
        names = dict.fromkeys([*short, f"--{name}", "--" + name.replace("_", "-")])
        if values == "0":
            parser.add_argument(*names, dest=name, action="store_true", help=argparse.SUPPRESS)
        else:
            parser.add_argument(*names, dest=name, help=argparse.SUPPRESS)
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    return parser


def _per_node(parser: argparse.ArgumentParser, text: str | None) -> int | None:
    if text in (None, "gpu", "auto", "cuda"):
        return None
    if text == "cpu":
        return len(os.sched_getaffinity(0))
    return _number(parser, text or "", "--nproc-per-node")


def _nodes(parser: argparse.ArgumentParser, text: str | None) -> int | None:
    """Parse ``2``, or torchrun's range ``1:4``; None for as many as there are."""
    if text is None:
        return None
    first, _, last = text.partition(":")
    low, high = (_number(parser, part, "--nnodes") for part in (first, last or first))
    return low if low == high else None


def _number(parser: argparse.ArgumentParser, text: str, option: str = "--rdzv-endpoint") -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        parser.error(f"{option}: {text!r} is not a positive whole number")
    return int(text)
