"""`hopsctl what-if`: replays the site's last weeks under other policies."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from hopsd.config.schema import DEFAULT_POLICY
from hopsd.ctl.admin.past_runs import PATIENCE
from hopsd.ctl.history.period import period, since_option, until_option
from hopsd.ctl.options import FiniteRange
from hopsd.ctl.render import show_json
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.study.progress_bar import ProgressBar
from hopsd.ctl.study.simulate import admit, play_all, play_one, show_results
from hopsd.ctl.terminal import complain, say
from hopsd.errors import InputError
from hopsd.formats.scenario import read_cluster as read_cluster_file
from hopsd.formats.source import read_text
from hopsd.model.devices import without_cpus
from hopsd.model.plan import PlanSettings
from hopsd.model.reason import clock, duration
from hopsd.model.scenario import Cluster
from hopsd.policies.registry import get
from hopsd.sim.admission import MAX_SPAN, horizon
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.logs.replay import Replay, as_it_was, assumptions, replay
from hopsd.sim.study import PolicyResult, figures
from hopsd.sim.study_page import write_report
from hopsd.slurm.accounting.jobs import read_logged
from hopsd.slurm.ask import read_cluster
from hopsd.slurm.command import SlurmCommands

MAX_JOBS = 5000
"""Default maximum of jobs: about as many as hops simulates within minutes (docs/history.md)."""

JOB_SECONDS = 0.04
"""Processor time per job, measured with 3000 jobs on 128 GPUs under hops, mostly for its plans;
policies that only keep an order take less (docs/history.md)."""
TOLD_SECONDS = 10.0
"""Shorter times are not announced."""


@click.command("what-if", context_settings={"show_default": True})
@since_option
@until_option
@click.option("--policy", "policies", multiple=True, default=(DEFAULT_POLICY, "slurm"),
              metavar="NAME", shell_complete=complete.policies,
              help="Several for a comparison; docs/policies.md has them all.")  # fmt: skip
@click.option("--partition", "partitions", multiple=True, metavar="NAME",
              shell_complete=complete.partitions,
              help="Only this partition's jobs and nodes; may be given several times.")  # fmt: skip
@click.option("--cluster", "cluster_file", metavar="FILE",
              help="Another cluster than the one that Slurm has today.")  # fmt: skip
@click.option("--jobs", "most", type=click.IntRange(min=1), default=MAX_JOBS,
              help="Maximum number of jobs, the newest ones.")  # fmt: skip
@click.option("--round", "round_seconds", type=FiniteRange(min=1.0, max=MAX_SPAN), default=1800.0,
              metavar="SECONDS", help="How often running jobs compete again.")  # fmt: skip
@click.option("--restart-cost", type=FiniteRange(min=0.0, max=MAX_SPAN), default=60.0,
              metavar="SECONDS",
              help="Time holding GPUs without training, at every start but the first.")  # fmt: skip
@click.option("--knowledge", type=click.Choice([k.value for k in Knows]), default="measured",
              help="What policies know of run times: docs/simulator.md.")  # fmt: skip
@click.option("--movable", is_flag=True,
              help="Assume that jobs save their work when asked, and can be moved.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("what-if"),
              help="The folder for report.html, jobs.csv and rounds.csv.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--csv", "as_csv", is_flag=True, help="The table as comma-separated values.")
def what_if(
    since: float,
    until: float | None,
    policies: Sequence[str],
    partitions: Sequence[str],
    cluster_file: str | None,
    most: int,
    round_seconds: float,
    restart_cost: float,
    knowledge: str,
    movable: bool,
    out: Path,
    resume: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Replay the jobs of Slurm's accounting under one or more policies.

    The first row of the table is what really happened: the closer the policy `slurm` is to it, the
    more the other rows can be trusted.

    \b
    Examples:
      hopsctl what-if --since 30d --policy hops+ --policy slurm
      hopsctl what-if --since 2026-01-01 --until 2026-02-01 --partition gpu --csv
    """
    for policy in policies:
        get(policy)
    start, end = period(since, until)
    commands = SlurmCommands(PATIENCE)
    cluster, notes = _cluster(commands, cluster_file, partitions)
    with ProgressBar("Slurm's accounting"):
        logged_jobs = read_logged(commands, start, end, partitions)
    run = replay(logged_jobs, cluster, start, end, most, movable=movable)
    run = run.only(admit(cluster, run.workload, round_seconds))
    knows = KnowledgeSettings(Knows(knowledge))
    assumption_texts = [
        *assumptions(run, machine="Slurm's accounting shows them to you"),
        *notes,
        f"Policies know: {knows}. A restart costs {restart_cost:g} s.",
    ]
    (complain if as_json or as_csv else say)(told_first(run, cluster, assumption_texts))
    results, files = study(
        policies, run, cluster, knows, out,
        round_seconds=round_seconds, restart_seconds=restart_cost, resume=resume,
    )  # fmt: skip
    if as_json:
        show_json(_document(results, run, cluster, assumption_texts, files))
    elif as_csv:
        write_csv(results)
    else:
        show_results(results, f"Policies knew: {knows}")
        say(f"Distributions, and every server over time: {out / 'report.html'}")


