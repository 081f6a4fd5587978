"""`hopsctl simulate`: shows what policies would do with a workload, in virtual time."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from hopsd import __version__
from hopsd.ctl.options import FiniteRange
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.study.progress_bar import ProgressBar
from hopsd.ctl.terminal import complain
from hopsd.errors import FormatError, InputError
from hopsd.formats.item import Item
from hopsd.formats.snapshot import read_settings
from hopsd.model.plan import PlanSettings
from hopsd.model.reason import count_of
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.registry import get
from hopsd.sim.admission import MAX_SPAN, admit_jobs, horizon
from hopsd.sim.cluster import ClusterSettings, Failure
from hopsd.sim.engine import Progress, SimulationSettings
from hopsd.sim.failures import read_failures
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.journal import alone, fingerprint, journal_policy
from hopsd.sim.sources import cluster_from, read_file, workload_from
from hopsd.sim.study import PolicyResult, figures, play, result_of, write
from hopsd.sim.study_page import write_report
from hopsd.sim.turns import LaneSimulation

MAX_SHOWN = 10
"""Maximum number of left-out jobs to name."""


_SECONDS = FiniteRange(min=0.0, max=MAX_SPAN)


def read_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Read and check planning settings given as ``KEY=VALUE``, for `read_settings`.

    Raises:
        click.BadParameter: if a setting is not accepted.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise click.BadParameter(f"{assignment!r}: give KEY=VALUE, such as gap=0.02")
        if key in ("policy", "seed"):
            raise click.BadParameter(f"{key}: use --{key}")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
    try:
        read_settings(Item(values, ""), PlanSettings())
    except FormatError as error:
        raise click.BadParameter(str(error)) from None
    return values


@click.command(context_settings={"show_default": True})
@click.option("--cluster", "cluster_name", required=True, metavar="FILE|PRESET")
@click.option("--workload", "workload_name", required=True, metavar="FILE|PRESET|KIND:FILE")
@click.option("--policy", "policies", multiple=True, required=True, metavar="NAME",
              shell_complete=complete.policies,
              help="Several for a comparison; docs/policies.md has them all.")  # fmt: skip
@click.option("--round", "round_seconds", type=FiniteRange(min=1.0, max=MAX_SPAN), default=360.0,
              metavar="SECONDS",
              help="Length of a round; running jobs compete again when one begins.")  # fmt: skip
@click.option("--refresh", type=_SECONDS, default=0.0, metavar="SECONDS",
              help="Seconds between plans for idle GPUs; 0: at every event.")  # fmt: skip
@click.option("--restart-cost", type=_SECONDS, default=30.0, metavar="SECONDS",
              help="Time that a job holds GPUs without training, except at its first start; the"
              " workload takes precedence.")  # fmt: skip
@click.option("--profiling", type=_SECONDS, default=0.0, metavar="SECONDS",
              help="The same at a job's first start.")  # fmt: skip
@click.option("--switch-cost", type=_SECONDS, metavar="SECONDS", show_default=False,
              help="Hare's policies: jobs take turns on GPUs within a round, task by task, and this"
              " is the time to resume on a GPU; docs/simulator.md.")  # fmt: skip
@click.option("--count-planning", is_flag=True, help="Planning takes virtual time, too.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Seed of generated workloads and of the solver.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--jobs", type=click.IntRange(1, 1_000_000), help="Number of jobs of a preset.")
@click.option("--rate", type=FiniteRange(min=0.0, min_open=True), help="Jobs per hour.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE",
              callback=lambda _ctx, _param, assignments: read_assignments(assignments),
              help="A setting of planning, as in a snapshot file: gap=0.02, priority=las,"
              " tail_weight=1; docs/simulator.md.")  # fmt: skip
@click.option("--knowledge", type=click.Choice([k.value for k in Knows]), default="perfect",
              help="What policies know of speeds and run times: docs/simulator.md.")  # fmt: skip
@click.option("--speed-error", type=FiniteRange(0.0, 2.0), metavar="SIGMA",
              help="Standard deviation of the logarithm of known speeds on several GPUs; by"
              " default 0.12 where they are measured, else 0.")  # fmt: skip
@click.option("--time-error", type=FiniteRange(0.0, 5.0), metavar="SIGMA",
              help="The same for the samples that jobs declare.")  # fmt: skip
@click.option("--failures", "failure_file", metavar="FILE", help="Jobs and nodes that fail (JSON).")
@click.option("--report", is_flag=True, help="Also write OUT/report.html.")
@click.option("--predict", is_flag=True,
              help="Also write OUT/predictions.csv: when jobs were expected to start and end;"
              " docs/predictions.md.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
def simulate(
    cluster_name: str,
    workload_name: str,
    policies: Sequence[str],
    round_seconds: float,
    refresh: float,
    restart_cost: float,
    profiling: float,
    switch_cost: float | None,
    count_planning: bool,
    seed: int,
    out: Path,
    as_json: bool,
    jobs: int | None,
    rate: float | None,
    assignments: Mapping[str, Any],
    knowledge: str,
    speed_error: float | None,
    time_error: float | None,
    failure_file: str | None,
    report: bool,
    predict: bool,
    resume: bool,
) -> None:
    """Simulate a workload under one or more policies.

    A cluster is a file or paper-64, paper-512. A workload is a file, a preset, a log as
    philly:FILE, sacct:FILE or csv:FILE, or gavel:FILE for speeds that Gavel's authors measured.
    OUT gets jobs.csv, rounds.csv and timeline.jsonl.

    \b
    Examples:
      hopsctl simulate --cluster paper-64 --workload paper-64 \\
          --policy hops --policy slurm --out build/study --report
      hopsctl simulate --cluster cluster.json --workload sacct:month.txt \\
          --policy hops+ --out build/month

    Exit codes: 0 done, 1 failed, 2 a file or name is not what is accepted, 130 interrupted.
    """
    knows = KnowledgeSettings(Knows(knowledge), speed_error, time_error, seed)
    cluster = cluster_from(cluster_name)
    workload = workload_from(workload_name, cluster, seed=seed, jobs=jobs, rate=rate)
    for policy in policies:
        get(policy)
    if switch_cost is not None:
        refuse_beside_switches(
            policies, knows, refresh, count_planning, resume, failure_file, predict
        )
    failures: tuple[Failure, ...] = ()
    if failure_file is not None:
        failures = read_file(failure_file, lambda text: read_failures(text, cluster, workload))
    workload = admit(cluster, workload, round_seconds)
    plan = read_settings(Item(assignments, ""), replace(SimulationSettings().plan, seed=seed))
    settings = SimulationSettings(
        round_seconds,
        refresh,
        plan,
        ClusterSettings(restart_seconds=restart_cost, profiling_seconds=profiling),
        knows,
        horizon=horizon(workload, round_seconds),
        count_planning=count_planning,
    )
    run = partial(play_one, cluster=cluster, workload=workload, settings=settings,
                   failures=failures, folder=out, resume=resume, predict=predict)  # fmt: skip
    if switch_cost is not None:
        run = partial(take_turns, cluster=cluster, workload=workload, settings=settings,
                      switch_cost=switch_cost)  # fmt: skip
    html = partial(write_report, cluster=cluster, workload=workload, path=out / "report.html",
                   knowledge=str(knows))  # fmt: skip
    results, files = play_all(
        policies, run, html if report else None, out, resumable=switch_cost is None
    )
    if as_json:
        extra = {"knowledge": _knowledge_document(knows)} if knows.differs else {}
        show_json({"policies": {r.policy: figures(r) for r in results}, **files, **extra})
    else:
        show_results(results, f"Policies knew: {knows}")


def _knowledge_document(knows: KnowledgeSettings) -> dict[str, Any]:
    return {
        "of": knows.source.value,
        "speed_error": knows.speed_sigma,
        "time_error": knows.time_error or 0.0,
        "text": str(knows),
    }


def play_all(
    policies: Sequence[str],
    run: Callable[[str], PolicyResult],
    html: Callable[[Sequence[PolicyResult]], object] | None,
    folder: Path,
    references: Sequence[PolicyResult] = (),
    *,
    resumable: bool = True,
) -> tuple[list[PolicyResult], dict[str, str]]:
    """Run every policy; return the results and the files written. Ctrl-C keeps what is done.

    ``references``: results from elsewhere, listed first; ``resumable``: whether --resume can
    continue.
    """
    results = list(references)
    signal.signal(signal.SIGTERM, _interrupt)
    with alone(folder):
        try:
            for name in dict.fromkeys(policies):
                results.append(run(name))
                if missing := results[-1].unfinished:
                    complain(f"{name}: {count_of(len(missing), 'jobs')} never ended")
            files = write(results, folder)
            if html is not None:
                html(results)
        except KeyboardInterrupt:
            _leave(results, folder, resumable=resumable)
    return results, files


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _leave(results: Sequence[PolicyResult], folder: Path, *, resumable: bool) -> NoReturn:
    """Write the results so far and exit; a second Ctrl-C does not interrupt this."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    write(results, folder)
    hint = "with --resume continues from here" if resumable else "starts over"
    click.echo(f"\ninterrupted; the same command {hint}", err=True)
    sys.exit(130)


