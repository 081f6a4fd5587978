"""Bandwidths: the fit alone, and measurements on a live cluster with gloo."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner
from fixtures_cluster import running_cluster
from hypothesis import given
from hypothesis import strategies as st

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.core.speed.calibration import Transfer, fit
from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.core.speed.type_speeds import with_type_speeds
from hopsd.ctl.admin.calibrate import calibrate
from hopsd.errors import InputError, SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.reading import NodeReading, Reading
from hopsd.slurm.calibrate import MeasuredShapes, MeasuringSettings, measure, shapes
from hopsd.slurm.command import SlurmCommands
from hopsd.store.postgres import PostgresStore

SIZES = st.lists(st.sampled_from([1e5, 1e6, 1e7]), min_size=1, max_size=6)


@given(SIZES, st.floats(1e6, 1e12), st.integers(1, 3), st.integers(2, 8))
def test_exact_times_yield_the_bandwidth(
    sizes: list[float], bandwidth: float, nodes: int, gpus: int
) -> None:
    ring = (gpus - 1) / gpus if nodes == 1 else 1.0
    bandwidth_fit = fit(Transfer(n, gpus, nodes, n * ring / bandwidth) for n in sizes)
    assert bandwidth_fit.bandwidth == pytest.approx(bandwidth)
    assert bandwidth_fit.explained_share == pytest.approx(1.0)
    assert all(abs(bandwidth_fit.residual(t)) < 1e-9 for t in bandwidth_fit.transfers)


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=5), st.floats(0.9, 1.1))
def test_no_other_bandwidth_has_a_smaller_error(seconds: list[float], factor: float) -> None:
    transfers = [Transfer(1e6 * (i + 1), 2, 1, s) for i, s in enumerate(seconds)]
    bandwidth_fit = fit(transfers)

    def squared_error(bandwidth: float) -> float:
        return sum((t.seconds - t.share / bandwidth) ** 2 for t in transfers)

    assert squared_error(bandwidth_fit.bandwidth) <= squared_error(
        bandwidth_fit.bandwidth * factor
    ) * (1 + 1e-9)


def test_nothing_measured_gives_no_fit() -> None:
    with pytest.raises(InputError):
        fit([])


def test_only_idle_usable_nodes_are_measured() -> None:
    a, v = GpuType("a100"), GpuType("v100")
    nodes = tuple(
        NodeReading(NodeName(name), kind, gpus, 8, foreign_gpus=foreign_gpus, usable=usable)
        for name, kind, gpus, foreign_gpus, usable in [
            ("n0", a, 8, 8, True),
            ("n1", a, 8, 0, True),
            ("n2", a, 4, 0, False),
            ("n3", v, 1, 0, True),
        ]
    )
    reading = Reading(0.0, nodes, ())
    assert shapes(reading, a) == MeasuredShapes(
        [Allocation.of({"n1": 2}), Allocation.of({"n1": 8})],
        [Allocation.of({"n0": 1, "n1": 1})],
        [],
    )
    assert shapes(reading, v) == MeasuredShapes([], [], [])


@pytest.mark.parametrize(
    ("leaves", "net", "nodes_across"),
    [
        ("aabb", ["n0", "n1"], ["n0", "n2"]),
        ("abab", ["n0", "n2"], ["n0", "n1"]),
        ("abcd", ["n0", "n1"], []),
        ("aaaa", ["n0", "n1"], []),
    ],
)
def test_servers_of_one_leaf_switch_and_of_two_are_measured(
    leaves: str, net: list[str], nodes_across: list[str]
) -> None:
    a = GpuType("a100")
    nodes = tuple(
        NodeReading(NodeName(f"n{i}"), a, 8, 8, switches=("core", leaf))
        for i, leaf in enumerate(leaves)
    )
    pairs = shapes(Reading(0.0, nodes, ()), a)
    assert pairs.net == [Allocation.of(dict.fromkeys(net, 1))]
    assert pairs.across == [Allocation.of(dict.fromkeys(nodes_across, 1)) for _ in nodes_across[:1]]


class LocalSrun(SlurmCommands):
    """Instead of srun, runs its program on this machine and in the current folder."""

    def run(self, *arguments: str) -> str:
        if arguments[0] == "srun":
            assert "--chdir=/" in arguments
            program = arguments[arguments.index(sys.executable) :]
            subprocess.run(program, check=False, capture_output=True, timeout=60)
        return ""


@pytest.mark.slow
def test_root_runs_no_code_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("open('caught', 'w')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SlurmError):
        measure(LocalSrun(), MeasuringSettings(sys.executable), Allocation.of({"n1": 2}), [1000])
    assert not (tmp_path / "caught").exists()


TREE = """\
SwitchName=s0 Nodes=n[0-1]
SwitchName=s1 Nodes=n[2-3]
SwitchName=core Switches=s[0-1]
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    """Two nodes below one leaf switch, one of the same type below another, one of another type."""
    nodes = [NodeSpec("rtx3090", gpus=2, cpus=4)] * 3 + [NodeSpec("v100", gpus=1, cpus=4)]
    conf = ["TopologyPlugin=topology/tree"]
    with running_cluster(
        nodes=nodes, extra_conf=conf, extra_files={"topology.conf": TREE}
    ) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.live
