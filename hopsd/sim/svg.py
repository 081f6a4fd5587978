"""Draws small SVG charts as text: lines over time, and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

Points = Sequence[tuple[float, float]]

COLOURS = ("#0b6e99", "#d1495b", "#edae49", "#66a182", "#8d5a97", "#4d4d4d", "#c07d3e", "#2e4057")
DASHES = ("none", "6 3", "2 2", "9 2 2 2")
"""Dash patterns for when there are more lines than colours."""

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 300, 62, 40, 14, 12


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis, logarithmic if ``log``; values at or below ``low`` are drawn at ``low``."""

    label: str
    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """The value's position on the axis, 0 to 1."""
        low, high = self.low, max(self.high, self.low * (1 + 1e-9) + 1e-12)
        value = min(max(value, low), high)
        if self.log:
            return log10(value / low) / log10(high / low)
        return (value - low) / (high - low)

    def ticks(self) -> list[float]:
        if self.log:
            return [10.0**k for k in range(ceil(log10(self.low)), floor(log10(self.high)) + 1)]
        span = max(self.high - self.low, 1e-12)
        step: float = 10.0 ** floor(log10(span))
        step *= next(f for f in (0.1, 0.2, 0.5, 1.0, 2.0) if span / (step * f) <= 8)
        first = ceil(self.low / step)
        return [step * k for k in range(first, int(self.high / step + 1e-9) + 1)]


def chart(
    title: str,
    x: Axis,
    y: Axis,
    lines: Mapping[str, Points],
    *,
    steps: bool,
    legend_below: bool = False,
) -> str:
    """Draw one line per name; with ``steps`` a value holds until the next point.

    ``legend_below`` puts the legend at the bottom, for lines that end at the top.
    """
    legend = HEIGHT - BOTTOM - 15 * len(lines) if legend_below else TOP + 16
    parts = [_frame(title, x, y)]
    for number, (name, points) in enumerate(lines.items()):
        dashes, colour = divmod(number, len(COLOURS))
        stroke = f'fill="none" stroke="{COLOURS[colour]}" stroke-width'
        dash = f' stroke-dasharray="{DASHES[dashes % len(DASHES)]}"' if dashes else ""
        path = _path(x, y, points, steps=steps)
        parts.append(f'<path d="{path}" {stroke}="1.6"{dash}><title>{escape(name)}</title></path>')
        top = legend + 15 * number
        parts.append(
            f'<path d="M{WIDTH - 124} {top - 4}h16" {stroke}="4"{dash}/>'
            f'<text x="{WIDTH - 103}" y="{top}">{escape(name)}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def distribution(title: str, label: str, values: Mapping[str, Sequence[float]]) -> str:
    """Draw cumulative distributions; logarithmic axis if the values span a factor above 100."""
    all_values = [v for series in values.values() for v in series]
    high = max(all_values, default=1.0) or 1.0
    positive = sorted(v for v in all_values if v > 0) or [1.0]
    middle = positive[len(positive) // 10]
    log = high / max(middle, 1e-9) > 100
    x = Axis(label, max(middle / 3, high * 1e-6) if log else 0.0, high, log)
    lines = {
        name: [(v, (i + 1) / len(series)) for i, v in enumerate(sorted(series))]
        for name, series in values.items()
        if series
    }
    y = Axis("share of jobs", 0.0, 1.0)
    return chart(title, x, y, lines, steps=True, legend_below=True)


def _frame(title: str, x: Axis, y: Axis) -> str:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f"<title>{escape(title)}</title>",
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#888"/>',
        (
            f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
            f"{escape(x.label)}</text>"
        ),
        (
            f'<text transform="translate(12 {(TOP + bottom) / 2}) rotate(-90)"'
            f' text-anchor="middle">{escape(y.label)}</text>'
        ),
    ]
    for tick in x.ticks():
        position = _x(x, tick)
        parts.append(f'<path d="M{position:.1f} {bottom}v4" stroke="#888"/>')
        parts.append(
            f'<text x="{position:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:.6g}</text>'
        )
    for tick in y.ticks():
        position = _y(y, tick)
        parts.append(f'<path d="M{LEFT} {position:.1f}H{right}" stroke="#e6e6e6"/>')
        parts.append(
            f'<text x="{LEFT - 5}" y="{position + 4:.1f}" text-anchor="end">{tick:.6g}</text>'
        )
    return "".join(parts)


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)


def _path(x: Axis, y: Axis, points: Points, *, steps: bool) -> str:
    parts = []
    for number, (a, b) in enumerate(points):
        x_text, y_text = f"{_x(x, a):.1f}", f"{_y(y, b):.1f}"
        if number == 0:
            parts.append(f"M{x_text} {y_text}")
        elif steps:
            parts.append(f"H{x_text}V{y_text}")
        else:
            parts.append(f"L{x_text} {y_text}")
    return "".join(parts)
