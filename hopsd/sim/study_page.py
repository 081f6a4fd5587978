"""Renders a study as a self-contained HTML page: figures side by side, plots, Gantt charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.facts import facts_of
from hopsd.sim.gantt import gantt
from hopsd.sim.metrics import throughput_over_time
from hopsd.sim.study import PolicyResult
from hopsd.sim.svg import Axis, chart, distribution

_ROWS = (
    ("Makespan, h", "makespan_h", "{:.2f}", -1),
    ("Mean completion time, h", "avg_jct_h", "{:.2f}", -1),
    ("Median completion time, h", "p50_jct_h", "{:.2f}", -1),
    ("99th percentile, h", "p99_jct_h", "{:.2f}", -1),
    ("Mean wait, h", "avg_wait_h", "{:.2f}", -1),
    ("Largest latency ratio", "max_latency_ratio", "{:.2f}", -1),
    ("Mean latency ratio", "mean_latency_ratio", "{:.3f}", -1),
    ("Fragments a round", "avg_fragments", "{:.2f}", -1),
    ("Largest finish-time fairness", "max_ftf", "{:.2f}", -1),
    ("Share treated unfairly", "unfair_share", "{:.1%}", -1),
    ("GPU time held", "gpu_utilisation", "{:.1%}", 0),
    ("Restarts", "restarts", "{:,}", 0),
    ("Restarts a job-hour", "restarts_per_job_hour", "{:.3f}", -1),
    ("Needless restarts", "needless_restarts", "{:,}", -1),
    ("Rounds", "rounds", "{:,}", 0),
)
"""Label, field of Summary, format, and whether more is better (1), worse (-1) or neither (0)."""

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;
color:#1c1c1c}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.figures{overflow-x:auto}table{border-collapse:collapse}td,th{padding:.25rem .8rem;text-align:right;
border-bottom:1px solid #e2e2e2}td:first-child,th:first-child{text-align:left}
.best{font-weight:600;color:#0b6e99}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(430px,1fr));gap:1rem}
svg{width:100%;height:auto;font:11px system-ui,sans-serif;background:#fcfcfc}
svg.gantt{font-size:10px}figure{margin:0}figcaption{font-weight:600}
"""


def write_report(
    results: Sequence[PolicyResult],
    cluster: Cluster,
    workload: Workload,
    path: Path,
    knowledge: str,
) -> None:
    """Write the self-contained page to ``path``. ``knowledge`` says what the policies knew."""
    path.write_text(page(results, cluster, workload, knowledge), encoding="utf-8")


def page(
    results: Sequence[PolicyResult], cluster: Cluster, workload: Workload, knowledge: str
) -> str:
    """Render the page as HTML text."""
    title = f"{len(workload.jobs)} jobs on {cluster.gpus} GPUs of {len(cluster.servers)} servers"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>Policies knew: {escape(knowledge)}.</p>{_table(results)}"
        f'<h2>Distributions</h2><div class="plots">{_plots(results, cluster, workload)}</div>'
        f"<h2>Servers over time</h2>{_gantts(results, cluster)}</body></html>"
    )


def _table(results: Sequence[PolicyResult]) -> str:
    head = "".join(f"<th>{escape(r.policy)}</th>" for r in results)
    rows = []
    for label, field, form, better in _ROWS:
        values = [getattr(r.summary, field) for r in results]
        best = max(values, key=lambda v: v * better) if better and len(values) > 1 else None
        cells = "".join(
            f'<td class="best">{form.format(v)}</td>' if v == best else f"<td>{form.format(v)}</td>"
            for v in values
        )
        rows.append(f"<tr><td>{escape(label)}</td>{cells}</tr>")
    unfinished_counts = [f"{r.policy}: {len(r.unfinished)}" for r in results if r.unfinished]
    note = (
        f"<p>Jobs that never ended: {escape(', '.join(unfinished_counts))}</p>"
        if unfinished_counts
        else ""
    )
    table = f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"
    return f'<div class="figures">{table}</div>{note}'


def _plots(results: Sequence[PolicyResult], cluster: Cluster, workload: Workload) -> str:
    jct = {r.policy: [o.jct / 3600 for o in r.outcomes if o.jct is not None] for r in results}
    ratio = {r.policy: [o.latency_ratio for o in r.outcomes] for r in results}
    ftf = {r.policy: [o.ftf for o in r.outcomes if o.ftf is not None] for r in results}
    figures = (
        ("Completion times", distribution("completion times", "hours", jct)),
        ("Latency ratios", distribution("latency ratios", "waiting / expected run time", ratio)),
        ("Finish-time fairness", distribution("fairness", "shared / alone", ftf)),
        ("Throughput", _throughput(results, cluster, workload)),
    )
    return "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in figures
    )


def _throughput(results: Sequence[PolicyResult], cluster: Cluster, workload: Workload) -> str:
    facts = facts_of(cluster, workload)
    lines: dict[str, list[tuple[float, float]]] = {}
    for result in filter(_was_simulated, results):
        times, rates = throughput_over_time(result.changes, facts)
        lines[result.policy] = list(zip((times / 3600).tolist(), rates.tolist(), strict=True))
    points = [point for line in lines.values() for point in line]
    x = Axis("hours", 0.0, max((p[0] for p in points), default=1.0))
    y = Axis("samples per second", 0.0, max((p[1] for p in points), default=1.0))
    return chart("throughput", x, y, lines, steps=True)


def _gantts(results: Sequence[PolicyResult], cluster: Cluster) -> str:
    """Render each policy's Gantt chart, the first one unfolded."""
    return "".join(
        f"<details{' open' if number == 0 else ''}><summary>{escape(result.policy)}</summary>"
        f"{gantt(cluster, result.changes, result.rounds)}</details>"
        for number, result in enumerate(filter(_was_simulated, results))
    )


def _was_simulated(result: PolicyResult) -> bool:
    """Whether it is known where its jobs ran."""
    return bool(result.changes)
