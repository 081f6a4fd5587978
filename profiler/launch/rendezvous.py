"""Rendezvous of a launch's nodes, which agree on how many ranks each starts, and rank 0's port.

The first node listens on one of a few ports that all nodes derive from the job's number; it answers
once every node has reported how many ranks it starts. Counts may differ between nodes.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

_MAX_BYTES = 4096
_CANDIDATES = 16
_PORTS = range(20_000, 32_000)
"""Below Linux's range of ephemeral ports, since an outgoing connection could take one of those
before rank 0 listens on it, seconds later."""


@dataclass(frozen=True)
class World:
    """``offset`` is the number of this node's first rank, ``port`` where rank 0 will listen."""

    offset: int
    ranks: int
    nodes: int
    port: int


class NobodyCameError(Exception):
    """The nodes did not find each other in time."""


def free_port() -> int:
    """Return a free port, reserved among the launches on this machine until this process and its
    children have ended.

    Rank 0 listens on it only seconds later. Names of abstract sockets belong to a network
    namespace, as ports do, and vanish with the last process that holds them (unix(7)).
    """
    spare = None
    for port in _port_order(None):
        if not _is_free(port):
            continue
        if _reserve(port):
            return port
        spare = spare or port
    if spare is None:
        raise OSError("no free port between 20000 and 32000")
    return spare  # any user could reserve all names, which must not stop a launch


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _reserve(port: int) -> bool:
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0hops-port-{port}")
    except OSError:
        name.close()
        return False
    os.set_inheritable(name.detach(), True)  # a launch may become its rank by exec
    return True


def meet(
    key: str, address: str, node: int, nodes: int, ranks: int, port: int | None, seconds: float
) -> World:
    """Announce that ``node`` starts ``ranks``; return the world of all nodes together.

    ``port``: where rank 0 will listen; None for a free one.

    Raises:
        NobodyCameError: if not all nodes came within ``seconds``.
    """
    if nodes == 1:
        return World(0, ranks, 1, port or free_port())
    end = time.monotonic() + seconds
    if node == 0:
        return _gather(key, nodes, ranks, port, end)
    return _join(key, address, (node, nodes), ranks, end)


def _gather(key: str, nodes: int, ranks: int, port: int | None, end: float) -> World:
    counts = {0: ranks}
    with ExitStack() as open_, closing(_listen(key)) as server:
        peers: dict[int, socket.socket] = {}
        while len(counts) < nodes:
            server.settimeout(max(0.01, end - time.monotonic()))
            try:
                peer, _ = server.accept()
            except OSError as error:
                missing = sorted(set(range(nodes)) - counts.keys())
                raise NobodyCameError(f"no message from nodes {missing} of {nodes}") from error
            open_.enter_context(closing(peer))
            message = _hear(peer)
            if message.get("key") != key or not _sane(message, nodes):
                continue
            counts[message["node"]] = message["ranks"]
            peers[message["node"]] = peer
        world = World(0, sum(counts.values()), nodes, port or free_port())
        for number, peer in peers.items():
            offset = sum(counts[lower] for lower in range(number))
            _say(peer, {"key": key, "offset": offset, "ranks": world.ranks, "port": world.port})
    return World(0, world.ranks, nodes, world.port)


def _join(key: str, address: str, node: tuple[int, int], ranks: int, end: float) -> World:
    number, nodes = node
    while time.monotonic() < end:
        for port in _port_order(key)[:_CANDIDATES]:
            try:
                with socket.create_connection((address, port), timeout=5.0) as peer:
                    _say(peer, {"key": key, "node": number, "ranks": ranks})
                    peer.settimeout(max(0.01, end - time.monotonic()))
                    message = _hear(peer)
            except OSError:
                continue
            if message.get("key") == key:
                return World(message["offset"], message["ranks"], nodes, message["port"])
        time.sleep(0.1)
    raise NobodyCameError(f"no answer from the first node, {address}")


def _listen(key: str) -> socket.socket:
    for port in _port_order(key)[:_CANDIDATES]:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", port))
            server.listen(128)
        except OSError:
            server.close()
            continue
        return server
    raise NobodyCameError(f"none of the ports {_port_order(key)[:_CANDIDATES]} is free here")


def _port_order(seed: object) -> list[int]:
    """Return the ports in an order that is the same on every node for a ``seed``."""
    return random.Random(None if seed is None else str(seed)).sample(_PORTS, len(_PORTS))  # noqa: S311


def _say(peer: socket.socket, message: dict[str, object]) -> None:
    peer.sendall(json.dumps(message).encode() + b"\n")


def _hear(peer: socket.socket) -> dict[str, Any]:
    """Receive one line; {} if it is not valid, as any process may connect."""
    text = b""
    try:
        if peer.gettimeout() is None:
            peer.settimeout(5.0)
        while not text.endswith(b"\n") and len(text) < _MAX_BYTES:
            part = peer.recv(_MAX_BYTES)
            if not part:
                break
            text += part
        message = json.loads(text)
    except (OSError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def _sane(message: dict[str, Any], nodes: int) -> bool:
    node, ranks = message.get("node"), message.get("ranks")
    return isinstance(node, int) and 0 < node < nodes and isinstance(ranks, int) and ranks > 0
