"""Python and Lua read comments alike: one table of cases, and cases made up by hypothesis."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.core.submission.comment import (
    KEYS,
    Comment,
    LrRule,
    NotOursError,
    learning_rate,
    parse,
    remark,
    spread_over_range,
)
from hopsd.ctl.user.comment import comment as comment_command
from hopsd.ctl.user.comment import json_object
from hopsd.errors import CommentError

FOLDER = Path(__file__).parent
PLUGIN = FOLDER.parents[1] / "slurm_plugin" / "job_submit.lua"
CASES = json.loads((FOLDER / "comment_cases.json").read_text())
REMARKS = json.loads((FOLDER / "comment_remarks.json").read_text())
"""For each comment, words of the message to its user, "" if there is none, null if refused."""
LUAS = [
    name
    for name in ("lua5.1", "lua5.2", "lua5.3", "lua5.4", "lua5.5", "luajit")
    if shutil.which(name)
]
BECAME = {"accepted": "held", "refused": "refused", "not_ours": "untouched"}


def verdict(text: str) -> str:
    try:
        parse(text)
    except NotOursError:
        return "not_ours"
    except CommentError:
        return "refused"
    return "accepted"


def in_lua(lua: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """For each comment, return what the plugin did with a job and its message to the user."""
    lines = "".join(text.encode().hex() + "\n" for text in texts)
    result = subprocess.run(
        [lua, str(FOLDER / "submit_driver.lua"), str(PLUGIN)],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answers = [line.partition(" ") for line in result.stdout.splitlines()]
    assert len(answers) == len(texts)
    return [(became, bytes.fromhex(hex_message).decode()) for became, _, hex_message in answers]


def test_the_table_is_large_enough_to_be_meaningful() -> None:
    assert sum(map(len, CASES.values())) > 700
    assert min(map(len, CASES.values())) > 30


def test_python_gives_the_verdict_of_every_case() -> None:
    wrong = [text for outcome, texts in CASES.items() for text in texts if verdict(text) != outcome]
    assert wrong == []


@pytest.mark.parametrize("text", CASES["refused"])
def test_python_gives_advice_in_one_printable_line(text: str) -> None:
    with pytest.raises(
        CommentError, match=r"give|write|did you mean|The keys are|add one"
    ) as error_info:
        parse(text)
    assert str(error_info.value).isprintable()
    assert str(error_info.value).isascii()


def test_the_number_of_nodes_per_rack_is_readable() -> None:
    ran = CliRunner().invoke(comment_command, ["hops:reqs=8;segment=2"])
    assert "in one rack    2 nodes at a time" in ran.output


def test_accepted_comments_mean_what_the_table_says() -> None:
    read = {text: json_object(parse(text)) for text in CASES["accepted"]}
    assert read == {
        text: {"profile": False, "segment": None, "interactive": False, **meaning}
        for text, meaning in CASES["accepted"].items()
    }


@pytest.mark.parametrize("text", REMARKS)
def test_python_remarks_on_ignored_and_similar_looking_comments(text: str) -> None:
    expected = REMARKS[text]
    if expected is None:
        assert verdict(text) == "refused"
    else:
        assert expected in remark(text)
        assert bool(expected) == bool(remark(text))


@pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")
@pytest.mark.parametrize("lua", LUAS)
def test_lua_makes_the_same_remarks(lua: str) -> None:
    texts = [text for text, expected in REMARKS.items() if expected is not None]
    for text, (became, message) in zip(texts, in_lua(lua, texts), strict=True):
        assert became == BECAME[verdict(text)], text
        lines = [
            line for line in message.splitlines() if "not read" in line or "ordinary job" in line
        ]
        assert lines == ([f"hops: {remark(text)}"] if remark(text) else []), text


@pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")
@pytest.mark.parametrize("lua", LUAS)
def test_lua_gives_the_verdict_of_every_case(lua: str) -> None:
    expected = {text: BECAME[outcome] for outcome, texts in CASES.items() for text in texts}
    answers = in_lua(lua, list(expected))
    wrong = [
        (text, became)
        for (text, should), (became, _) in zip(expected.items(), answers, strict=True)
        if became != should
    ]
    assert wrong == []


def refusal(text: str) -> str:
    with pytest.raises(CommentError) as error_info:
        parse(text)
    return str(error_info.value)


@pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")
@pytest.mark.parametrize("lua", LUAS)
def test_lua_refuses_with_the_same_words(lua: str) -> None:
    """Both have a table of keys and texts; if these differ, the failure names the key."""
    texts = CASES["refused"]
    for text, (_, message) in zip(texts, in_lua(lua, texts), strict=True):
        assert message == f"hops: {refusal(text)}"
        assert len(message) < 400
    assert len(refusal("hops:reqs=" + "9" * 900)) < 250


def test_the_prolog_uses_keys_of_the_same_table() -> None:
    names = re.findall(r'value\["(\w+)"\]', (PLUGIN.parent / "comment.awk").read_text())
    assert {"reqs", "num", "lr", "lr_rule", "batch", "workload", "app"} == set(names)
    assert set(names) <= KEYS.keys()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hops:reqs=0,1", "reqs='0,1' is not valid: give GPU counts from 1 to 65536"),
        ("hops:req=1", "unknown key 'req': did you mean reqs? The keys are reqs, num"),
        ("hops:reqs=1;lr-rule=sqrt", "did you mean lr_rule?"),
        ("hops:reqs=1;gpus=4", "unknown key 'gpus': The keys are reqs"),
        ("hops:reqs=1;reqs=2", "reqs='2' is the second reqs: give one"),
        ("hops:reqs=1;num=4", "num='4' goes with a range only"),
        ("hops:reqs=1;fast", "'fast' has no '=': write key=value joined by ';'"),
        ("hops:reqs=1,3;per_node=2", "no multiple of per_node=2: add one, such as 4"),
    ],
)
def test_a_refusal_tells_what_to_write(text: str, words: str) -> None:
    assert words in refusal(text)


VALUE = st.one_of(
    st.text(alphabet="0123456789.eE+-,:@; \t_xn", max_size=12),
    st.text(max_size=6),
    st.integers(-2, 70000).map(str),
    st.floats(min_value=0).map(repr),
    st.decimals(min_value=0).map(str),
    st.lists(st.integers(0, 70000), min_size=1, max_size=5).map(lambda v: ",".join(map(str, v))),
    st.tuples(st.integers(0, 70000), st.integers(0, 70000)).map(lambda v: f"{v[0]}-{v[1]}"),
    st.sampled_from(["yes", "no", "linear", "sqrt", "none", "1:0.1,2:0.18", "0.1@4", "lm:2", ""]),
)
KEY = st.one_of(
    st.sampled_from(
        [
            "reqs",
            "num",
            "samples",
            "batch",
            "lr",
            "lr_rule",
            "preempt",
            "workload",
            "app",
            "shape",
            "per_node",
            "segment",
            " reqs ",
        ]
    ),
    st.text(max_size=3),
)
PAIRS = st.lists(st.tuples(KEY, VALUE).map("=".join), max_size=4)
TEXT = st.one_of(
    st.text(max_size=20).map(lambda rest: "hops:" + rest),
    st.tuples(
        st.sampled_from(["laion; ", "a,", "x", "a hops:reqs=1,", "\t", "xhops: "]),
        st.text(alphabet="hops:reqs=1,2;  \tx", max_size=24),
    ).map(lambda parts: f"{parts[0]}hops:reqs=1{parts[1]}"),
    PAIRS.map(lambda pairs: "hops:" + ";".join(pairs)),
    PAIRS.map(lambda pairs: ";".join(["hops:reqs=1-8", *pairs])),
    PAIRS.map(lambda pairs: ";".join(["hops:reqs=1,2", *pairs])),
    st.text(max_size=20),
)


@pytest.mark.long
@pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")
@settings(max_examples=25, deadline=None)
@given(st.lists(TEXT, min_size=200, max_size=200))
def test_lua_and_python_agree_on_generated_texts(texts: list[str]) -> None:
    for lua in LUAS:
        for text, (became, message) in zip(texts, in_lua(lua, texts), strict=True):
            assert became == BECAME[verdict(text)], (lua, text)
            if became == "refused" and "#hops-" not in text:
                assert message == f"hops: {refusal(text)}", (lua, text)
            elif remark(text):
                assert f"hops: {remark(text)}" in message.splitlines(), (lua, text)


@pytest.mark.slow
@given(st.text())
def test_every_text_gets_a_verdict_without_a_crash(text: str) -> None:
    verdict("hops:" + text)


@given(st.integers(1, 65536), st.integers(0, 300), st.integers(2, 400))
def test_a_range_has_equal_steps_and_both_ends(low: int, width: int, num: int) -> None:
    values = spread_over_range(low, low + width, num)
    exact = {low + math.floor(width * i / (num - 1) + 0.5) for i in range(num)}
    assert values == tuple(sorted(exact))
    assert values[0] == low
    assert values[-1] == low + width
    assert len(values) <= num


@given(st.integers(1, 65536), st.integers(0, 65535), st.integers(2, 10**15))
def test_a_range_has_no_more_values_than_integers(low: int, width: int, num: int) -> None:
    assert len(spread_over_range(low, low + width, min(num, 500))) <= min(num, width + 1)


WORDS_OF_ONE = (
    '{"reqs": [1], "samples": null, "batch_size": null, "lr": {}, "lr_rule": "none", '
    '"preempt": true, "workload": null, "cpu": false, "app": null, "phase": 0, "shape": null, '
    '"per_node": null, "profile": false, "segment": null, "interactive": false}\n'
)


@pytest.mark.parametrize(
    ("text", "code", "output", "complaint"),
    [
        (
            "hops:reqs=1,2,4,8",
            0,
            (
                '{"reqs": [1, 2, 4, 8], "samples": null, "batch_size": null, "lr": {}, '
                '"lr_rule": "none", "preempt": true, "workload": null, "cpu": false, '
                '"app": null, "phase": 0, "shape": null, "per_node": null, "profile": false, '
                '"segment": null, "interactive": false}\n'
            ),
            "",
        ),
        ("hops:reqs=0", 2, "", "reqs='0' is not valid: give GPU counts from 1 to 65536"),
        ("hop:reqs=1", 3, "", "begin the comment with hops:reqs="),
        ("hops-reqs=1", 3, "", "begin the comment with hops:reqs="),
        ("hops.reqs = 1,2", 3, "", "begin the comment with hops:reqs="),
        ("hops:reqs=1 2,4", 0, WORDS_OF_ONE, "not read: '2,4'"),
        ("my job", 3, "", "'my job' is not a hops comment"),
        ("-hops:reqs=1", 3, "", "'-hops:reqs=1' is not a hops comment"),
    ],
)
def test_hopsctl_comment_prints_json(text: str, code: int, output: str, complaint: str) -> None:
    hopsctl = Path(sys.executable).with_name("hopsctl")
    result = subprocess.run(
        [hopsctl, "comment", text, "--json"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (code, output)
    assert complaint in result.stderr
    assert result.stderr.count("\n") == (1 if complaint else 0)


def test_hopsctl_comment_prints_text_for_people() -> None:
    result = CliRunner().invoke(comment_command, ["hops:reqs=1-16;num=2;lr=0.1;lr_rule=linear"])
    assert result.exit_code == 0
    assert "GPUs           1, 16" in result.output
    assert "0.1 on 1, 1.6 on 16 GPUs (linear)" in result.output


def test_a_range_without_num_uses_the_operators_default() -> None:
    assert parse("hops:reqs=1-100", range_values=3).reqs == (1, 51, 100)
    assert parse("hops:reqs=1-100;num=2", range_values=3).reqs == (1, 100)


@pytest.mark.parametrize(
    ("lr", "rule", "gpus", "rate"),
    [
        ({}, LrRule.LINEAR, 4, None),
        ({1: 0.1}, LrRule.LINEAR, 4, 0.4),
        ({1: 0.1}, LrRule.SQRT, 4, 0.2),
        ({1: 0.1}, LrRule.NONE, 4, 0.1),
        ({4: 0.4}, LrRule.LINEAR, 1, 0.1),
        ({4: 0.4}, LrRule.SQRT, 1, 0.2),
        ({1: 0.1, 2: 0.18}, LrRule.LINEAR, 2, 0.18),
        ({1: 0.1, 2: 0.18}, LrRule.LINEAR, 4, 0.36),
        ({2: 0.18, 8: 0.5}, LrRule.NONE, 4, 0.18),
        ({2: 0.18, 8: 0.5}, LrRule.LINEAR, 1, 0.09),
    ],
)
def test_the_learning_rate_follows_the_rule(
    lr: dict[int, float], rule: LrRule, gpus: int, rate: float | None
) -> None:
    comment = Comment(reqs=(1, 2, 4), lr=lr, lr_rule=rule)
    answer = learning_rate(comment, gpus)
    assert answer == (None if rate is None else pytest.approx(rate))
