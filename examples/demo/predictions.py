"""All predictions of a demo run, with the actual times."""

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
"""Columns as ``hopsctl simulate --predict`` writes them; ``actual`` is empty if it never came."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Actual starts of a job, ascending, and its end, in seconds since 1970."""

    id: str
    name: str
    starts: Sequence[float]
    end: float | None

    def actual(self, kind: str, at: float) -> float | None:
        """The actual time that a prediction made at time ``at`` refers to."""
        if kind == "end":
            return self.end
        return next((start for start in self.starts if start >= at), None)


@dataclass(slots=True)
class PredictionLog:
    """Collects the predictions of status documents."""

    _predictions: dict[tuple[str, str, float], Mapping[str, Any]] = field(default_factory=dict)

    def note(self, document: Mapping[str, Any]) -> None:
        """Add the predictions of a status document, each once."""
        for row in (*document["running"], *document["waiting"]):
            if prediction := row.get("predicted"):
                self._predictions.setdefault(
                    (row["id"], prediction["kind"], prediction["at"]), prediction
                )

    def rows(self, outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
        """All predictions ordered by time, with :data:`COLUMNS`."""
        by_id = {outcome.id: outcome for outcome in outcomes}
        return [
            {
                **{key: prediction[key] for key in ("at", "kind", "expected", "low", "high")},
                "id": job,
                "actual": by_id[job].actual(kind, at) if job in by_id else None,
            }
            for (job, kind, at), prediction in sorted(
                self._predictions.items(), key=lambda item: item[0][2]
            )
        ]


def write(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def summary(rows: Sequence[Mapping[str, Any]], outcomes: Iterable[Outcome]) -> RenderableType:
    """Table of each job's first prediction of start and end, and of all predictions together."""
    names = {outcome.id: outcome.name for outcome in outcomes}
    with_outcome = [row for row in rows if row["actual"] is not None]
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in with_outcome:
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
        if of_kind := [row for row in with_outcome if row["kind"] == kind]:
            error = median(abs(row["actual"] - row["expected"]) for row in of_kind)
            right = sum(map(is_right, of_kind)) / len(of_kind)
            lines.append(
                ("all", f"{len(of_kind)} predictions", kind, "", "", f"off by {error:.0f}s",
                 f"{right:.0%}")
            )  # fmt: skip
    columns = ["job", "name", "of its", "predicted in", "80 % interval", "came in", "right"]
    return table("What was predicted", columns, lines)


def is_right(row: Mapping[str, Any]) -> bool:
    """Whether the actual time is within the interval."""
    return bool(row["low"] <= row["actual"] <= row["high"])
