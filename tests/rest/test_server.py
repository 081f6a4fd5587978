"""MUNGE identifies network callers; nobody gets or changes another caller's answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("flask")
from munged import DAEMON, run_munged

from examples.demo.cluster import free_ports
from hopsd.config import ApiConfig
from hopsd.config.listen import NetworkAddress
from hopsd.errors import HopsError, InputError, RefusedError, UnreachableError
from hopsd.rest import client
from hopsd.rest.application import application
from hopsd.rest.client import Server, ask_server
from hopsd.rest.contract import request_payload
from hopsd.rest.munge import CredentialError, Munge
from hopsd.rest.server import HOSTS, RestServer
from hopsd.serve import peers
from hopsd.serve.http import HttpServer
from hopsd.serve.peers import RequestSlots
from hopsd.serve.socket import MAX_REQUEST_BYTES, Request

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(DAEMON is None, reason="munged (package munge)"),
]
ROOT = Path(__file__).resolve().parents[2]
AS_NOBODY = """
import encodings.idna, os, sys
from hopsd.rest.client import Server, ask_server
os.setuid(65534)
print(ask_server(Server("127.0.0.1", int(sys.argv[1]), sys.argv[2], sys.argv[3]), "health", {}, 30))
"""


def answer(request: Request) -> Any:
    if request.command == "when":
        raise InputError("not like this; accepted: like that")
    if request.command == "pause":
        raise HopsError("not for you")
    if request.command == "report":
        raise ValueError("not foreseen")
    return {
        "command": request.command,
        "uid": request.uid,
        "arguments": dict(request.arguments),
    }


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with run_munged(Path(folder, "munge"), b"k" * 64) as socket:
            yield socket


@pytest.fixture
def server(socket: str) -> Iterator[Server]:
    port = _free_port()
    listen = NetworkAddress(f"127.0.0.1:{port}")
    rest_server = RestServer(ApiConfig(listen=listen, munge_socket=socket), answer)
    yield Server("127.0.0.1", port, socket, str(os.getuid()))
    rest_server.close()


def ask(server: Server, command: str, **arguments: Any) -> Any:
    return ask_server(server, command, arguments, 30.0)


def test_the_caller_is_identified(server: Server) -> None:
    arguments = {"users": ["ann", "bob"], "most": 3}
    assert ask(server, "status", **arguments) == {
        "command": "status",
        "uid": os.getuid(),
        "arguments": arguments,
    }
    assert ask(server, "release", jobs=["7", "8_1"])["arguments"] == {"jobs": ["7", "8_1"]}
    assert ask(server, "explain", job="8_1")["arguments"] == {"job": "8_1"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root may ask as another user")
def test_another_user_has_another_uid(server: Server) -> None:
    words = [str(server.port), server.munge_socket, str(os.getuid())]
    result = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "{'command': 'health', 'uid': 65534, 'arguments': {}}\n", result.stderr


def test_errors_keep_their_own_words(server: Server) -> None:
    with pytest.raises(InputError, match="accepted: like that"):
        ask(server, "when", comment="hops:")
    with pytest.raises(RefusedError, match="not for you"):
        ask(server, "pause")
    with pytest.raises(RefusedError, match="a defect of hops, ValueError: not foreseen"):
        ask(server, "report", since=1.0, until=2.0)


class Reply:
    """A response as received over the network."""

    def __init__(
        self, server: Server, method: str, target: str, body: bytes = b"", **headers: str
    ) -> None:
        connection = HTTPConnection(server.host, server.port, timeout=30)
        connection.request(method, target, body or None, headers)
        with connection.getresponse() as answer:
            self.status, self.text = answer.status, answer.read().decode()
        connection.close()


def signature_headers(
    server: Server, method: str, target: str, body: bytes = b""
) -> dict[str, str]:
    payload = request_payload(method, target, body)
    return {"Authorization": f"MUNGE {Munge(server.munge_socket).encode(payload)}"}


def test_a_credential_is_valid_once(server: Server) -> None:
    headers = signature_headers(server, "GET", "/v1/health")
    assert Reply(server, "GET", "/v1/health", **headers).status == 200
    replay = Reply(server, "GET", "/v1/health", **headers)
    assert (replay.status, "Replayed" in replay.text) == (401, True)


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/v1/status?most=2", b""),
        ("GET", "/v1/health", b""),
        ("POST", "/v1/release", b'{"jobs": []}'),
        ("POST", "/v1/pause", b""),
    ],
)
def test_a_credential_is_valid_for_no_other_request(
    server: Server, method: str, target: str, body: bytes
) -> None:
    for other_request in (
        ("GET", "/v1/status?most=1", b""),
        ("POST", "/v1/release", b'{"jobs": ["1"]}'),
    ):
        reply = Reply(server, method, target, body, **signature_headers(server, *other_request))
        assert (reply.status, "for another request" in reply.text) == (401, True)


@pytest.mark.parametrize("header", ["", "MUNGE", "MUNGE x", "MUNGE MUNGE:AAAA:", "Basic cm9vdDo="])
def test_nothing_is_answered_without_a_credential(server: Server, header: str) -> None:
    reply = Reply(server, "GET", "/v1/status", Authorization=header)
    assert reply.status == 401
    assert "error" in reply.text
    assert Reply(server, "GET", "/openapi.json").status == 200


def test_a_key_of_another_cluster_is_refused(server: Server, tmp_path: Path) -> None:
    with run_munged(tmp_path / "munge", b"x" * 64) as socket:
        foreign_cluster = replace(server, munge_socket=socket)
        headers = signature_headers(foreign_cluster, "GET", "/v1/health")
        assert Reply(server, "GET", "/v1/health", **headers).status == 401
        with pytest.raises(UnreachableError, match="is not signed by hopsd"):
            ask(foreign_cluster, "health")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may ask as another user")
def test_an_answer_from_another_account_is_rejected(server: Server) -> None:
    impostor = """