def study(
    policies: Sequence[str],
    log_replay: Replay,
    cluster: Cluster,
    knows: KnowledgeSettings,
    folder: Path,
    *,
    round_seconds: float,
    restart_seconds: float,
    resume: bool = False,
) -> tuple[list[PolicyResult], dict[str, str]]:
    """Return the results, first what really happened, then each policy; and the files written."""
    settings = SimulationSettings(
        round_seconds,
        plan=PlanSettings(effort=0, time_limit_seconds=MAX_PLAN_SECONDS, gap=0.01),
        cluster=ClusterSettings(restart_seconds=restart_seconds),
        knowledge=knows,
        horizon=horizon(log_replay.workload, round_seconds),
    )
    run = partial(play_one, cluster=cluster, workload=log_replay.workload, settings=settings,
                  failures=(), folder=folder, resume=resume)  # fmt: skip
    html = partial(write_report, cluster=cluster, workload=log_replay.workload,
                   path=folder / "report.html", knowledge=str(knows))  # fmt: skip
    return play_all(policies, run, html, folder, [as_it_was(log_replay, cluster, round_seconds)])


def _cluster(
    commands: SlurmCommands, file: str | None, partitions: Sequence[str]
) -> tuple[Cluster, list[str]]:
    """Return the cluster to simulate, and the assumptions about it."""
    if file is not None:
        file_cluster = without_cpus(read_cluster_file(read_text(file)))
        if not file_cluster.servers:
            raise InputError(f"{file} has no server with GPUs")
        return file_cluster, [f"The cluster is that of {file}."]
    cluster, unavailable = read_cluster(commands, partitions)
    assumption = "All nodes are up all the time, with the GPUs that they have today"
    return cluster, [
        f"{assumption}, including {', '.join(unavailable[:5])}"
        f"{', ...' if len(unavailable) > 5 else ''}, which take no jobs now."
        if unavailable
        else f"{assumption}."
    ]


def told_first(run: Replay, cluster: Cluster, assumption_texts: Sequence[str]) -> str:
    """Describe what is simulated, what that assumes, and how long it takes if that is long."""
    head = (
        f"{clock(run.start)} to {clock(run.end)}, on {cluster.gpus} GPUs of"
        f" {len(cluster.servers)} servers. What this assumes:"
    )
    lines = [head, *(f"- {line}" for line in assumption_texts), ""]
    seconds = JOB_SECONDS * len(run.jobs)
    if seconds >= TOLD_SECONDS:
        lines.append(
            f"Under a policy such as hops this takes about {duration(seconds)} of a processor,"
            " more if the queue is long; under policies that only keep an order, less.\n"
        )
    return "\n".join(lines)


def _document(
    results: Sequence[PolicyResult],
    run: Replay,
    cluster: Cluster,
    assumption_texts: Sequence[str],
    files: dict[str, str],
) -> dict[str, Any]:
    return {
        "start": run.start,
        "end": run.end,
        "jobs_played": len(run.jobs),
        "gpus": cluster.gpus,
        "assumes": list(assumption_texts),
        "policies": {result.policy: figures(result) for result in results},
        **files,
    }


def write_csv(results: Sequence[PolicyResult]) -> None:
    """Write one row per result to stdout."""
    writer = csv.writer(sys.stdout)
    rows = [figures(result) for result in results]
    flat = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in rows]
    writer.writerow(["policy", *flat[0]])
    writer.writerows([r.policy, *row.values()] for r, row in zip(results, flat, strict=True))
