"""Resolves the name of a cluster or a workload: a preset, a file, or a log of some kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hopsd.errors import InputError
from hopsd.formats.scenario import read_cluster, read_workload
from hopsd.formats.source import read_text
from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.logs.importers import IMPORTERS, workload_of
from hopsd.sim.measured import measured_workload
from hopsd.sim.presets import PRESETS, preset

T = TypeVar("T")


def cluster_from(name: str) -> Cluster:
    """Return the cluster of a preset or a file.

    Raises:
        InputError, OSError: if ``name`` is neither, or the file is not a cluster.
    """
    return preset(name).cluster() if name in PRESETS else read_file(name, read_cluster)


def workload_from(
    name: str,
    cluster: Cluster,
    *,
    seed: int = 0,
    jobs: int | None = None,
    rate: float | None = None,
) -> Workload:
    """Return the workload of a preset, a file, or ``KIND:PATH`` (docs/simulator.md).

    ``seed``, ``jobs`` and ``rate`` (jobs per hour) apply to generated workloads.

    Raises:
        InputError, OSError: if ``name`` is none of these, or not a workload for this cluster.
    """
    if name in PRESETS:
        if cluster.gpus_by_type().keys() != preset(name).cluster().gpus_by_type().keys():
            raise InputError(f"the workload {name} can only be used with the cluster {name}")
        return preset(name).workload(seed, jobs=jobs, rate_per_hour=rate)
    kind, colon, path = name.partition(":")
    if colon and kind == "gavel":
        return read_file(path, lambda text: measured_workload(text, cluster, seed, jobs, rate))
    if jobs is not None or rate is not None:
        raise InputError("--jobs and --rate go with generated workloads: a preset or gavel:FILE")
    if colon and kind in IMPORTERS:
        return workload_of(read_file(path, IMPORTERS[kind]), cluster)
    return read_file(name, lambda text: read_workload(text, cluster))


def read_file(path: str, parse: Callable[[str], T]) -> T:
    """Read and parse a file; errors of ``parse`` start with its name."""
    text = read_text(path)
    try:
        return parse(text)
    except InputError as error:
        raise type(error)(f"{path}: {error}") from None
