"""Filters, sorting and links on the pages."""

from __future__ import annotations

from typing import Any

import pytest

from hopsd.errors import InputError
from hopsd.web.choice import JobSearch
from hopsd.web.links import links


def row(job: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": job, "user": "ann", "name": "net", "partition": "gpu", "workload": "w",
        "reason": None, "placement": {}, "reqs": [1], "since": None, "wait_seconds": 0.0,
        "latency_ratio": None, "predicted": None, "restarts": 0, "samples": None,
        "samples_done": 0.0, **fields,
    }  # fmt: skip


ROWS = [
    row("1", user="bob", wait_seconds=30.0, latency_ratio=0.5,
        predicted={"kind": "end", "expected": 90.0, "progress": 0.5}),
    row("2", name="Bert", wait_seconds=10.0, reason="its account has 8 GPUs"),
    row("3", partition="big", wait_seconds=20.0, latency_ratio=2.0, placement={"n0": 4},
        samples=100.0, samples_done=25.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "jobs"),
    [
        ({}, ["1", "2", "3"]),
        ({"user": " bob "}, ["1"]),
        ({"partition": "big"}, ["3"]),
        ({"word": "bert"}, ["2"]),
        ({"word": "8 gpus"}, ["2"]),
        ({"user": "bob", "word": "bert"}, []),
        ({"sort": "waited"}, ["2", "3", "1"]),
        ({"sort": "-waited"}, ["1", "3", "2"]),
        ({"sort": "-gpus"}, ["3", "1", "2"]),
        ({"sort": "done"}, ["3", "1", "2"]),
    ],
)
def test_jobs_are_filtered_and_sorted(query: dict[str, str], jobs: list[str]) -> None:
    assert [row["id"] for row in JobSearch.from_query(query).rows(ROWS)] == jobs


@pytest.mark.parametrize("sort", ["ratio", "-ratio"])
def test_a_job_without_a_value_comes_last(sort: str) -> None:
    assert [row["id"] for row in JobSearch.from_query({"sort": sort}).rows(ROWS)][-1] == "2"


def test_a_heading_reverses_the_order_and_keeps_the_filter() -> None:
    choice = JobSearch.from_query({"user": "ann"})
    assert choice.sorted_by("waited") == {"user": "ann", "sort": "waited"}
    assert JobSearch.from_query(choice.sorted_by("waited")).sorted_by("waited")["sort"] == "-waited"


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(InputError, match="choose from user, name"):
        JobSearch.from_query({"sort": "__class__"})


def test_links_are_filled_in_and_omitted_without_a_value() -> None:
    templates = ("GPU use https://g.site/d?job={job}", "Log https://ood.site/fs{log}")
    assert links(templates, job="17_4&x=<", log="/home/ann/a b.log") == [
        ("GPU use", "https://g.site/d?job=17_4%26x%3D%3C"),
        ("Log", "https://ood.site/fs/home/ann/a%20b.log"),
    ]
    assert [title for title, _ in links(templates, job="1", log="")] == ["GPU use"]
