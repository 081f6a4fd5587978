"""Lists of nodes, which users write, are parsed in time proportional to the number of names."""

from __future__ import annotations

import time

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.submission.nodelist import node_names
from hopsd.core.submission.options_text import read_script_options
from hopsd.model import bounds

MAX_NAMES = int(bounds.NAMED_NODES.maximum)
numbers = st.integers(0, 120)
ranges = st.tuples(numbers, st.integers(0, 9)).map(lambda r: f"{r[0]:03d}-{r[0] + r[1]:03d}")
item = st.one_of(
    st.sampled_from(["login", "n1", "gpu-a", "x.y"]),
    st.lists(st.one_of(ranges, numbers.map("{:03d}".format)), min_size=1, max_size=3).map(
        lambda parts: f"n[{','.join(parts)}]"
    ),
    st.tuples(ranges, ranges).map(lambda two: f"r[{two[0]}]n[{two[1]}]"),
)


@given(st.lists(item, max_size=4).map(",".join))
def test_names_equal_those_of_clustershell(text: str) -> None:
    assert sorted(node_names(text)) == sorted(NodeSet(text))


@pytest.mark.parametrize(
    "text",
    [
        "n[1-999999999]",
        "n[1-99999999999999999999]",
        "n[1-2000],m",
        "a[0-99]b[0-99]c[0-99]d[0-99]",
        ",".join(f"n{i}" for i in range(MAX_NAMES + 1)),
        "_:2[-1]-:[01",
        "n[1",
        "n]1[",
        "n[a]",
        "n[]",
        "@all",
    ],
)
def test_a_job_with_an_invalid_list_fits_no_node(text: str) -> None:
    cpu_start = time.process_time()
    assert read_script_options(f"hops:asks|nodes:{text}").nodes in (frozenset(), {text})
    assert time.process_time() - cpu_start < 5.0


def test_names_with_several_numbers_take_no_longer() -> None:
    """Regression: they took 14 s with ClusterShell, at each reading of each job."""
    names = [f"a{i * 7 % 999}b{i * 13 % 997}c{i}" for i in range(MAX_NAMES)]
    cpu_start = time.process_time()
    assert read_script_options(f"hops:asks|nodes:{','.join(names)}").nodes == set(names)
    assert time.process_time() - cpu_start < 5.0


@given(st.text("n1290[],._:+-a", max_size=20))
def test_any_text_is_parsed_without_a_crash(text: str) -> None:
    read_script_options(f"hops:asks|nodes:{text}")
