"""`python -m bench.health.starts`: how soon a server shows that became slow before its runs began.

A server of a simulated site becomes slow just before a run begins there, so that no run can be
compared with itself. Its earlier runs were at its usual speed. It is judged by what hopsd stores
after ten minutes of that training, and later. "At best" is what `bench.health.oracle` can name with
one false alarm in 1,000 server-days.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.health.oracle import power, standard_error, whole_runs
from bench.health.site import DAY, GPUS, SiteSettings, Slowdown, as_stored, simulate
from bench.result_file import write_result
from hopsd.health.records import HealthRecords, SpeedRecord
from hopsd.health.slow import find_slow

SITE = SiteSettings(nodes=20, days=3.2)
ONSET = 1.5 * DAY
LOOKS = (600.0, 1800.0, 4.0 * 3600.0, DAY)
"""Seconds of training on the server after which it is judged."""

MIN_LOSS = 0.05
"""Smaller losses take a day to show, and are tabulated by the number of runs in it."""

RUNS_A_DAY = 6
FALSE_ALARMS = 1e-3
"""False alarms in a server-day. The test may fail at each of the RUNS_A_DAY runs that begin, or
once in every span as long as the training before a look, whichever is rarer.
"""

KINDS = (
    *((0.05, noise, server_count) for noise in (0.005, 0.02) for server_count in (0, 3, 4, 8)),
    (0.02, 0.005, 0),
    (0.02, 0.02, 0),
)
"""How much slower the server is, the noise of a report, and on how many servers a new workload
begins at once, 0 for a known workload.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """The outcome of one simulated site.

    ``other_runs`` is the number of other servers that ran the first run's workload. ``seconds`` is
    the training until the server was named, infinite if it never was; ``right`` says that its
    interval held the truth. ``false`` is the number of healthy servers named at some look. ``best``
    is the largest possible probability of naming the server, at each look. ``runs`` is the number
    of runs that began alone on it until the last look.
    """

    other_runs: int
    seconds: float
    right: bool
    false: int
    best: tuple[float, ...]
    runs: int


