"""Every prediction of a run of the demo, beside what came true."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import RenderableType

from hopsd.ctl.render import table
from hopsd.model.reason import duration

COLUMNS = ("at", "id", "kind", "expected", "low", "high", "actual")
"""As in what ``hopsctl simulate --predict`` writes; ``actual`` empty: it never came."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: its starts, ascending, and its end, in seconds since 1970."""

    id: str
    name: str
    starts: Sequence[float]
    end: float | None

    def actual(self, kind: str, at: float) -> float | None:
        """What a prediction made ``at`` that time was about."""
        if kind == "end":
            return self.end
        return next((start for start in self.starts if start >= at), None)


@dataclass(slots=True)
class PredictionLog:
    """Gathers what status documents predict."""

    _seen: dict[tuple[str, str, float], Mapping[str, Any]] = field(default_factory=dict)

    def note(self, document: Mapping[str, Any]) -> None:
        """The predictions of a status document; each counts once."""
        for row in (*document["running"], *document["waiting"]):
            if found := row.get("predicted"):
                self._seen.setdefault((row["id"], found["kind"], found["at"]), found)

    def rows(self, outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
        """All predictions in the order in which they were made, with :data:`COLUMNS`."""
        by_id = {outcome.id: outcome for outcome in outcomes}
        return [
            {
                **{key: found[key] for key in ("at", "kind", "expected", "low", "high")},
                "id": job,
                "actual": by_id[job].actual(kind, at) if job in by_id else None,
            }
            for (job, kind, at), found in sorted(self._seen.items(), key=lambda item: item[0][2])
        ]


def write(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def summary(rows: Sequence[Mapping[str, Any]], outcomes: Iterable[Outcome]) -> RenderableType:
    """The first prediction of each job's start and end, and all predictions together."""
    names = {outcome.id: outcome.name for outcome in outcomes}
    true = [row for row in rows if row["actual"] is not None]
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in true:
        first.setdefault((row["id"], row["kind"]), row)
    lines = [
        (
            row["id"],
            names.get(row["id"], ""),
            row["kind"],
            duration(max(0.0, row["expected"] - row["at"])),
            " to ".join(duration(max(0.0, row[key] - row["at"])) for key in ("low", "high")),
            duration(max(0.0, row["actual"] - row["at"])),
            "yes" if is_right(row) else "no",
        )
        for row in first.values()
    ]
    for kind in ("start", "end"):
        if some := [row for row in true if row["kind"] == kind]:
            error = median(abs(row["actual"] - row["expected"]) for row in some)
            right = sum(map(is_right, some)) / len(some)
            lines.append(
                ("all", f"{len(some)} predictions", kind, "", "", f"off by {error:.0f}s",
                 f"{right:.0%}")
            )  # fmt: skip
    columns = ["job", "name", "of its", "predicted in", "80 % interval", "came in", "right"]
    return table("What was predicted", columns, lines)


def is_right(row: Mapping[str, Any]) -> bool:
    """Whether it came true within the interval."""
    return bool(row["low"] <= row["actual"] <= row["high"])