def admit(cluster: Cluster, workload: Workload, round_seconds: float) -> Workload:
    """Leave out the jobs that do not fit on an idle cluster, and name them on stderr."""
    playable, rejected_jobs = admit_jobs(cluster, workload, round_seconds)
    for job in rejected_jobs[:MAX_SHOWN]:
        complain(f"job {job} fits nowhere, even on an idle cluster: left out")
    if len(rejected_jobs) > MAX_SHOWN:
        complain(f"and {len(rejected_jobs) - MAX_SHOWN} more")
    return playable


def play_one(
    name: str,
    cluster: Cluster,
    workload: Workload,
    settings: SimulationSettings,
    failures: Sequence[Failure],
    folder: Path,
    *,
    resume: bool,
    predict: bool = False,
) -> PolicyResult:
    """Run one policy, with its progress on stderr and its plans in ``folder``."""
    settings = replace(settings, plan=replace(settings.plan, policy=name))
    run = fingerprint(__version__, name, cluster, workload, settings, failures)
    path = folder / "journal" / f"{name}.jsonl"
    with journal_policy(get(name), path, run, resume=resume) as policy, _progress(name) as progress:
        return play(name, policy, cluster, workload, settings, failures, progress, predict=predict)


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """Show the progress of a policy's run on stderr."""
    with ProgressBar(name, "jobs") as bar:
        yield lambda _now, ended_jobs, jobs: bar.show(ended_jobs, jobs)


