"""A chat server that receives webhooks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Chat(ThreadingHTTPServer):
    """Stores received messages; refuses the first ``failing`` ones."""

    def __init__(self, failure_count: int) -> None:
        self.failing = failure_count
        self.posts: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook/secret"


class _Handler(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.failing -= 1
        good = self.server.failing < 0 and self.headers["Content-Type"] == "application/json"
        if good:
            self.server.posts.append(body)
        self.send_response(200 if good else 500)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def chat(failure_count: int = 0) -> Iterator[Chat]:
    with Chat(failure_count) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
