"""`hopsctl calibrate`: measures how fast GPUs and the links between them are, live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import click

from hopsd.config import Config, load
from hopsd.core.snapshot.build import with_racks
from hopsd.core.speed.calibration import BandwidthFit, fit
from hopsd.ctl.config_file import config_option
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.study.progress_bar import ProgressBar
from hopsd.ctl.terminal import say
from hopsd.errors import InputError
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.knowledge import Bandwidth, ThroughputRecord
from hopsd.model.reading import Reading
from hopsd.slurm.calibrate import MeasuringSettings, measure, shapes, single_gpu, train
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.port_choice import choose_port
from hopsd.store.postgres import PostgresStore

SIZES = (1_000_000, 4_000_000, 16_000_000, 64_000_000)


@dataclass(frozen=True, slots=True)
class TypeFits:
    """The fits of a GPU type; None for shapes that the cluster does not have. ``speeds``: samples
    per second of hops' small networks on one GPU.
    """

    gpu_type: GpuType
    backend: str
    link: BandwidthFit | None = None
    net: BandwidthFit | None = None
    across: BandwidthFit | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)

    def records(self, node: NodeName, timestamp: float) -> list[ThroughputRecord]:
        """Return the speeds as records of separate workloads, which serve to compare types."""
        return [
            ThroughputRecord(
                WorkloadName(f"hops-calibration-{network}"),
                self.gpu_type,
                node,
                1,
                1,
                speed,
                timestamp,
            )
            for network, speed in self.speeds.items()
        ]

    def bandwidth(self, timestamp: float) -> Bandwidth | None:
        """Return the bandwidths. A missing one gets the other's value; no placement needs it."""
        link, net = self.link or self.net, self.net or self.link
        if link is None or net is None:
            return None
        leaf_bandwidth = self.across.bandwidth if self.across else 0.0
        return Bandwidth(self.gpu_type, link.bandwidth, net.bandwidth, timestamp, leaf_bandwidth)


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
    """Measure how fast each GPU type and the links between its GPUs are, and store the results.

    All-reduces of several sizes run as ordinary Slurm jobs of the caller: between GPUs of one
    server (b_link), of two below one leaf switch (b_net) and of two below different ones
    (b_across), equation 2. Two small networks train for a few seconds on one
    GPU of each type, so that hops knows how types compare before it has seen a user's training.
    The jobs take the GPUs that are idle, and wait for others.

    \b
    Examples:
      hopsctl calibrate --python /opt/torch/bin/python3
      hopsctl calibrate --type a100 --srun=--account=ai --dry-run
    """
    config = load(path)
    site = MeasuringSettings(python, options, patience)
    port, _ = choose_port(config.slurm)
    reading = port.read()
    commands = SlurmCommands(patience + 60.0 * site.limit_minutes)
    gpu_types = _selected_types(types, reading)
    allocations = {
        kind: allocation for kind in gpu_types if (allocation := single_gpu(reading, kind))
    }
    reading = with_racks(
        reading, {node: rack for rack, nodes in config.racks.items() for node in nodes}
    )
    total = len(allocations) + sum(
        len(results) for kind in gpu_types for _, results in shapes(reading, kind)
    )
    with ProgressBar("calibrate", "placements") as bar:
        counter = count(1)
        bar.show(0, total)
        results = [
            _measure(
                commands, site, reading, gpu_type, sizes,
                on_placement=lambda: bar.show(next(counter), total), quiet=as_json,
            )
            for gpu_type in gpu_types
        ]  # fmt: skip
        for index, result in enumerate(results):
            if (allocation := allocations.get(result.gpu_type)) is not None:
                if not as_json:
                    say(f"{result.gpu_type}: two networks on {allocation}")
                results[index] = replace(result, speeds=train(commands, site, allocation))
                bar.show(next(counter), total)
    now = time.time()
    bandwidths = [bandwidth for result in results if (bandwidth := result.bandwidth(now))]
    if not dry_run:
        with PostgresStore(config.database.dsn) as store:
            store.save_bandwidth(bandwidths)
            store.add_throughput(
                [
                    record
                    for result in results
                    if result.gpu_type in allocations
                    for record in result.records(allocations[result.gpu_type].nodes[0], now)
                ]
            )
    if as_json:
        show_json([_document(result) for result in results])
        return
    for result in results:
        show(_table(result))
    if any(result.speeds for result in results):
        show(_speed_table(results))
    for line in _summary(bandwidths, config, is_stored=not dry_run):
        say(line)


