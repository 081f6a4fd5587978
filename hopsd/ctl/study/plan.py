"""`hopsctl plan`: shows what hops would do with a cluster and a queue from a file."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import click

from hopsd.ctl.render import show, show_json, table
from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.formats.source import read_text
from hopsd.model.ids import job_order
from hopsd.model.plan import Plan, Snapshot
from hopsd.model.reason import count_of
from hopsd.policies.registry import get
from hopsd.serve.status import rack_fragments_text


@click.command()
@click.option("--snapshot", "source", required=True, metavar="FILE|-", help="The snapshot file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def plan(source: str, as_json: bool) -> None:
    """Plan once for the cluster and the jobs of a snapshot file; change nothing.

    \b
    Examples:
      hopsctl plan --snapshot examples/files/snapshot.json
      hopsctl plan --snapshot - --json < examples/files/snapshot.json

    Exit codes: 0 planned, 2 the file is not a snapshot.
    """
    snapshot, settings = read_snapshot(read_text(source))
    policy, began = get(settings.policy), perf_counter()
    result = policy(snapshot, settings)
    if "total" not in result.seconds:
        result = replace(result, seconds={**result.seconds, "total": perf_counter() - began})
    if as_json:
        show_json(plan_json(result))
        return
    _show(snapshot, result)


def _show(snapshot: Snapshot, result: Plan) -> None:
    """Print the plan for people: what runs where, which jobs wait and why."""
    gpus = sum(allocation.gpus for allocation in result.placements.values())
    jobs = count_of(len(result.placements), "jobs")
    print(
        f"{jobs} on {count_of(gpus, 'GPUs')} of {sum(n.gpus for n in snapshot.nodes)},"
        f" {len(result.waiting)} wait,"
        f" {result.fragments} fragments{rack_fragments_text(result.rack_fragments)}\n"
        f"objective {result.objective:.6g} of at most {result.upper_bound:.6g}"
        f" (gap {result.gap:.3%}, {result.status}), {result.configurations} configurations,"
        f" {result.seconds.get('total', 0.0):.2f} s\n"
    )
    show(
        table(
            "Placements", ["job", "nodes", "GPUs", "priority", "gain", "samples/s"], _rows(result)
        )
    )
    if result.waiting:
        reasons = [
            (job, result.waiting[job].code.value, result.waiting[job].text)
            for job in sorted(result.waiting, key=job_order)
        ]
        show(table("Waiting", ["job", "code", "why"], reasons))


def _rows(result: Plan) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for job in sorted(result.placements, key=job_order):
        allocation, numbers = result.placements[job], result.jobs.get(job)
        figures = (numbers.priority, numbers.gain, numbers.throughput) if numbers else (None,) * 3
        rows.append((job, allocation.as_dict(), allocation.gpus, *figures))
    return rows
