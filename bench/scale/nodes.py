"""`python -m bench.scale.nodes`: one process that acts as the slurmd of many nodes.

It speaks the part of Slurm 22.05's protocol that slurmctld needs: each node registers its GPUs,
accepts every batch job, and reports a job to be killed as ended. It runs no job scripts.

Messages are laid out as in Slurm's own source (src/common/slurm_protocol_pack.c, 22.05.8).
"""

from __future__ import annotations

import argparse
import ctypes
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROTOCOL = 38 << 8  # SLURM_22_05_PROTOCOL_VERSION
RELEASE = (22, 5)

# slurm_msg_type_t and slurm_errno.h
MESSAGE_NODE_REGISTRATION_STATUS = 1002
REQUEST_KILL_TIMELIMIT, REQUEST_TERMINATE_JOB, REQUEST_ABORT_JOB = 6009, 6011, 6013
RESPONSE_SLURM_RC = 8001
ESLURMD_KILL_JOB_ALREADY_COMPLETE = 4002

_AUTH_MUNGE, _MUNGE_OPT_SOCKET = 101, 8
_GRES_MAGIC, _GPU = 0x438A34D4, int.from_bytes(b"gpu", "little")
_HAS_FILE, _HAS_TYPE = 2, 4
_NO_HASH = 0xFFFFFFFE
_EMUNGE_SOCKET, _TRIES = 6, 10
_ENDS = frozenset({REQUEST_KILL_TIMELIMIT, REQUEST_TERMINATE_JOB, REQUEST_ABORT_JOB})


@dataclass(frozen=True, slots=True)
class HollowNode:
    """A node as defined in slurm.conf."""

    name: str
    gpu_type: str
    gpus: int
    cpus: int
    memory_mb: int


class Munge:
    """Credentials of this process's user, from the cluster's own munged."""

    def __init__(self, munge_socket: Path) -> None:
        self._library = ctypes.CDLL("libmunge.so.2")
        self._library.munge_ctx_create.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.munge_ctx_create())
        self._library.munge_ctx_set(
            self._context, _MUNGE_OPT_SOCKET, ctypes.c_char_p(bytes(munge_socket))
        )

    def credential(self) -> str:
        token = ctypes.c_char_p()
        for _ in range(_TRIES):
            code = self._library.munge_encode(ctypes.byref(token), self._context, None, 0)
            if code != _EMUNGE_SOCKET:  # a busy machine starves munged
                break
        if code or token.value is None:
            raise OSError(f"munged gives no credential: error {code}")
        return token.value.decode()


def _text(text: str) -> bytes:
    data = text.encode() + b"\0" if text else b""
    return struct.pack("!I", len(data)) + data


def message(kind: int, body: bytes, munge: Munge) -> bytes:
    header = struct.pack("!HHHIHHH", PROTOCOL, 0, kind, len(body), 0, 0, socket.AF_UNSPEC)
    whole = header + struct.pack("!I", _AUTH_MUNGE) + _text(munge.credential()) + body
    return struct.pack("!I", len(whole)) + whole


def registration(node: HollowNode, now: float) -> bytes:
    flags = _HAS_FILE | _HAS_TYPE
    gres = struct.pack("!HHIQIII", PROTOCOL, 1, _GRES_MAGIC, node.gpus, node.cpus, flags, _GPU)
    gres += _text("") + _text("") + _text("gpu") + _text(node.gpu_type) + _text("")
    head = struct.pack("!QQI", int(now), int(now), 0) + _text("") + _text("")
    names = _text("localhost") + _text(node.name) + _text("x86_64") + _text("") + _text("Linux")
    sizes = struct.pack(
        *("!HHHHHQIIIIQ", node.cpus, 1, 1, node.cpus, 1, node.memory_mb, 0),
        *(1000, _NO_HASH, 0, node.memory_mb),
    )
    jobs_and_gres = struct.pack("!IHI", 0, 0, len(gres)) + struct.pack("!I", len(gres)) + gres
    energy = struct.pack("!QIQIQQ", 0, 0, 0, 0, 0, 0)
    tail = _text("22.05.8") + struct.pack("!B", 0) + _text("") + _text("")
    return head + names + sizes + jobs_and_gres + energy + tail


def register(nodes: Sequence[HollowNode], port: int, munge: Munge) -> None:
    """Tell the slurmctld at ``port`` that all nodes are up."""
    for node in nodes:
        with socket.create_connection(("localhost", port), timeout=30.0) as connection:
            body = registration(node, time.time())
            connection.sendall(message(MESSAGE_NODE_REGISTRATION_STATUS, body, munge))
            _receive(connection)


def serve(server: socket.socket, munge: Munge) -> None:
    """Answer slurmctld until killed."""
    while True:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(30.0)
            try:
                request = _receive(connection)
                kind = struct.unpack_from("!H", request, 4)[0]
                code = ESLURMD_KILL_JOB_ALREADY_COMPLETE if kind in _ENDS else 0
                connection.sendall(message(RESPONSE_SLURM_RC, struct.pack("!I", code), munge))
            except OSError:  # slurmctld will ask again
                continue


def _receive(connection: socket.socket) -> bytes:
    size = struct.unpack("!I", _exactly(connection, 4))[0]
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 65536))
        if not part:
            raise ConnectionError("the connection ended within a message")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.nodes", description=__doc__)
    parser.add_argument("munge", type=Path, help="munged's socket")
    parser.add_argument("controller", type=int, help="slurmctld's port")
    parser.add_argument("port", type=int, help="of every node")
    parser.add_argument(
        "node", nargs="+", help="NAME:TYPE:GPUS:CPUS:MEMORY:COUNT, numbered consecutively"
    )
    args = parser.parse_args()
    nodes: list[HollowNode] = []
    for word in args.node:
        name, kind, gpus, cpus, memory, count = word.split(":")
        nodes += [
            HollowNode(f"{name}{index}", kind, int(gpus), int(cpus), int(memory))
            for index in range(len(nodes), len(nodes) + int(count))
        ]
    munge = Munge(args.munge)
    server = socket.create_server(("localhost", args.port), backlog=4096)
    register(nodes, args.controller, munge)
    print("registered", flush=True)
    serve(server, munge)


if __name__ == "__main__":
    main()
