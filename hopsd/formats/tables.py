"""Throughput tables, server factors and apps, which occur in several kinds of files."""

from __future__ import annotations

from typing import cast

from hopsd.core.submission.comment import read_app
from hopsd.errors import CommentError
from hopsd.formats.item import Item
from hopsd.model.ids import AppName, GpuType, NodeName
from hopsd.model.job import ThroughputTable

_NO_SPEEDS: dict[int, float] = {}


def read_tables(item: Item) -> dict[GpuType, ThroughputTable]:
    """Read tables by GPU type."""
    return {GpuType(name): read_table(value) for name, value in item.entries()}


def read_table(item: Item) -> ThroughputTable:
    """Read one GPU type's tables; without ``distributed`` the job cannot be spread on that type."""
    fields = item.fields("aggregated", "distributed")
    aggregated_rates = fields["aggregated"].rates_by_count()
    if not aggregated_rates:
        fields["aggregated"].refuse("an object with one GPU count or more")
    return ThroughputTable(
        aggregated_rates, fields.get("distributed", Item.rates_by_count, _NO_SPEEDS)
    )


def read_server_factor(item: Item) -> dict[NodeName, float]:
    return cast(dict[NodeName, float], item.rates())


def read_requirements(item: Item) -> tuple[int, ...]:
    """Read GPU counts in any order; return them ascending and without duplicates."""
    counts = {count.whole(minimum=1) for count in item.items()}
    if not counts:
        item.refuse("a list of one GPU count or more")
    return tuple(sorted(counts))


def read_switches(item: Item) -> tuple[str, ...]:
    """The switches above a node, from the spine down to its leaf or block."""
    return tuple(switch.text() for switch in item.items())


def read_app_of(item: Item) -> tuple[AppName, int]:
    """Read the app of a job and its phase (0 if none), written as in a comment."""
    try:
        return read_app(item.text())
    except CommentError:
        item.refuse("an app as in a comment: a name, or one with a phase such as 'lm:2'")
