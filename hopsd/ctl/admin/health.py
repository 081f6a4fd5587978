"""`hopsctl health`: nodes that are slow, and nodes that break jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from hopsd.ctl.render import show, show_json, table
from hopsd.formats.health import health_json, read_health
from hopsd.formats.source import read_text
from hopsd.health.judge import judge
from hopsd.health.records import Health


@click.command()
@click.option("--records", required=True, metavar="FILE|-", help="Judge the records in a file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def health(records: str, as_json: bool) -> None:
    """Name servers that are slow and servers that break jobs, from ordinary trainings' records.

    \b
    Examples:
      hopsctl health --records examples/files/health.json
      hopsctl health --records - --json < examples/files/health.json

    Exit codes: 0 judged, 2 the file is not one of records.
    """
    result = judge(read_health(read_text(records)))
    if as_json:
        show_json(health_json(result))
        return
    show_health(result)


def show_health(result: Health) -> None:
    """The verdicts for people, each with its evidence in numbers."""
    if result.slow:
        rows = [
            (
                slow.node,
                f"{1.0 - slow.factor:.1%}",
                f"{1.0 - slow.high:.1%} to {1.0 - slow.low:.1%}",
                "the first record" if slow.since is None else _time(slow.since),
            )
            for slow in result.slow
        ]
        show(table("Slow nodes", ["node", "slower by", "95 % interval", "since"], rows))
    if result.lemons:
        rows_of_lemons = [
            (lemon.node, lemon.failures, f"{lemon.expected:.1f}", f"{lemon.p:.1g}")
            for lemon in result.lemons
        ]
        head = ["node", "failed runs", "expected", "probability by chance"]
        show(table("Nodes that break jobs", head, rows_of_lemons))
    if not result.slow and not result.lemons:
        print("No node is slow or breaks jobs, as far as the records tell.")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