import encodings.idna, os, sys
from hopsd.config import ApiConfig
from hopsd.config.listen import NetworkAddress
from hopsd.rest.server import RestServer
os.setuid(65534)
config = ApiConfig(NetworkAddress("127.0.0.1:" + sys.argv[1]), sys.argv[2])
served = RestServer(config, lambda request: {})
print("ready", flush=True)
sys.stdin.read()
"""
    port = _free_port()
    with subprocess.Popen(
        [sys.executable, "-c", impostor, str(port), server.munge_socket],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(UnreachableError, match=r"uid 65534 answers at .*, not hopsd"):
            ask(replace(server, port=port), "health")
        process.communicate()


def test_a_changed_answer_is_rejected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "answer_payload", lambda *_: b"of another answer")
    with pytest.raises(UnreachableError, match="not the one that hopsd signed"):
        ask(server, "health")


def test_invalid_requests_are_answered_with_the_reason(server: Server) -> None:
    for method, target, status, words in (
        ("GET", "/v1/nothing", 404, "/v1/status"),
        ("DELETE", "/v1/status", 405, "GET /v1/status"),
        ("GET", "/v1/status?user=ann", 400, "accepted: users"),
    ):
        reply = Reply(server, method, target, **signature_headers(server, method, target))
        assert (reply.status, words in reply.text) == (status, True)
    body = b"[]"
    reply = Reply(
        server,
        "POST",
        "/v1/release",
        body,
        **signature_headers(server, "POST", "/v1/release", body),
    )
    assert (reply.status, "give a JSON object" in reply.text) == (400, True)


def test_the_size_of_a_body_is_limited(server: Server) -> None:
    body = b"x" * (MAX_REQUEST_BYTES + 1)
    headers = signature_headers(server, "POST", "/v1/release", body)
    assert Reply(server, "POST", "/v1/release", body, **headers).status == 413


def test_unread_answers_of_a_user_are_limited(socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound, 512 connections that read nothing fill hopsd's memory."""
    monkeypatch.setattr(peers, "UNREAD_BYTES_PER_USER", 1)
    port = _free_port()
    config = ApiConfig(listen=NetworkAddress(f"127.0.0.1:{port}"), munge_socket=socket)
    text = "x" * (1 << 24)  # more than the kernel buffers for a connection
    second_server = RestServer(config, lambda _: text)
    server = Server("127.0.0.1", port, socket)
    try:
        reader = HTTPConnection(server.host, server.port, timeout=30)
        reader.request("GET", "/v1/health", headers=signature_headers(server, "GET", "/v1/health"))
        with reader.getresponse() as unread:
            assert unread.status == 200
            headers = signature_headers(server, "GET", "/v1/health")
            reply = Reply(server, "GET", "/v1/health", **headers)
            assert (reply.status, "answers to read" in reply.text) == (429, True)
        reader.close()
    finally:
        second_server.close()


def test_an_unreachable_munged_is_named(server: Server) -> None:
    with pytest.raises(UnreachableError, match="munged does not answer"):
        ask(replace(server, munge_socket="/nowhere"), "health")


def test_a_hopsd_without_its_munged_says_so(socket: str) -> None:
    port = _free_port()
    app = application(answer, Munge("/nowhere"), RequestSlots())
    listen = NetworkAddress(f"127.0.0.1:{port}")
    http_server = HttpServer(listen, app, HOSTS, "api")
    try:
        with pytest.raises(UnreachableError, match=r"munged does not answer.*/nowhere"):
            ask(Server("127.0.0.1", port, socket), "health")
    finally:
        http_server.close()


def test_an_unreachable_hopsd_is_named(socket: str) -> None:
    with pytest.raises(UnreachableError, match=r"no hopsd answers at 127\.0\.0\.1:1: .*refused"):
        ask(Server("127.0.0.1", 1, socket), "health")


def test_a_bad_credential_has_its_own_error(socket: str) -> None:
    with pytest.raises(CredentialError, match="munge: "):
        Munge(socket).decode("MUNGE:nonsense:")


def _free_port() -> int:
    return free_ports(1)[0]
