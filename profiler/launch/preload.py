"""Imports PyTorch once for all ranks, and finds whether ranks may be forked afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import re
import sys
from pathlib import Path

_SLOW = ("torch", "torch._dynamo")
"""``torch._dynamo`` is imported by the first optimizer: 1.4 s on two cores."""


def preload() -> str:
    """Import PyTorch; returns why ranks must be separate processes, "" if they may be forked.

    A fork keeps only the calling thread. numpy's OpenBLAS stops its threads before a fork; other
    pools and CUDA contexts do not survive one.

    The garbage collector would go through hundreds of thousands of objects again and again, during
    the imports and at each rank's end; they are kept out of its sight (gc.freeze).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _preload()
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def _preload() -> str:
    _import("numpy")
    before = _threads()
    for name in _SLOW:
        problem = _import(name)
        if problem:
            return problem
    _choose_store()
    if sys.modules["torch"].cuda.is_initialized():
        return "CUDA has been initialised"
    if _threads() > before:
        return "a thread pool is running"
    with contextlib.suppress(OSError, AttributeError):  # no /proc, or another C library
        _end_at_once()
    return ""


_KEEPS_FILES = re.compile(r"/lib(iomp5|omp)\b")
"""OpenMP libraries that remove a file from /dev/shm as they are unloaded."""


def _end_at_once(maps: Path = Path("/proc/self/maps")) -> None:
    """Have the C library's exit() stop once it has come to what is loaded by now.

    Taking PyTorch's registries apart takes 0.1 s, for which the job would keep its GPUs. What the
    script and its libraries register runs before. Not under a tool that was loaded ahead of all: it
    may write its results at the very end.
    """
    libc = ctypes.CDLL(None)
    if "LD_PRELOAD" in os.environ or _KEEPS_FILES.search(maps.read_text()):
        return
    leave, flush = (ctypes.cast(getattr(libc, f), ctypes.c_void_p) for f in ("_exit", "fflush"))
    # In reverse order: fflush(NULL), then _exit(status).
    libc.on_exit(leave, None)
    libc["__cxa_atexit"](flush, None, None)


def _choose_store() -> None:
    """If PyTorch is built without libuv, as Debian's is, use a rendezvous store without it.

    PyTorch (2.6) uses libuv by default all the same, and does not say whether it is there.
    """
    distributed = sys.modules["torch"].distributed
    if "USE_LIBUV" in os.environ or not distributed.is_available():
        return
    try:
        distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        if "without libuv" in str(error):
            os.environ["USE_LIBUV"] = "0"


def _import(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # the training may not need it, or gives the user a better error
        return f"{name} cannot be imported ({error})"
    return ""


def _threads() -> int:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 1