def judge(
    seed: int, loss: float, noise: float, at_once: int = 0, looks: Sequence[float] = LOOKS
) -> Case | None:
    """Judge a slow server on which a run of a known workload begins or, on ``at_once`` servers at
    once, of a new one; None if no run began in time. ``noise`` is that of a report.
    """
    servers = tuple(range(0, 2 * at_once, 2))
    site = replace(SITE, noise=noise, common_servers=servers, together_at=ONSET)
    first = _first_run(simulate(site, seed), new=bool(at_once))
    if first is None:
        return None
    begin = first[0].at - site.interval
    records = simulate(replace(site, slow=(Slowdown(0, loss, begin - 1.0),)), seed)
    minutes = np.unique([r.at // site.interval for r in records.records if _is_later(r, begin)])
    false: set[str] = set()
    node, best = records.nodes[0].name, list[float]()
    case = Case(_server_count(records, first), np.inf, False, 0, (), 0)
    for seconds in looks:
        place = round(seconds / site.interval) - 1
        if place >= len(minutes):
            break
        stored_records = as_stored(records, float(minutes[place] + 1) * site.interval)
        chance = FALSE_ALARMS / min(RUNS_A_DAY, DAY / seconds)
        best.append(power(loss, standard_error(stored_records, site, node, begin), chance))
        runs = [
            run for run in whole_runs(stored_records) if node in run[0].nodes and run[0].at > begin
        ]
        case = replace(case, best=tuple(best), runs=len(runs))
        if case.seconds < np.inf:
            continue
        slow = {verdict.node: verdict for verdict in find_slow(stored_records)}
        verdict = slow.pop(node, None)
        false |= slow.keys()
        if verdict is not None:
            right = verdict.low <= 1.0 - loss <= verdict.high
            case = replace(case, seconds=seconds, right=right)
    return replace(case, false=len(false))


def _is_later(record: SpeedRecord, begin: float) -> bool:
    return "n0" in record.nodes and record.at > begin


def _first_run(records: HealthRecords, *, new: bool) -> list[SpeedRecord] | None:
    """Return the reports of the first run of more than ten minutes that begins alone on the first
    server after ONSET.
    """
    runs: dict[str, list[SpeedRecord]] = defaultdict(list)
    for record in records.records:
        if "n0" in record.nodes:
            runs[record.job].append(record)
    for run in runs.values():
        alone = run[0].nodes == {records.nodes[0].name: GPUS}
        right_kind = not new or run[0].workload == "w1000000"
        if run[0].at > ONSET and alone and right_kind and len(run) > LOOKS[0] / SITE.interval:
            return run
    return None


def _server_count(records: HealthRecords, first: Sequence[SpeedRecord]) -> int:
    """Count the other servers on which the workload ran alone in that shape by the first look."""
    types = {node.name: node.gpu_type for node in records.nodes}
    workload, until = first[0].workload, first[0].at + LOOKS[0]
    usual = types[records.nodes[0].name]
    return len(
        {
            name
            for record in records.records
            if record.workload == workload and record.at < until
            for name, gpus in record.nodes.items()
            if gpus == GPUS and len(record.nodes) == 1 and types[name] == usual
        }
        - {records.nodes[0].name}
    )


def main() -> None:
    options = _options()
    began = time.process_time()
    rows, by_runs = [], []
    cases: list[Case] = []
    for loss, noise, at_once in KINDS:
        seeds = range(options.seed, options.seed + options.sites)
        all_cases = [judge(seed, loss, noise, at_once) for seed in seeds]
        of_kind = [case for case in all_cases if case is not None]
        cases += of_kind
        kind = (
            f"| {loss:.0%} | {noise:.1%} | {'is new, at once' if at_once else 'is known, before'}"
        )
        for server_count, members in _groups(
            of_kind, [case.other_runs for case in of_kind]
        ).items():
            shares = " | ".join(_share(members, look) for look in range(len(LOOKS)))
            rows.append(f"{kind} on {server_count} other servers | {len(members)} | {shares} |")
        if loss < MIN_LOSS:
            for runs, members in _groups(of_kind, [case.runs for case in of_kind]).items():
                cells = f"{loss:.0%} | {noise:.1%} | {runs} | {len(members)}"
                by_runs.append(f"| {cells} | {_share(members, len(LOOKS) - 1)} |")
    hits = [case for case in cases if case.seconds < np.inf]
    looks = " | ".join(
        f"{look / 60:g} min" if look < 3600 else f"{look / 3600:g} h" for look in LOOKS
    )
    noises = "slower by | noise of a report, one a minute"
    text = "\n".join(
        [
            (
                f"{options.sites} sites of {SITE.nodes} servers each; {SITE.run:.1%} between runs."
                " Named after so much training on the server, and at best."
            ),
            "",
            f"| {noises} | a run begins of a workload that | cases | {looks} |",
            f"|---:|---:|---|{'---:|' * (len(LOOKS) + 1)}",
            *rows,
            "",
            f"| {noises} | runs began alone on it in 24 h of training | cases | named in 24 h |",
            "|---:|---:|---:|---:|---:|",
            *by_runs,
            "",
            (
                f"{sum(c.right for c in hits)} of {len(hits)} intervals hold the truth;"
                f" {sum(c.false for c in cases)} of {len(cases) * (SITE.nodes - 1):,} healthy"
                f" servers were named. {time.process_time() - began:.0f} CPU s."
            ),
        ]
    )
    print(text)
    write_result("health_starts", "Runs that begin on a slow server", text)


def _groups(cases: Sequence[Case], counts: Sequence[int]) -> Mapping[str, list[Case]]:
    """Group the cases by their counts."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for count, case in sorted(zip(counts, cases, strict=True), key=lambda pair: pair[0]):
        groups[str(count) if count < 3 else "3 or 4" if count < 5 else "5 or more"].append(case)
    return groups


def _share(cases: Sequence[Case], look: int) -> str:
    """Format the share of cases named by a look, and at best; only cases with that look count."""
    members = [case for case in cases if len(case.best) > look]
    if not members:
        return ""
    share = np.mean([case.seconds <= LOOKS[look] for case in members])
    return f"{share:.0%}, {np.mean([case.best[look] for case in members]):.0%}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health.starts")
    parser.add_argument("--sites", type=int, default=40, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first site")
    return parser.parse_args()


if __name__ == "__main__":
    main()
