"""Measures predictions of starts and ends on traces that were not used to build the predictor.

    python -m bench.predict [--philly FILE] [--sia DIR] [--shockwave DIR --speeds FILE]
        [--only TEXT ...] [--record | --no-run] [--workers N]
    python -m bench.predict --learn steady|elastic [--event EVENT ...] [--number N ...]
        # writes hopsd/predict/prior.json

Folders are those of ``bench.rivals``. For each trace, policy and kind, prints the number of
predictions; how many are certain (without width besides the margin), and how many of these came
true; how many of the others came true, and their median width; the median and mean absolute error;
the same errors of Slurm's backfill with time limits (starts) or of ``samples left / present speed``
(ends), with our median as a share of theirs; and the shares of errors within one and ten minutes.
Then prints the same by load, by time ahead, and for starts predicted at submission.

What a predictor sees during a trace is kept under build/predict. Its playouts and its predictions
are kept in folders there that are named by digests of the code. Only what is missing is simulated
or predicted, so an interrupted run can be continued. ``--record`` only makes the recordings and
playouts, which serve every calibration, with the policies in turn. ``--no-run`` predicts only for
the traces that are kept. ``--only`` selects cases whose name contains the text. Without it, the
tables of docs/predictions.md are written, too.
"""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from hashlib import sha256
from operator import itemgetter
from pathlib import Path

import click
import numpy as np

from bench.predict.replay import Case, Replay, load_or_record, playouts_of, replay, true_of
from bench.predict.works import Folders, to_learn, works
from bench.result_file import write_result
from hopsd.model.arrays import Floats
from hopsd.predict.calibration import Kind, PredictedEvent
from hopsd.predict.predictor import AHEAD_SECONDS, PLAYOUTS, Predictor
from hopsd.predict.prior import FILE, Residual, family_of, learn_prior
from hopsd.predict.traits import traits_of

PRIOR = Path("hopsd/predict") / FILE
RECORD_FOLDER = Path("build/predict")
PAGE = Path("docs/predictions.md")
BEGIN, END = "<!-- Below: written by python -m bench.predict -->", "<!-- Above: written -->"
PLAYOUT_FILES = (
    *(f"hopsd/predict/{name}.py" for name in ("arrivals", "capacity", "limit_share")),
    *(f"hopsd/predict/{name}.py" for name in ("past_errors", "playout", "schedule")),
    *(f"hopsd/predict/{name}.py" for name in ("strata", "traits")),
    "hopsd/policies/timetable.py",
)
PREDICTOR_FILES = (
    "hopsd/predict/*.py",
    "hopsd/predict/prior.json",
    "hopsd/policies/timetable.py",
    "bench/predict/replay.py",
)
LONG = "Philly"
"""The trace that takes long to simulate under policies that move jobs."""

RATIO_SECONDS = 60.0
"""No ratio is shown for errors below this."""

LOADS = (100, 150, 250)
AHEADS = (60.0, 600.0, 3600.0, 6 * 3600.0)
FAMILIES = ("steady", "elastic")
EVENTS = tuple(event.value for event in PredictedEvent)


def learn(family: str, events: Sequence[str], numbers: Sequence[int], workers: int) -> None:
    """Write the prior of the family for the events, learnt from those of the numbered works whose
    policy is of the family; keep other events as they are.
    """
    with ProcessPoolExecutor(workers) as pool:
        all_cases = map(to_learn, numbers)
        cases = [case for case in all_cases if family_of(traits_of(case.policy)) == family]
        residuals = [residual for part in pool.map(_residuals, cases) for residual in part]
    prior = json.loads(PRIOR.read_text())
    learned = learn_prior(residuals)[family]
    old = {name: of for name, of in prior[family].items() if name.split("/")[0] not in events}
    new = {name: of for name, of in learned.items() if name.split("/")[0] in events}
    prior[family] = dict(sorted((old | new).items()))
    PRIOR.write_text(_one_class_a_line(prior))


