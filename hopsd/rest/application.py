"""The WSGI application: authenticates the caller, and passes the request to hopsd's one handler."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import structlog
from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException

from hopsd.errors import (
    HopsError,
    InputError,
    SlurmUnavailableError,
    StoreUnavailableError,
    UnreachableError,
)
from hopsd.rest.contract import (
    ANSWER_HEADER,
    SCHEME,
    SPECIFICATION,
    Operation,
    answer_payload,
    operations,
    request_payload,
)
from hopsd.rest.munge import CredentialError, Munge
from hopsd.serve.http import TARGET, UNTIL_SENT
from hopsd.serve.peers import BusyError, RequestSlots, is_trusted
from hopsd.serve.socket import CONNECTIONS_PER_USER, MAX_REQUEST_BYTES, Handler, Request

PUBLIC = "/openapi.json"
"""The path of the API's description, which needs no credential: it is the same everywhere."""

_STATUS: tuple[tuple[type[HopsError], int], ...] = (
    (InputError, 400),
    (CredentialError, 401),
    (BusyError, 429),
    (StoreUnavailableError, 503),
    (SlurmUnavailableError, 503),
    (UnreachableError, 503),
    (HopsError, 403),
)

log = structlog.get_logger()


def application(handler: Handler, munge: Munge, turns: RequestSlots) -> Flask:
    """Create the application. ``handler`` answers the uid that ``munge`` decodes, as it does on the
    local socket.
    """
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    gate = _Gate(munge)
    app.before_request(gate.admit)
    app.after_request(gate.sign)
    app.register_error_handler(HTTPException, _not_accepted)
    app.register_error_handler(HopsError, _error_response)
    app.register_error_handler(Exception, _defect)
    app.add_url_rule(PUBLIC, PUBLIC, lambda: _answer(json.loads(SPECIFICATION.read_text())))
    for operation in operations().values():
        app.add_url_rule(
            operation.path.replace("{", "<").replace("}", ">"),
            operation.command,
            _view(operation, handler, turns),
            methods=[operation.method],
            provide_automatic_options=False,
        )
    return app


def _view(operation: Operation, handler: Handler, turns: RequestSlots) -> Callable[..., Response]:
    def view(**path: str) -> Response:
        arguments = operation.arguments(request.args.to_dict(flat=False)) | path
        if operation.body:
            arguments |= _body()
        question = request.environ[UNTIL_SENT].enter_context(
            turns.question(g.uid, waiting=CONNECTIONS_PER_USER, at_once=is_trusted(g.uid))
        )
        with question.turn():
            answer = _answer(handler(Request(operation.command, arguments, g.uid)))
        question.keep(answer.calculate_content_length() or 0)
        return answer

    return view


def _body() -> dict[str, Any]:
    try:
        body = json.loads(request.get_data() or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise InputError("the body: give a JSON object, or none")
    return body


class _Gate:
    """Authenticates the caller by a credential that is valid for this request only."""

    def __init__(self, munge: Munge) -> None:
        self._munge = munge

    def admit(self) -> None:
        g.credential = ""
        if request.path == PUBLIC:
            return
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if scheme != SCHEME or not credential:
            raise CredentialError(
                f"give the header 'Authorization: {SCHEME} CREDENTIAL', with the output of"
                " `printf 'METHOD TARGET' | munge`"
            )
        g.credential = credential
        payload = self._munge.decode(credential)
        expected_payload = request_payload(
            request.method, request.environ[TARGET], request.get_data()
        )
        if payload.payload != expected_payload:
            raise CredentialError("this credential is for another request")
        g.uid = payload.uid

    def sign(self, response: Response) -> Response:
        """Sign the response, so that the client can verify that hopsd sent it, unchanged."""
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if g.get("credential"):
            payload = answer_payload(response.status_code, g.credential, response.get_data())
            try:
                response.headers[ANSWER_HEADER] = self._munge.encode(payload)
            except HopsError as error:
                log.error("api", error=str(error), did="the answer is sent unsigned")
        return response


def _answer(document: Any, status: int = 200) -> Response:
    text = json.dumps(document) + "\n"
    response = Response(text, status, content_type="application/json")
    if status == 401:
        response.headers["WWW-Authenticate"] = SCHEME
    return response


def _error_response(error: HopsError) -> Response:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return _answer({"error": str(error)}, status)


def _not_accepted(error: HTTPException) -> Response:
    """Answer an unknown path, a method that a path does not have, or a body that is too long."""
    accepted_paths = ", ".join(f"{item.method} {item.path}" for item in operations().values())
    response = _answer(
        {"error": f"{error.description} Accepted: {accepted_paths}"}, error.code or 500
    )
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _defect(error: Exception) -> Response:
    log.exception("defect", where="api")
    return _answer({"error": f"a defect of hops, {type(error).__name__}: {error}"}, 500)
