"""`hopsctl calibrate`: measure how fast gradients travel, on the live cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import click

from hopsd.config import Config, load
from hopsd.core.speed.calibration import Fit, fit
from hopsd.ctl.config_file import config_option
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.study.progress import Bar
from hopsd.ctl.terminal import say
from hopsd.errors import InputError
from hopsd.model.ids import GpuType
from hopsd.model.knowledge import Bandwidth
from hopsd.model.reading import Reading
from hopsd.slurm.calibrate import Site, measure, shapes
from hopsd.slurm.choose import choose_port
from hopsd.slurm.command import SlurmCommands
from hopsd.store.postgres import PostgresStore

SIZES = (1_000_000, 4_000_000, 16_000_000, 64_000_000)


@dataclass(frozen=True, slots=True)
class Found:
    """The fits of a type; None if the cluster has no such shape."""

    gpu_type: GpuType
    backend: str
    link: Fit | None
    net: Fit | None

    def bandwidth(self, at: float) -> Bandwidth | None:
        """The bandwidths; a measured one stands in for a missing one, which no placement needs."""
        link, net = self.link or self.net, self.net or self.link
        if link is None or net is None:
            return None
        return Bandwidth(self.gpu_type, link.bandwidth, net.bandwidth, at)


@click.command()
@click.option(
    "--type",
    "types",
    multiple=True,
    shell_complete=complete.gpu_types,
    help="Only this GPU type; may be given more than once.",
)
@config_option
@click.option(
    "--python",
    default="python3",
    show_default=True,
    help="An interpreter with PyTorch, by its path on the nodes.",
)
@click.option(
    "--sizes",
    type=click.IntRange(min=1),
    multiple=True,
    default=SIZES,
    show_default=True,
    help="Parameters (float32) of an all-reduce.",
)
@click.option(
    "--srun", "options", multiple=True, help="An option for srun, such as --srun=--account=ai."
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="Seconds that a job may wait for its GPUs.",
)
@click.option("--dry-run", is_flag=True, help="Measure and show, store nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the fits for programs.")
def calibrate(
    types: tuple[str, ...],
    path: Path,
    python: str,
    sizes: tuple[int, ...],
    options: tuple[str, ...],
    patience: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Measure the bandwidths of equation 2 for each GPU type, fit them and store the fit.

    All-reduces of several sizes run as ordinary Slurm jobs of the caller: between GPUs of one
    server (b_link) and of two (b_net). They take the GPUs that are idle, and wait for others.

    \b
    Examples:
      hopsctl calibrate --python /opt/torch/bin/python3
      hopsctl calibrate --type a100 --srun=--account=ai --dry-run
    """
    config = load(path)
    site = Site(python, options, patience)
    port, _ = choose_port(config.slurm)
    reading = port.read()
    commands = SlurmCommands(patience + 60.0 * site.limit_minutes)
    chosen = _chosen(types, reading)
    total = sum(len(found) for kind in chosen for found in shapes(reading, kind))
    with Bar("calibrate", "placements") as bar:
        done = count(1)
        bar.at(0, total)
        found = [
            _measure(
                commands, site, reading, gpu_type, sizes,
                told=lambda: bar.at(next(done), total), quiet=as_json,
            )
            for gpu_type in chosen
        ]  # fmt: skip
    now = time.time()
    measured = [bandwidth for each in found if (bandwidth := each.bandwidth(now))]
    if not dry_run:
        with PostgresStore(config.database.dsn) as store:
            store.save_bandwidth(measured)
    if as_json:
        show_json([_document(each) for each in found])
        return
    for each in found:
        show(_table(each))
    for line in _summary(measured, config, stored=not dry_run):
        say(line)


def _chosen(types: Sequence[str], reading: Reading) -> list[GpuType]:
    there = sorted({node.gpu_type for node in reading.nodes if node.usable})
    for name in types:
        if name not in there:
            raise InputError(f"--type {name}: no usable node has it; accepted: {', '.join(there)}")
    return [GpuType(name) for name in types] or there


def _measure(
    commands: SlurmCommands,
    site: Site,
    reading: Reading,
    gpu_type: GpuType,
    sizes: Sequence[int],
    *,
    told: Callable[[], None],
    quiet: bool,
) -> Found:
    found = Found(gpu_type, "", None, None)
    within, between = shapes(reading, gpu_type)
    for name, allocations in (("link", within), ("net", between)):
        transfers = []
        for allocation in allocations:
            if not quiet:
                say(f"{gpu_type}: {len(sizes)} sizes on {allocation}")
            backend, times = measure(commands, site, allocation, sizes)
            found = replace(found, backend=backend)
            transfers += times
            told()
        if transfers:
            fitted = fit(transfers)
            found = replace(found, link=fitted) if name == "link" else replace(found, net=fitted)
    return found


def _table(found: Found) -> Any:
    rows = [
        (
            name,
            transfer.gpus,
            transfer.nodes,
            f"{transfer.params:,.0f}",
            f"{1e3 * transfer.seconds:.3f}",
            f"{1e3 * fitted.predicted(transfer):.3f}",
            f"{fitted.residual(transfer):+.0%}",
        )
        for name, fitted in (("b_link", found.link), ("b_net", found.net))
        if fitted
        for transfer in fitted.transfers
    ]
    columns = ["of", "GPUs", "servers", "parameters", "measured (ms)", "by the fit", "residual"]
    return table(f"{found.gpu_type} ({found.backend or 'nothing to measure'})", columns, rows)


def _summary(measured: Sequence[Bandwidth], config: Config, *, stored: bool) -> Iterator[str]:
    for each in measured:
        yield (
            f"{each.gpu_type}: b_link {each.b_link:.4g}, b_net {each.b_net:.4g} parameters/s"
            f" {'stored' if stored else 'not stored'}"
        )
        if each.gpu_type in config.bandwidth:
            given = config.bandwidth[each.gpu_type]
            yield (
                f"  the configuration overrides them: b_link {given.b_link:.4g},"
                f" b_net {given.b_net:.4g}"
            )


def _document(found: Found) -> dict[str, Any]:
    return {
        "gpu_type": found.gpu_type,
        "backend": found.backend,
        "b_link": _fit_document(found.link),
        "b_net": _fit_document(found.net),
    }


def _fit_document(fitted: Fit | None) -> dict[str, Any] | None:
    if fitted is None:
        return None
    return {
        "bandwidth": fitted.bandwidth,
        "explained": fitted.explained,
        "transfers": [
            asdict(transfer) | {"residual": fitted.residual(transfer)}
            for transfer in fitted.transfers
        ],
    }
