"""The rivals' workloads under our policies, and through their authors' simulators.

    python -m bench.rivals --sia DIR [--trace philly-1 ...] [--policy hops+ ...]
        [--round 60 ...] [--restart 30] [--rigid] [--tail-weight 0]
        [--late 60 [--seed 0 ...]]
    python -m bench.rivals --sia DIR --python PYTHON [--trace philly-1 ...] [--round 60 ...]
        [--rigid]
    python -m bench.rivals --shockwave DIR --speeds FILE [--cluster v100|mixed] [as --sia DIR]
    python -m bench.rivals --gavel DIR --python PYTHON [--policy gavel-ftf ...] [--round 360 ...]
        [--reset 1920 ...] [--jobs 500] [--gpus 256] [--seed 0 ...] [--solver ECOS]

``--sia``: the authors' ``sia-simulator`` (github: siasosp23/artifacts). Prints mean and 99 %
completion time and makespan in hours, the largest latency ratio and the largest finish-time
fairness. With ``--late``, every job is submitted up to that many seconds later, by another draw for
each seed; prints the means over the seeds, and the ratios of the first policy to the others.
``--gavel``: the authors' ``scheduler`` (github: stanford-futuredata/gavel). Both may be given.
``--shockwave``: the authors' ``scheduler`` (github: uw-mad-dash/shockwave); ``--speeds``: Gavel's
``simulation_throughputs.json``. Rounds are of 360 s there by default.

With ``--python``, an interpreter with the authors' requirements (Gavel: numpy, cvxpy, psutil and
the solver; Sia: autograd, cvxpy, cylp, numpy, pandas, rich and scipy), the same jobs are played
by their simulator and by ours. Prints mean completion time and makespan of both in hours, ours over
theirs, and the correlation of the jobs' completion times. Restarts cost what they cost in their
simulator: nothing under Gavel, by application under Sia. ``--reset`` is how many seconds Gavel's
scheduler keeps its shares of time; 0 means one round, as in ours.

None of the authors' code or data is part of this repository.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.rivals import gavel, late, shockwave, sia
from bench.rivals.compare import comparison
from hopsd.errors import HopsError
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.study import play

COMPARISON_COLUMNS = (
    "mean, h: theirs | ours | ratio | end, h: theirs | ours | ratio | correlation |"
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rivals", description=__doc__)
    parser.add_argument("--sia", type=Path)
    parser.add_argument("--gavel", type=Path)
    parser.add_argument("--shockwave", type=Path)
    parser.add_argument("--speeds", type=Path)
    parser.add_argument("--cluster", choices=shockwave.CLUSTERS, default="v100")
    parser.add_argument("--trace", action="append")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--round", action="append", type=float)
    parser.add_argument("--restart", type=float, default=30.0)
    parser.add_argument("--rigid", action="store_true")
    parser.add_argument("--tail-weight", type=float, default=PlanSettings().tail_weight)
    parser.add_argument("--late", type=float)
    parser.add_argument("--python", help="an interpreter with the authors' requirements")
    parser.add_argument("--solver", default="ECOS")
    parser.add_argument("--reset", action="append", type=float)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--seed", action="append", type=int)
    options = parser.parse_args(arguments)
    if options.gavel is None and options.sia is None and options.shockwave is None:
        parser.error("one of --sia, --gavel and --shockwave is needed")
    if options.shockwave is not None:
        _on_shockwaves_traces(parser, options)
    if options.gavel is not None:
        _beside_gavel(parser, options)
    if options.sia is not None and options.python is not None:
        _beside_sia(parser, options)
    elif options.sia is not None:
        _on_sias_traces(parser, options)


def _traces(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Path]:
    """The requested traces of Sia by name."""
    names = options.trace or ["philly-1", "saturn-1"]
    return _select_traces(parser, options.sia, sia.traces(options.sia), names)


def _select_traces(
    parser: argparse.ArgumentParser, folder: Path, paths: dict[str, Path], names: Sequence[str]
) -> dict[str, Path]:
    if not paths:
        parser.error(f"{folder} has no traces")
    if unknown := sorted(set(names) - paths.keys()):
        parser.error(f"{folder} has no trace {unknown[0]}; there are {', '.join(paths)}")
    return {name: paths[name] for name in names}


def _beside_sia(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    kind = "rigid" if options.rigid else "elastic"
    print(f"| work | round, s | {COMPARISON_COLUMNS}")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, path in _traces(parser, options).items():
        load = sia.with_their_restarts(sia.workload(options.sia, path, rigid=options.rigid))
        for seconds in options.round or [60.0]:
            our_hours = _completion_hours("sia", sia.cluster(), load, seconds)
            their_hours = sia.run_authors_simulator(
                options.sia, options.python, path, rigid=options.rigid, round_seconds=seconds
            )
            row = comparison(load, their_hours, our_hours)
            print(f"| {name}, {kind} | {seconds:.0f} | {row} |", flush=True)


def _on_sias_traces(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    works = {
        name: (sia.cluster(), sia.workload(options.sia, path, rigid=options.rigid))
        for name, path in _traces(parser, options).items()
    }
    _print_figures(works, options, options.round or [60.0])


def _on_shockwaves_traces(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.speeds is None:
        parser.error("--shockwave needs --speeds, Gavel's simulation_throughputs.json")
    all_paths = shockwave.traces(options.shockwave)
    paths = _select_traces(parser, options.shockwave, all_paths, options.trace or sorted(all_paths))
    kind, works = options.cluster, {}
    for name, path in paths.items():
        try:
            load = shockwave.workload(options.speeds, path, kind, rigid=options.rigid)
            works[f"{name}, {kind}"] = shockwave.cluster(path, kind), load
        except HopsError as error:
            parser.error(str(error))
    _print_figures(works, options, options.round or [360.0])


def _print_figures(
    works: Mapping[str, tuple[Cluster, Workload]],
    options: argparse.Namespace,
    rounds: Sequence[float],
) -> None:
    print("| work | round, s | policy | mean, h | 99 %, h | end, h | largest LR | largest FTF |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    plan = PlanSettings(
        effort=0,
        time_limit_seconds=MAX_PLAN_SECONDS,
        tail_weight=options.tail_weight,
    )
    for name, (cluster, load) in works.items():
        for seconds in rounds:
            work = f"| {name}, {'rigid' if options.rigid else 'elastic'} | {seconds:.0f}"
            settings = SimulationSettings(
                seconds, plan=plan, cluster=ClusterSettings(options.restart)
            )
            for policy, row in _rows(options, cluster, load, settings):
                print(f"{work} | {policy} | {row} |", flush=True)


def _rows(
    options: argparse.Namespace, cluster: Cluster, load: Workload, settings: SimulationSettings
) -> Iterator[tuple[str, str]]:
    policies = options.policy or ["hops+", "hops", "sia"]
    if options.late is None:
        for policy in policies:
            row = " | ".join(f"{value:.3g}" for value in figures(policy, cluster, load, settings))
            yield f"`{policy}`", row
        return
    loads = [late.later(load, options.late, seed) for seed in options.seed or range(5)]
    yield from late.rows(
        {
            policy: [figures(policy, cluster, variant, settings) for variant in loads]
            for policy in policies
        }
    )


def _beside_gavel(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    policies = options.policy or list(gavel.POLICIES)
    if unknown := sorted(set(policies) - gavel.POLICIES.keys()):
        parser.error(f"Gavel has no {unknown[0]}; there are {', '.join(gavel.POLICIES)}")
    if options.python is None:
        parser.error("--gavel needs --python, an interpreter with the authors' requirements")
    print(f"| seed | round, s | reset, s | policy | {COMPARISON_COLUMNS}")
    print("|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for seed in options.seed or [0]:
        try:
            work = gavel.work(options.gavel, seed, options.jobs, options.gpus)
        except HopsError as error:
            parser.error(str(error))
        for seconds in options.round or [360.0]:
            for policy in policies:
                our_hours = _completion_hours(policy, work.cluster, work.workload, seconds)
                for reset in options.reset or [gavel.RESET_SECONDS]:
                    their_hours = gavel.run_authors_simulator(
                        options.gavel, options.python, policy, work, seconds, options.solver, reset
                    )
                    row = comparison(work.workload, their_hours, our_hours)
                    print(f"| {seed} | {seconds:.0f} | {reset:.0f} | `{policy}` | {row} |",
                          flush=True)  # fmt: skip


def _completion_hours(
    policy: str, cluster: Cluster, load: Workload, round_seconds: float
) -> list[float]:
    """Completion times in order of arrival; only restarts set by the jobs themselves cost time."""
    settings = SimulationSettings(
        round_seconds,
        plan=PlanSettings(effort=0, time_limit_seconds=MAX_PLAN_SECONDS),
        cluster=ClusterSettings(0.0),
    )
    result = play(policy, get(policy), cluster, load, settings)
    ends = {outcome.id: outcome.end or math.inf for outcome in result.outcomes}
    return [(ends[job.id] - job.submit) / 3600.0 for job in load.jobs]


def figures(
    policy: str, cluster: Cluster, load: Workload, settings: SimulationSettings
) -> late.Figures:
    summary = play(policy, get(policy), cluster, load, settings).summary
    return (
        summary.avg_jct_h,
        summary.p99_jct_h,
        summary.makespan_h,
        summary.max_latency_ratio,
        summary.max_ftf,
    )


if __name__ == "__main__":
    main()
