"""hopsd's answers conform to openapi.json for any request (schemathesis)."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("flask")
pytest.importorskip("schemathesis")
import requests
import schemathesis
from daemon_site import Site
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from examples.demo.cluster import free_ports
from hopsd.rest.contract import operations, request_payload
from hopsd.rest.munge import Munge

pytestmark = pytest.mark.live
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 15
"""Number of examples per operation."""


class MungeAuth(requests.auth.AuthBase):
    """Adds a credential to each request."""

    def __init__(self, socket: str) -> None:
        self._munge = Munge(socket)

    def __call__(self, request: Any) -> Any:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        payload = request_payload(request.method, request.path_url, body)
        request.headers["Authorization"] = f"MUNGE {self._munge.encode(payload)}"
        return request


@pytest.mark.long
def test_every_answer_conforms_to_the_schema(site: Site) -> None:
    (port,) = free_ports(1)
    socket = str(site.folder / "munge.sock")
    site.hopsd.configure(tables=f'[api]\nlisten = "127.0.0.1:{port}"\nmunge_socket = "{socket}"\n')
    site.hopsd.start()
    jobs = [site.submit("hops:reqs=1", 600.0), site.submit("hops:reqs=4", 600.0)]
    site.hopsd.wait_for(lambda s: len(s["running"]) == 1 and len(s["waiting"]) == 1)
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
    session = requests.Session()
    session.auth = MungeAuth(socket)
    answer_counts = dict.fromkeys(operations(), 0)
    # Requests for jobs that exist, since those drawn below may not.
    for job in jobs:
        case = schema["/v1/jobs/{job}"]["GET"].Case(path_parameters={"job": job})
        response = case.call(session=session)
        case.validate_response(response, checks=CHECKS)
        assert response.json()["job"]["id"] == job
    for operation in (result.ok() for result in schema.get_all_operations()):

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            response = case.call(session=session)
            case.validate_response(response, checks=CHECKS)
            answer_counts[case.operation.definition.raw["operationId"]] += (
                response.status_code == 200
            )

        check()
    session.close()
    commands_without_answer = {
        command for command, answer_count in answer_counts.items() if not answer_count
    }
    assert commands_without_answer <= {"when", "throughput", "diary", "report"}, answer_counts
