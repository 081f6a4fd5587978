"""A controller in memory that serves its pages, and a client for them."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller_rig import Rig

from hopsd.config import Config, WebConfig
from hopsd.config.listen import ListenAddress
from hopsd.model.privacy import Privacy
from hopsd.serve.answers import QueryService
from hopsd.web import Web


@dataclass
class Slurm:
    """Answers the query for PrivateData."""

    privacy: Privacy = field(default_factory=Privacy)

    def read(self) -> Privacy:
        return self.privacy


class Page:
    """A response of the server."""

    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


class WebSite:
    """A site served on a socket in ``folder``, or on a port of this machine."""

    def __init__(self, folder: Path, rig: Rig, *, on_port: bool = False, **settings: Any) -> None:
        listen = f"127.0.0.1:{free_port()}" if on_port else str(folder / "web.sock")
        self.listen = ListenAddress(listen)
        self.rig, self.slurm = rig, Slurm()
        config = replace(Config(), web=WebConfig(listen=self.listen, **settings))
        self.answers = QueryService(rig.controller, rig.store, self.slurm, config)
        self.web = Web(config.web, self.answers)

    @property
    def url(self) -> str:
        return f"http://{self.listen}"

    def raw(self, request: bytes) -> bytes:
        """Send a request that no HTTP client would send, and return the response."""
        assert self.listen.path is not None
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(90.0)
            connection.connect(str(self.listen.path))
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def get(self, path: str, method: str = "GET", **headers: str) -> Page:
        if self.listen.path is None:
            connection = http.client.HTTPConnection(str(self.listen), timeout=90)
        else:
            connection = http.client.HTTPConnection("localhost")
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(90.0)
            connection.sock.connect(str(self.listen.path))
        try:
            connection.request(
                method, path, headers={key.replace("_", "-"): v for key, v in headers.items()}
            )
            with connection.getresponse() as answer:
                text = answer.read().decode()
                return Page(answer.status, dict(answer.getheaders()), text)
        finally:
            connection.close()

    def close(self) -> None:
        self.web.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