def refuse_beside_switches(
    policies: Sequence[str],
    knows: KnowledgeSettings,
    refresh: float,
    count_planning: bool,
    resume: bool,
    failure_file: str | None,
    predict: bool,
) -> None:
    """Refuse policies and options that cannot be used with --switch-cost.

    Raises:
        InputError: names the policy or the option.
    """
    unsupported_policies = sorted(set(policies) - set(SCHEDULERS))
    if unsupported_policies:
        accepted_names = ", ".join(SCHEDULERS)
        raise InputError(
            f"--switch-cost: {unsupported_policies[0]} has no tasks; choose from {accepted_names}"
        )
    conflicts = {"--knowledge, --speed-error or --time-error": knows.differs,
             "--refresh": refresh > 0.0, "--count-planning": count_planning, "--resume": resume,
             "--failures": failure_file is not None, "--predict": predict}  # fmt: skip
    for option, in_use in conflicts.items():
        if in_use:
            raise InputError(f"{option} cannot be used with --switch-cost")


def take_turns(
    name: str,
    cluster: Cluster,
    workload: Workload,
    settings: SimulationSettings,
    switch_cost: float,
) -> PolicyResult:
    """Run one of Hare's policies, with jobs that take turns within rounds; progress on stderr."""
    with _progress(name) as progress:
        run = LaneSimulation(
            cluster, workload, SCHEDULERS[name], settings, switch_cost, progress
        ).run()
    return result_of(name, run, cluster, workload)


def show_results(results: Sequence[PolicyResult], title: str) -> None:
    """Print the figures side by side."""
    columns = ["policy", "makespan h", "JCT h", "p99 JCT h", "wait h",
               "max wait/run", "mean wait/run", "fragments", "max FTF", "unfair",
               "GPU use", "restarts", "needless", "s"]  # fmt: skip
    wide = ("p99 JCT h", "mean wait/run", "max FTF", "unfair", "needless", "s")
    show(table(title, columns, [_row(result) for result in results], wide=wide))


def _row(result: PolicyResult) -> tuple[Any, ...]:
    s = result.summary
    return (result.policy, s.makespan_h, s.avg_jct_h, s.p99_jct_h, s.avg_wait_h,
            s.max_latency_ratio, s.mean_latency_ratio, s.avg_fragments, s.max_ftf, s.unfair_share,
            s.gpu_utilisation, s.restarts, s.needless_restarts, result.wall_seconds)  # fmt: skip
