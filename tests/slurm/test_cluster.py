"""The private cluster: it uses nothing else of the machine, and nothing remains of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures_cluster import running_cluster, skip_without_slurm, submit

from examples.demo import cluster as module
from examples.demo.cluster import ClusterError, NodeSpec, PrivateCluster, on_real_gpus
from hopsd.errors import SlurmUnavailableError

SMALL = [NodeSpec("rtx3090", gpus=2, cpus=4), NodeSpec("v100", gpus=1, cpus=4)]


def processes_of(cluster: PrivateCluster) -> list[str]:
    """Living processes whose environment names the cluster's configuration."""
    command_names = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURM_CONF={cluster.conf}".encode() in (path / "environ").read_bytes():
                command_names.append((path / "comm").read_text().strip())
        except OSError:
            continue
    return command_names


@pytest.mark.live
def test_nothing_of_the_cluster_remains() -> None:
    with running_cluster(nodes=SMALL) as cluster:
        submit(cluster, "--gres=gpu:1", comment=None, script="trap '' TERM; sleep 600")
        cluster.run("squeue")
        assert {"slurmctld", "slurmd", "munged"} <= set(processes_of(cluster))
    assert processes_of(cluster) == []
    with pytest.raises(SlurmUnavailableError):
        cluster.commands(timeout_seconds=1.0).run("squeue")


@pytest.mark.live
def test_a_failed_start_stops_what_already_ran(tmp_path: Path) -> None:
    skip_without_slurm()
    broken_cluster = PrivateCluster(
        tmp_path, nodes=SMALL, extra_conf=["SelectType=select/unheard_of"]
    )
    with pytest.raises(ClusterError, match=r"did not start(.|\n)*unheard_of"), broken_cluster:
        pass
    assert processes_of(broken_cluster) == []


@pytest.mark.live
def test_nodes_can_be_stopped_and_started() -> None:
    with running_cluster(nodes=SMALL) as cluster:
        cluster.stop_slurmctld()
        cluster.start_slurmctld()
        cluster.stop_slurmd("n1")
        cluster.start_slurmd("n1")
        cluster.wait_for_nodes()
        gres = cluster.run("sinfo", "--noheader", "--Node", "--format=%N %G").splitlines()
        assert [line.strip() for line in gres] == ["n0 gpu:rtx3090:2", "n1 gpu:v100:1"]


def test_missing_programs_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "missing_programs", lambda: ["slurmctld", "munged"])
    message = "not found: slurmctld, munged; .*apt-get install .*munge slurmctld slurmd"
    with pytest.raises(ClusterError, match=message), PrivateCluster(tmp_path):
        pass


@pytest.mark.parametrize(("device_count", "real"), [(4, True), (2, True), (1, False), (0, False)])
def test_real_gpus_fill_the_first_node(
    monkeypatch: pytest.MonkeyPatch, device_count: int, real: bool
) -> None:
    names = [f"/dev/nvidia{i}" for i in range(device_count)]
    monkeypatch.setattr(Path, "exists", lambda path: str(path) in names)
    first, second = on_real_gpus([NodeSpec("h200", gpus=2), NodeSpec("h200", gpus=2)])
    assert first.devices == (("/dev/nvidia0", "/dev/nvidia1") if real else ())
    assert second.devices == ()
