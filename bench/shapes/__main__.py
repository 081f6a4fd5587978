"""``python -m bench.shapes``: four networks on every shape of a cluster of emulated devices.

Basic times come from one profile run on one device each, bandwidths from calibration; all else is
predicted and then measured. Needs root on Linux, Slurm and PyTorch; takes about 40 minutes. The
figures go to build/shapes.json, the plot to docs/img.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.shapes.emulation import emulate
from bench.shapes.measure import Bench
from bench.shapes.plot import Point, draw
from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.core.speed.calibration import Transfer, fit
from hopsd.core.speed.theory import basic_times, fit_theory
from hopsd.core.speed.throughput import Communication, IterationModel, theory_per_gpu
from hopsd.ctl.render import show, table
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.knowledge import Bandwidth, PhaseRecord

DEVICE = GpuType("emulated")
SERVERS = ("n0", "n1", "n2")
NAMES = ("convolutions", "recommender", "transformer", "lstm")
Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = (
    *((1,), (2,), (1, 1), (2, 1), (2, 2)),
    *((1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2)),
)
"""All shapes on three servers of two devices, up to the order of servers."""


def main() -> None:
    options = _options()
    points = (
        [Point(**point) for point in json.loads(options.redraw.read_text())]
        if options.redraw
        else _measure(options)
    )
    show(table("Samples/s, and the error of what was predicted", COLUMNS, map(_row, points)))
    for line in _summary(points):
        print(line)
    draw(options.plots / "estimator-shapes.svg", points)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.shapes", description=__doc__)
    parser.add_argument("--share", type=float, default=0.25, help="of a core, per device")
    parser.add_argument("--megabits", type=int, default=400, help="per second and server")
    parser.add_argument("--iterations", type=int, default=30, help="of a measured training")
    parser.add_argument("--rounds", type=int, default=2, help="measurements per median")
    parser.add_argument("--out", type=Path, default=Path("build/shapes.json"))
    parser.add_argument("--redraw", type=Path, metavar="FILE", help="an --out file; no measuring")
    parser.add_argument("--plots", type=Path, default=Path("docs/img"))
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> list[Point]:
    with tempfile.TemporaryDirectory(prefix="hops-shapes-") as name:
        folder = Path(name)
        (spool := folder / "spool").mkdir()
        os.environ["HOPS_REPORT_SECONDS"] = "2"
        root = Path(__file__).parents[2]
        limits = {"share": options.share, "megabits": options.megabits}
        with (
            emulate(folder, SERVERS, python=sys.executable, **limits),
            PrivateCluster(
                folder / "slurm",
                nodes=[NodeSpec(DEVICE, gpus=2, cpus=8)] * len(SERVERS),
                report_dir=spool,
                profiler_path=root / "profiler" / "site",
            ) as cluster,
        ):
            return _rounds(Bench(cluster, spool, folder), options)


def _rounds(bench: Bench, options: argparse.Namespace) -> list[Point]:
    """Measure everything once per round, so that a slow hour affects all points."""
    within_server: list[Transfer] = []
    between_servers: list[Transfer] = []
    phases: dict[str, list[PhaseRecord]] = defaultdict(list)
    rates_by_shape: dict[tuple[str, Shape], list[float]] = defaultdict(list)
    for number in range(1, options.rounds + 1):
        new_within, new_between = bench.transfers(DEVICE)
        within_server, between_servers = within_server + new_within, between_servers + new_between
        for name in NAMES:
            phases[name] += bench.profile(name, NodeName(SERVERS[0]))
            for shape in SHAPES:
                rate = bench.throughput(name, options.iterations, _allocation(shape))
                rates_by_shape[name, shape].append(rate)
                print(f"round {number}: {name} on {_text(shape)}: {rate:.1f} samples/s", flush=True)
        bandwidth = Bandwidth(DEVICE, fit(within_server).bandwidth, fit(between_servers).bandwidth)
        print(f"b_link {bandwidth.b_link:.4g}, b_net {bandwidth.b_net:.4g} parameters/s")
        points = [
            _point(name, shape, statistics.median(rates), phases[name], bandwidth)
            for (name, shape), rates in rates_by_shape.items()
        ]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps([asdict(point) for point in points], indent=1))
    return points


def _point(
    name: str, shape: Shape, rate: float, phases: list[PhaseRecord], bandwidth: Bandwidth
) -> Point:
    theory = fit_theory(phases, 86400.0)
    times = basic_times(theory, bandwidth) if theory else None
    if times is None:
        raise RuntimeError(f"{name}: its profile runs gave no basic times")
    gpus, servers = sum(shape), len(shape)
    ring, paper = (
        gpus * theory_per_gpu(times, gpus, servers, IterationModel(communication=communication))
        for communication in (Communication.RING, Communication.PAPER)
    )
    return Point(name, _text(shape), rate, ring, paper)


def _allocation(shape: Shape) -> Allocation:
    return Allocation.of({NodeName(n): gpus for n, gpus in zip(SERVERS, shape, strict=False)})


def _text(shape: Shape) -> str:
    return "+".join(map(str, shape))


COLUMNS = ["network", "devices on servers", "measured", "predicted", "error", "paper's", "error"]


def _row(point: Point) -> tuple[str, ...]:
    return (
        point.network,
        point.shape,
        f"{point.measured:.1f}",
        f"{point.ring:.1f}",
        f"{point.ring / point.measured - 1:+.1%}",
        f"{point.paper:.1f}",
        f"{point.paper / point.measured - 1:+.1%}",
    )


def _summary(points: list[Point]) -> Iterator[str]:
    for name in ("ring", "paper"):
        errors = sorted(abs(getattr(p, name) / p.measured - 1) for p in points)
        worst = statistics.quantiles(errors, n=10)[-1]
        yield f"{name}: median error {statistics.median(errors):.1%}, 90th percentile {worst:.1%}"


if __name__ == "__main__":
    main()
