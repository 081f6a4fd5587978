"""openapi.json is the only list of operations: servers understand every request of a client."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.errors import InputError
from hopsd.rest.contract import answer_payload, operations, request_payload

WORDS = st.lists(st.text(min_size=1), min_size=1)


@given(users=WORDS, states=WORDS, limit=st.integers(0, 10**6))
def test_arguments_survive_a_round_trip_through_the_query(
    users: list[str], states: list[str], limit: int
) -> None:
    arguments: dict[str, Any] = {"users": users, "states": states, "most": limit}
    target, body = operations()["status"].request(arguments)
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    assert operations()["status"].arguments(query) == arguments
    assert target.isascii()
    assert body == b""


@given(st.text(min_size=1))
def test_a_job_id_is_one_segment_of_the_path(job: str) -> None:
    target, _ = operations()["explain"].request({"job": job})
    prefix, _, last = target.rpartition("/")
    assert (prefix, unquote(last)) == ("/v1/jobs", job)


def test_absent_arguments_are_omitted() -> None:
    assert operations()["when"].request({"comment": "hops:", "time_limit_seconds": None}) == (
        "/v1/when?comment=hops%3A",
        b"",
    )


def test_arguments_of_changes_are_in_the_body() -> None:
    assert operations()["release"].request({"jobs": ["7"]}) == ("/v1/release", b'{"jobs": ["7"]}')


@pytest.mark.parametrize(
    ("command", "query", "message"),
    [
        ("status", {"user": ["a"]}, "'user' is not a parameter of /v1/status; accepted: users, "),
        ("status", {"most": ["many"]}, "most: give one integer"),
        ("report", {"since": ["1", "2"]}, "since: give one number"),
        ("health", {"x": ["1"]}, "accepted: none"),
    ],
)
def test_a_wrong_query_is_named(command: str, query: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        operations()[command].arguments(query)


def test_a_credential_is_valid_for_one_request_and_its_answer() -> None:
    payloads = {
        request_payload("GET", "/v1/status", b""),
        request_payload("GET", "/v1/health", b""),
        request_payload("POST", "/v1/release", b"{}"),
        request_payload("POST", "/v1/release", b"[]"),
        answer_payload(200, "MUNGE:a:", b"{}"),
        answer_payload(403, "MUNGE:a:", b"{}"),
        answer_payload(200, "MUNGE:b:", b"{}"),
        answer_payload(200, "MUNGE:a:", b"[]"),
    }
    assert len(payloads) == 8
