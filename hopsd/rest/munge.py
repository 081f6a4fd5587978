"""MUNGE credentials through libmunge, as Slurm's own commands use them (munge(3), munge_ctx(3)).

A credential tells any host with the same key which uid made it and when. Its payload is encrypted
with that key. munged refuses a credential that is older than five minutes or was used before.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from hopsd.errors import HopsError, UnreachableError

LIBRARY = "libmunge.so.2"

_SUCCESS = 0
_NO_SOCKET, _TIMEOUT = 6, 7
_OPTION_SOCKET = 8


class CredentialError(HopsError):
    """The credential is invalid, too old, or was used before."""


@dataclass(frozen=True, slots=True)
class Credential:
    """The content of a valid credential: who made it, and the payload."""

    uid: int
    payload: bytes


class Munge:
    """Makes and reads credentials through the munged at ``socket`` ("" for libmunge's default).

    Raises:
        UnreachableError: libmunge is not installed.
    """

    def __init__(self, socket: str = "") -> None:
        self._library = _library()
        self._socket = socket

    def encode(self, payload: bytes) -> str:
        """Make a credential of this process's user.

        Raises:
            UnreachableError: munged does not answer.
        """
        credential = ctypes.c_char_p()
        with _Context(self._library, self._socket) as context:
            code = self._library.munge_encode(
                ctypes.byref(credential), context, payload, len(payload)
            )
            self._check(code, context)
        try:
            return (credential.value or b"").decode("ascii")
        finally:
            _free(credential)

    def decode(self, credential: str) -> Credential:
        """Read ``credential``.

        Raises:
            CredentialError: the credential is invalid, or no longer valid.
            UnreachableError: munged does not answer.
        """
        payload, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        with _Context(self._library, self._socket) as context:
            code = self._library.munge_decode(
                credential.encode("ascii", "replace"),
                context,
                ctypes.byref(payload),
                ctypes.byref(length),
                ctypes.byref(uid),
                ctypes.byref(gid),
            )
            try:
                self._check(code, context)
                text = ctypes.string_at(payload, length.value) if payload.value else b""
            finally:
                _free(payload)
        return Credential(uid.value, text)

    def _check(self, code: int, context: ctypes.c_void_p) -> None:
        if code == _SUCCESS:
            return
        message = self._library.munge_ctx_strerror(context) or self._library.munge_strerror(code)
        text = (message or b"").decode("ascii", "replace")
        if code in (_NO_SOCKET, _TIMEOUT):
            raise UnreachableError(f"munged does not answer: {text}")
        raise CredentialError(f"munge: {text}")


class _Context:
    """A munge_ctx_t for one call, since it must not be shared between threads."""

    def __init__(self, library: ctypes.CDLL, socket: str) -> None:
        self._library = library
        self._context = ctypes.c_void_p(library.munge_ctx_create())
        if socket:
            library.munge_ctx_set(self._context, _OPTION_SOCKET, ctypes.c_char_p(socket.encode()))

    def __enter__(self) -> ctypes.c_void_p:
        return self._context

    def __exit__(self, *_: object) -> None:
        self._library.munge_ctx_destroy(self._context)


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise UnreachableError(
            f"{LIBRARY} cannot be loaded ({error}): install MUNGE, which Slurm's commands need, too"
        ) from None
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    library.munge_encode.argtypes = [
        ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    ]  # fmt: skip
    library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    library.munge_strerror.restype = ctypes.c_char_p
    return library


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _free(memory: ctypes.c_char_p | ctypes.c_void_p) -> None:
    """Free memory that libmunge allocated."""
    _libc().free(memory)