def _one_class_a_line(prior: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Format a prior as JSON with the residuals of each class in one line."""
    families = []
    for family, classes in prior.items():
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(of)}" for name, of in classes.items())
        families.append(f"{json.dumps(family)}: {{\n{lines}\n}}")
    return "{\n" + ",\n".join(families) + "\n}\n"


def _residuals(case: Case) -> list[Residual]:
    """Residuals of one work to learn from."""
    traits = traits_of(case.policy)
    return [
        Residual(
            traits, p.residual_class, p.forecast.outcome - p.forecast.centre, p.forecast.weight
        )
        for p in replay_case(case).predictions
        if p.forecast is not None and p.forecast.weight > 0.0 and p.forecast.outcome is not None
    ]


Row = tuple[float, float, float, float, float, float, float, float, float]
"""at, expected, low, high, true, rival (NaN: none), load, 1 if the first of its job, 1 if certain,
that is, without width besides the margin.
"""


def rows_that_came(replay_of_case: Replay, kind: Kind) -> Floats:
    """Rows of the predictions of one kind whose events happened."""
    true = true_of(replay_of_case)
    rival = (
        replay_of_case.playouts.backfill
        if kind is Kind.START
        else replay_of_case.playouts.present_speed
    )
    rows: list[Row] = []
    jobs_seen = set()
    for p in replay_of_case.predictions:
        if (
            p.kind is kind
            and p.residual_class[0] != PredictedEvent.RESTART
            and (p.job, kind) in true
        ):
            rival_prediction = rival.get((p.job, p.at), np.nan)
            load, first = replay_of_case.playouts.load.get(p.at, 0), float(p.job not in jobs_seen)
            actual_time, certain = true[p.job, kind], float(p.certain)
            rows.append(
                (
                    p.at,
                    p.expected,
                    p.low,
                    p.high,
                    actual_time,
                    rival_prediction,
                    load,
                    first,
                    certain,
                )
            )
            jobs_seen.add(p.job)
    return np.array(rows, dtype=np.float64).reshape(len(rows), 9)


def path_of(case: Case) -> Path:
    """Path of the recording of ``case``."""
    return RECORD_FOLDER / f"{case.label.replace('/', ' per ')}.pickle.gz"


def in_turn(cases: Sequence[Case]) -> list[Case]:
    """Order cases for recording: the long ones come last, and policies take turns."""
    count: Counter[tuple[bool, str]] = Counter()
    turns = []
    for case in cases:
        long = case.policy != "slurm" and LONG in case.label
        turns.append((long, count[long, case.policy]))
        count[long, case.policy] += 1
    return [case for _, case in sorted(zip(turns, cases, strict=True), key=itemgetter(0))]


def play(case: Case) -> None:
    """Record a trace and its playouts unless they are kept already."""
    began = time.process_time()
    recording = load_or_record(case, path_of(case))
    recorded_at = time.process_time()
    playouts_of(case, recording, playouts_path(case))
    if (seconds := time.process_time() - began) > 5.0:
        print(f"{case.label}: {recorded_at - began:.0f} of {seconds:.0f} s", flush=True)


def replay_case(case: Case) -> Replay:
    """Predictions over a trace."""
    recording = load_or_record(case, path_of(case))
    return replay(case, recording, playouts_of(case, recording, playouts_path(case)))


def digest(patterns: Iterable[str], *more: str) -> str:
    """Digest of files and of further texts."""
    total = sha256("".join(more).encode())
    for pattern in patterns:
        for path in sorted(Path().glob(pattern)):
            total.update(path.read_bytes())
    return total.hexdigest()[:16]


@cache
def playouts_digest() -> str:
    """Digest of the code that playouts depend on."""
    play, table = inspect.getsource(Predictor._play), inspect.getsource(Predictor._timetable)
    return digest(PLAYOUT_FILES, play, table, f"{PLAYOUTS} {AHEAD_SECONDS}")


def playouts_path(case: Case) -> Path:
    """Path of the playouts of ``case``."""
    return RECORD_FOLDER / "playouts" / playouts_digest() / path_of(case).name


def rows_of(case: Case) -> dict[Kind, Floats]:
    """Rows of both kinds; kept from an earlier run of the same code on the same recording."""
    play(case)
    path = path_of(case)
    rows = (
        RECORD_FOLDER
        / "rows"
        / digest(PREDICTOR_FILES)
        / f"{path.stem}.{path.stat().st_mtime_ns}.npz"
    )
    if not rows.exists():
        result = replay_case(case)
        print(f"{case.label}: {result.seconds:.0f} s", flush=True)
        rows.parent.mkdir(parents=True, exist_ok=True)
        partial = rows.with_suffix(".part.npz")
        np.savez_compressed(
            partial, start=rows_that_came(result, Kind.START), end=rows_that_came(result, Kind.END)
        )
        partial.replace(rows)
    with np.load(rows) as arrays:
        return {kind: arrays[kind.value] for kind in Kind}


def line(name: str, rows: Floats) -> str:
    """One line of a table."""
    if not len(rows):
        return f"| {name} | 0 | | | | | | | |"
    _, expected, low, high, true, rival, _, _, certain = rows.T
    error, rival_error = np.abs(expected - true), np.abs(rival - true)
    has_rival = ~np.isnan(rival_error)
    rival_error = rival_error[has_rival]
    rival_cell = ""
    if len(rival_error):
        rival_cell = f"{np.median(rival_error):,.0f}/{np.mean(rival_error):,.0f}"
        if np.median(rival_error) >= RATIO_SECONDS:
            rival_cell += f" ({np.median(error[has_rival]) / np.median(rival_error):.0%})"
    p_low, p_high = true < low - 1e-6, true > high + 1e-6
    sure = certain > 0.0
    of_sure = f"{np.mean(sure):.0%}"
    if sure.any():
        of_sure += f" ({1.0 - np.mean((p_low | p_high)[sure]):.0%})"
    right = width = ""
    if not sure.all():
        p_low, p_high = np.mean(p_low[~sure]), np.mean(p_high[~sure])
        right = f"{1.0 - p_low - p_high:.0%} ({p_low:.0%}, {p_high:.0%})"
        width = f"{np.median((high - low)[~sure]):,.0f}"
    return (
        f"| {name} | {len(rows):,} | {of_sure} | {right} | {width}"
        f" | {np.median(error):,.0f}/{np.mean(error):,.0f}"
        f" | {rival_cell} | {np.mean(error < 60):.0%} | {np.mean(error < 600):.0%} |"
    )


HEAD = (
    "| {} | predictions | certain (right) | others right (too early, too late) | width, s"
    " | error, s: median/mean | {}'s (ours of it) | < 1 min | < 10 min |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)
RIVALS = {Kind.START: "backfill", Kind.END: "present speed"}


Results = Sequence[tuple[Case, dict[Kind, Floats]]]


def all_rows(results: Results, kind: Kind) -> Floats:
    """Rows of all cases."""
    return np.concatenate([rows[kind] for _, rows in results])


def by_policy(results: Results, kind: Kind) -> Iterable[str]:
    """A line for each policy."""
    for policy in sorted({case.policy for case, _ in results}):
        policy_results = [(case, rows) for case, rows in results if case.policy == policy]
        yield line(f"`{policy}`, replays: {len(policy_results)}", all_rows(policy_results, kind))


def by_load(rows: Floats) -> Iterable[str]:
    """A line for each range of demand for GPUs."""
    for low, high in zip((0, *LOADS), (*LOADS, np.inf), strict=True):
        inside = (rows[:, 6] >= low) & (rows[:, 6] < high)
        yield line(f"GPUs wanted: {low} to {high:g} %", rows[inside])


def scope_of(results: Results, whole: int) -> str:
    """A sentence that says which replays a table covers."""
    names = sorted({case.name.removesuffix(", elastic") for case, _ in results})
    return f"Of {len(results)} of {whole} replays, of {'; '.join(names)}."


def summary(results: Results, whole: int) -> str:
    """The tables of docs/predictions.md."""
    starts = all_rows(results, Kind.START)
    lines = [
        f"Of {len(results)} of {whole} replays.",
        "",
        HEAD.format("starts", RIVALS[Kind.START]),
        *by_policy(results, Kind.START),
        line("all, at submission", starts[starts[:, 7] > 0.0]),
        *by_load(starts),
        "",
        HEAD.format("ends", RIVALS[Kind.END]),
        *by_policy(results, Kind.END),
    ]
    return "\n".join(lines)


def write_summary(text: str) -> None:
    """Replace the tables in docs/predictions.md by ``text``."""
    page = PAGE.read_text()
    before, begin, page_end = page.partition(BEGIN)
    _, end, after = page_end.partition(END)
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def tables(results: Results) -> Iterable[str]:
    """All tables."""
    for kind in Kind:
        yield f"## {kind.value.capitalize()}s\n"
        yield HEAD.format("trace", RIVALS[kind])
        for case, rows in results:
            yield line(case.label, rows[kind])
        rows_all = all_rows(results, kind)
        yield from by_policy(results, kind)
        yield line("all", rows_all)
        if kind is Kind.START:
            yield line("all, at submission", rows_all[rows_all[:, 7] > 0.0])
        yield from by_load(rows_all)
        lead_seconds = rows_all[:, 1] - rows_all[:, 0]
        for first, last in zip((0.0, *AHEADS), (*AHEADS, np.inf), strict=True):
            inside = (lead_seconds >= first) & (lead_seconds < last)
            yield line(f"{first / 60:g} to {last / 60:g} min ahead", rows_all[inside])
        yield ""


EXISTING_FOLDER = click.Path(exists=True, path_type=Path)


@click.command()
@click.option("--philly", type=EXISTING_FOLDER)
@click.option("--sia", type=EXISTING_FOLDER)
@click.option("--shockwave", type=EXISTING_FOLDER)
@click.option("--speeds", type=EXISTING_FOLDER)
@click.option("--only", multiple=True, help="Cases whose name has this text.")
@click.option("--record", is_flag=True, help="Play what is missing, and predict nothing.")
@click.option("--no-run", is_flag=True, help="Of the traces that are kept alone.")
@click.option("--learn", "family", type=click.Choice(FAMILIES), help="Write the prior instead.")
@click.option(
    "--event", "events", type=click.Choice(EVENTS), multiple=True, default=EVENTS, help="To learn."
)
@click.option("--number", "numbers", type=int, multiple=True, default=range(50), help="To learn.")
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Processes.")
def main(
    philly: Path | None,
    sia: Path | None,
    shockwave: Path | None,
    speeds: Path | None,
    only: Sequence[str],
    record: bool,
    no_run: bool,
    family: str | None,
    events: Sequence[str],
    numbers: Sequence[int],
    workers: int,
) -> None:
    if family is not None:
        learn(family, events, numbers, workers)
        return
    all_works = list(works(Folders(philly, sia, shockwave, speeds)))
    cases = [
        case
        for case in all_works
        if (not only or any(text in case.label for text in only))
        and (not no_run or path_of(case).exists())
    ]
    with ProcessPoolExecutor(workers) as pool:
        if record:
            list(pool.map(play, in_turn(cases)))
            return
        results = list(zip(cases, pool.map(rows_of, cases), strict=True))
    text = "\n".join([scope_of(results, len(all_works)), "", *tables(results)])
    print(text)
    if not only:
        write_result("predictions", "Predicted starts and ends", text)
        write_summary(summary(results, len(all_works)))


if __name__ == "__main__":
    main()
