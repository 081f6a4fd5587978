"""`hopsctl throughput`: shows what is known about a workload's speed."""

from __future__ import annotations

import time
from typing import Any

import click

from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask_daemon, socket_option
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.shell import completion as complete
from hopsd.model.reason import duration

Document = dict[str, Any]


@click.command()
@click.argument("workload", required=False, shell_complete=complete.workloads)
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the document for programs.")
def throughput(workload: str | None, path: Address, as_json: bool) -> None:
    """Show how fast WORKLOAD runs by all that is known; without it, list the known workloads.

    The beginning of a name is enough if it is unique.

    \b
    Examples:
      hopsctl throughput
      hopsctl throughput resnet50

    Exit codes: 0 done, 2 no such workload, 4 hopsd is not reachable.
    """
    arguments = {} if workload is None else {"workload": workload}
    answer = ask_daemon(path, "throughput", **arguments)
    if as_json:
        show_json(answer)
    elif workload is None:
        show(_list(answer["workloads"], time.time()))
    else:
        show(*_tables(answer, time.time()))


def _list(workloads: list[Document], now: float) -> Any:
    rows = [
        (
            row["workload"],
            "operator's table" if row["final"] else row["measured"],
            row["records"],
            row["theory"],
            _age_text(row["newest"], now),
        )
        for row in workloads
    ]
    columns = ["workload", "measured on", "records", "basic times on", "last"]
    return table("Workloads", columns, rows)


def _tables(doc: Document, now: float) -> list[Any]:
    tables = [_speeds(doc["workload"], kind, doc["min_records"], now) for kind in doc["types"]]
    fits = [(kind, kind["theory"]) for kind in doc["types"] if kind["theory"]]
    if fits:
        tables.append(_basic_times(fits, now))
    if doc["servers"]:
        tables.append(_servers(doc["servers"]))
    return tables


def _speeds(workload: str, kind: Document, min_records: int, now: float) -> Any:
    rows = [
        (
            _shape(shape),
            _rate(shape["per_gpu"]),
            _interval(shape.get("between")),
            shape["source"],
            _measured_text(shape["type"], min_records),
            _age_text(shape["type"]["newest"], now) if shape["type"] else None,
            _rate(shape["theory"]),
            {node: _measured_text(entry, min_records) for node, entry in shape["entity"].items()},
        )
        for shape in kind["shapes"]
    ]
    columns = ["shape", "per GPU", "between", "known from", "type layer", "last", "theory"]
    title = f"{workload} on {kind['gpu_type']} (samples/s per GPU)"
    return table(title, [*columns, "server layer"], rows)


def _shape(shape: Document) -> str:
    if "gpus" in shape:
        return f"{shape['gpus']} on {shape['count']} servers"
    unit = {"gpus": "GPU", "servers": "server"}[shape["kind"]]
    return f"{shape['count']} {unit}{'' if shape['count'] == 1 else 's'}"


def _measured_text(speed: Document | None, min_records: int) -> str | None:
    """Format speed and number of records as `98.5 (4)`; in brackets if the records are too few."""
    if speed is None:
        return None
    text = f"{_rate(speed['per_gpu'])} ({speed['records']})"
    return text if speed["records"] >= min_records else f"[{text}]"


def _basic_times(fits: list[tuple[Document, Document]], now: float) -> Any:
    rows = [
        (
            fit["gpu_type"],
            "data, forward" if fit["inference"] else fit["pattern"],
            fit["batch_size"],
            _params(fit["params"]),
            _data(fit),
            _milliseconds(fit["t_f"]),
            _milliseconds(fit["t_b"]),
            _milliseconds(fit["t_u"]),
            _milliseconds(*([fit["w_cache"], fit["w_load"]][: 1 if fit["p_cache"] >= 1 else 2])),
            _bandwidth(kind["bandwidth"]),
            f"{fit['iterations']:,} in {fit['records']}",
            _age_text(fit["at"], now),
        )
        for kind, fit in fits
    ]
    columns = ["type", "pattern", "batch", "params", "data", "forward", "backward", "update"]
    more_columns = ["wait", "B_link, B_net", "iterations in reports", "last"]
    return table("Basic times (ms)", [*columns, *more_columns], rows)


def _data(fit: Document) -> str:
    cache = _milliseconds(fit["mu_cache"])
    if fit["p_cache"] >= 1:
        return cache
    share = fit["p_cache"]
    return f"{share:.0%} {cache}, {1 - share:.0%} {_milliseconds(fit['mu_load'])}"


def _servers(servers: list[Document]) -> Any:
    rows = [(row["node"], row["gpu_type"], row["factor"], row["records"]) for row in servers]
    return table("Servers against their type", ["node", "type", "factor", "records"], rows)


def _rate(per_gpu: float | None) -> str | None:
    return None if per_gpu is None else f"{per_gpu:.4g}"


def _interval(bounds: list[float] | None) -> str | None:
    return f"{_rate(bounds[0])} to {_rate(bounds[1])}" if bounds else None


def _milliseconds(*seconds: float) -> str:
    return ", ".join(f"{1000 * value:.3g}" for value in seconds)


def _params(count: float) -> str | None:
    return f"{count / 1e6:.3g} M" if count else None


def _bandwidth(entry: Document | None) -> str | None:
    return f"{entry['b_link']:.2g}, {entry['b_net']:.2g}" if entry else None


def _age_text(time: float | None, now: float) -> str | None:
    return None if time is None else f"{duration(now - time)} ago"