@pytest.mark.slow
def test_bandwidths_are_measured_fitted_and_stored(
    cluster: PrivateCluster, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the all-reduces are PyTorch's")
    pytest.importorskip("hops_profiler", reason="the plugin is not installed")
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    config = tmp_path / "hopsd.toml"
    config.write_text(
        f'[database]\ndsn = "{database}"\n[bandwidth.rtx3090]\nb_link = 7e9\nb_net = 3e9\n'
    )
    command = ["--config", str(config), "--python", sys.executable]
    command += ["--sizes", "200000", "--sizes", "2000000"]
    result = CliRunner().invoke(calibrate, [*command, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    first, second = json.loads(result.output)
    assert (first["gpu_type"], first["backend"]) == ("rtx3090", "gloo")
    assert [(t["gpus"], t["nodes"]) for t in first["b_link"]["transfers"]] == [(2, 1)] * 2
    assert [(t["gpus"], t["nodes"]) for t in first["b_net"]["transfers"]] == [(2, 2)] * 2
    assert [(t["gpus"], t["nodes"]) for t in first["b_across"]["transfers"]] == [(2, 2)] * 2
    assert second["b_across"] is None
    assert (second["gpu_type"], second["b_link"], second["b_net"]) == ("v100", None, None)
    with PostgresStore(database) as store:
        (bandwidth,) = store.knowledge().bandwidth
        assert bandwidth.gpu_type == "rtx3090"
        assert bandwidth.b_link == first["b_link"]["bandwidth"] > 1e6
        assert bandwidth.b_net == first["b_net"]["bandwidth"] > 1e6
        assert bandwidth.b_across == first["b_across"]["bandwidth"] > 1e6
        records = store.knowledge().records
        assert {(r.gpu_type, r.gpus, r.nodes) for r in records} == {
            ("rtx3090", 1, 1),
            ("v100", 1, 1),
        }
        speeds = with_type_speeds(store.knowledge(), EstimatorSettings()).type_speed
    ratios = [
        second["samples_per_second"][network] / speed
        for network, speed in first["samples_per_second"].items()
    ]
    assert speeds == {"rtx3090": 1.0, "v100": pytest.approx(prod(ratios) ** 0.5)}

    options = ["--type", "rtx3090", "--dry-run"]
    dry_run = CliRunner().invoke(calibrate, [*command, *options], catch_exceptions=False)
    assert "b_across" in dry_run.output
    assert "not stored" in dry_run.output
    assert "the configuration overrides them: b_link 7e+09" in dry_run.output
    with PostgresStore(database) as store:
        assert store.knowledge().bandwidth == (bandwidth,)


@pytest.mark.live
def test_an_unknown_type_is_named(
    cluster: PrivateCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    config = tmp_path / "hopsd.toml"
    config.write_text("")
    with pytest.raises(InputError, match="accepted: rtx3090, v100"):
        CliRunner().invoke(
            calibrate, ["--config", str(config), "--type", "h100"], catch_exceptions=False
        )
