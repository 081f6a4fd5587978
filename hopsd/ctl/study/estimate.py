"""`hopsctl estimate`: computes the throughput by eq. 1 to 5 of the paper."""

from __future__ import annotations

import click

from hopsd.core.speed.throughput import (
    Communication,
    IterationModel,
    communication_seconds,
    iteration_seconds,
    theory_per_gpu,
)
from hopsd.ctl.options import FiniteRange
from hopsd.ctl.render import show, show_json, table
from hopsd.errors import InputError
from hopsd.formats.source import read_text
from hopsd.formats.theory import read_theory
from hopsd.model.reason import count_of
from hopsd.model.site import kind_of_type


@click.command()
@click.option("--theory", required=True, metavar="FILE|-", help="Phases of one iteration (JSON).")
@click.option("--gpu-type", required=True, help="The GPU type that the file is about.")
@click.option("--gpus", required=True, type=click.IntRange(min=1), help="Number of GPUs.")
@click.option("--nodes", required=True, type=click.IntRange(min=1), help="Number of servers.")
@click.option("--paper-exact", is_flag=True, help="Pattern 2 without the update's time.")
@click.option(
    "--exposed-share",
    type=FiniteRange(0, 1),
    default=IterationModel().exposed_share,
    show_default=True,
    help="Part of the communication that never overlaps with backward.",
)
@click.option(
    "--communication",
    type=click.Choice([choice.value for choice in Communication]),
    default=Communication.PAPER.value,
    show_default=True,
    help="Model between servers: eq. 2, or one that counts GPUs and servers (docs/estimator.md).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def estimate(
    theory: str,
    gpu_type: str,
    gpus: int,
    nodes: int,
    paper_exact: bool,
    exposed_share: float,
    communication: str,
    as_json: bool,
) -> None:
    """Estimate seconds and samples per second of a job on GPUS GPUs of NODES servers.

    \b
    Example:
      hopsctl estimate --theory examples/files/theory.json \\
          --gpu-type rtx3090 --gpus 16 --nodes 2

    Exit codes: 0 done, 2 bad input.
    """
    if gpus < nodes:
        raise InputError(f"--gpus {gpus}: {nodes} nodes have at least {nodes} GPUs")
    times = read_theory(read_text(theory))
    model = IterationModel(exposed_share, paper_exact, Communication(communication))
    rate = theory_per_gpu(times, gpus, nodes, model)
    result = {
        "t_c": communication_seconds(times, gpus, nodes, model),
        "t_iter": iteration_seconds(times, gpus, nodes, model),
        "throughput_per_gpu": rate,
        "throughput": rate * gpus,
    }
    if as_json:
        show_json(result)
        return
    units = ("seconds", "seconds", "samples/s", "samples/s")
    rows = [(n, f"{v:.6g}", u) for (n, v), u in zip(result.items(), units, strict=True)]
    show(
        table(
            f"{count_of(gpus, kind_of_type(gpu_type))} on {count_of(nodes, 'nodes')}",
            ["what", "value", "unit"],
            rows,
        )
    )