def _selected_types(types: Sequence[str], reading: Reading) -> list[GpuType]:
    available = sorted({node.gpu_type for node in reading.nodes if node.usable})
    for name in types:
        if name not in available:
            raise InputError(
                f"--type {name}: no usable node has it; accepted: {', '.join(available)}"
            )
    return [GpuType(name) for name in types] or available


def _measure(
    commands: SlurmCommands,
    site: MeasuringSettings,
    reading: Reading,
    gpu_type: GpuType,
    sizes: Sequence[int],
    *,
    on_placement: Callable[[], None],
    quiet: bool,
) -> TypeFits:
    result = TypeFits(gpu_type, "")
    results: dict[str, Any] = {}
    for name, allocations in shapes(reading, gpu_type):
        transfers = []
        for allocation in allocations:
            if not quiet:
                say(f"{gpu_type}: {len(sizes)} sizes on {allocation}")
            backend, times = measure(commands, site, allocation, sizes)
            result = replace(result, backend=backend)
            transfers += times
            on_placement()
        if transfers:
            results[name] = fit(transfers)
    return replace(result, **results)


def _speed_table(results: Sequence[TypeFits]) -> Any:
    """Tabulate each network's speed on one GPU of each type, also relative to the slowest type."""
    rows = []
    for network in sorted({network for result in results for network in result.speeds}):
        slowest = min(result.speeds[network] for result in results if result.speeds)
        rows += [
            (network, result.gpu_type, f"{speed:,.4g}", f"{speed / slowest:.2f}")
            for result in results
            if (speed := result.speeds.get(network)) is not None
        ]
    return table("One GPU", ["network", "type", "samples/s", "relative"], rows)


def _table(result: TypeFits) -> Any:
    rows = [
        (
            name,
            transfer.gpus,
            transfer.nodes,
            f"{transfer.params:,.0f}",
            f"{1e3 * transfer.seconds:.3f}",
            f"{1e3 * bandwidth_fit.prediction(transfer):.3f}",
            f"{bandwidth_fit.residual(transfer):+.0%}",
        )
        for name, bandwidth_fit in (
            ("b_link", result.link),
            ("b_net", result.net),
            ("b_across", result.across),
        )
        if bandwidth_fit
        for transfer in bandwidth_fit.transfers
    ]
    columns = ["of", "GPUs", "servers", "parameters", "measured (ms)", "by the fit", "residual"]
    return table(f"{result.gpu_type} ({result.backend or 'nothing to measure'})", columns, rows)


def _summary(bandwidths: Sequence[Bandwidth], config: Config, *, is_stored: bool) -> Iterator[str]:
    for bandwidth in bandwidths:
        yield (
            f"{bandwidth.gpu_type}: b_link {bandwidth.b_link:.4g}, b_net"
            f" {bandwidth.b_net:.4g}{_leaves_text(bandwidth)} parameters/s"
            f" {'stored' if is_stored else 'not stored'}"
        )
        if bandwidth.gpu_type in config.bandwidth:
            override = config.bandwidth[bandwidth.gpu_type]
            yield (
                f"  the configuration overrides them: b_link {override.b_link:.4g},"
                f" b_net {override.b_net:.4g}"
            )


def _leaves_text(bandwidth: Bandwidth) -> str:
    return f", b_across {bandwidth.b_across:.4g}" if bandwidth.b_across else ""


def _document(result: TypeFits) -> dict[str, Any]:
    return {
        "gpu_type": result.gpu_type,
        "backend": result.backend,
        "b_link": _fit_document(result.link),
        "b_net": _fit_document(result.net),
        "b_across": _fit_document(result.across),
        "samples_per_second": dict(result.speeds),
    }


def _fit_document(bandwidth_fit: BandwidthFit | None) -> dict[str, Any] | None:
    if bandwidth_fit is None:
        return None
    return {
        "bandwidth": bandwidth_fit.bandwidth,
        "explained": bandwidth_fit.explained_share,
        "transfers": [
            asdict(transfer) | {"residual": bandwidth_fit.residual(transfer)}
            for transfer in bandwidth_fit.transfers
        ],
    }
