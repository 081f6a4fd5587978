"""`hopsctl calibrate`: measure how fast GPUs and the links between them are, live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.knowledge import Bandwidth, ThroughputRecord
from hopsd.model.reading import Reading
from hopsd.slurm.calibrate import Site, measure, shapes, single_gpu, train
from hopsd.slurm.choose import choose_port
from hopsd.slurm.command import SlurmCommands
from hopsd.store.postgres import PostgresStore

SIZES = (1_000_000, 4_000_000, 16_000_000, 64_000_000)


@dataclass(frozen=True, slots=True)
class Found:
    """The fits of a type, None if the cluster has no such shape; ``speeds``: samples per second of
    hops' own small networks on one GPU.
    """

    gpu_type: GpuType
    backend: str
    link: Fit | None
    net: Fit | None
    speeds: Mapping[str, float] = field(default_factory=dict)

    def records(self, node: NodeName, at: float) -> list[ThroughputRecord]:
        """The speeds as records of workloads of their own, by which types are compared."""
        return [
            ThroughputRecord(
                WorkloadName(f"hops-calibration-{network}"), self.gpu_type, node, 1, 1, speed, at
            )
            for network, speed in self.speeds.items()
        ]

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
    """Measure how fast each GPU type and the links between its GPUs are, and store that.

    All-reduces of several sizes run as ordinary Slurm jobs of the caller: between GPUs of one
    server (b_link) and of two (b_net), equation 2. Two small networks train for some seconds on one
    GPU of each type: hops then knows how types compare before it has seen a user's training. The
    jobs take the GPUs that are idle, and wait for others.

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
    single = {kind: where for kind in chosen if (where := single_gpu(reading, kind))}
    total = sum(len(found) for kind in chosen for found in shapes(reading, kind)) + len(single)
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
        for index, each in enumerate(found):
            if (where := single.get(each.gpu_type)) is not None:
                if not as_json:
                    say(f"{each.gpu_type}: two networks on {where}")
                found[index] = replace(each, speeds=train(commands, site, where))
                bar.at(next(done), total)
    now = time.time()
    measured = [bandwidth for each in found if (bandwidth := each.bandwidth(now))]
    if not dry_run:
        with PostgresStore(config.database.dsn) as store:
            store.save_bandwidth(measured)
            store.add_throughput(
                [
                    record
                    for each in found
                    if each.gpu_type in single
                    for record in each.records(single[each.gpu_type].nodes[0], now)
                ]
            )
    if as_json:
        show_json([_document(each) for each in found])
        return
    for each in found:
        show(_table(each))
    if any(each.speeds for each in found):
        show(_speed_table(found))
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


def _speed_table(found: Sequence[Found]) -> Any:
    """Each network's speed on one GPU of each type, and relative to the slowest type."""
    rows = []
    for network in sorted({network for each in found for network in each.speeds}):
        slowest = min(each.speeds[network] for each in found if each.speeds)
        rows += [
            (network, each.gpu_type, f"{speed:,.4g}", f"{speed / slowest:.2f}")
            for each in found
            if (speed := each.speeds.get(network)) is not None
        ]
    return table("One GPU", ["network", "type", "samples/s", "relative"], rows)


def _table(found: Found) -> Any:
    rows = [
        (
            name,
            transfer.gpus,
            transfer.nodes,
            f"{transfer.params:,.0f}",
            f"{1e3 * transfer.seconds:.3f}",
            f"{1e3 * fitted.prediction(transfer):.3f}",
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
        "samples_per_second": dict(found.speeds),
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
