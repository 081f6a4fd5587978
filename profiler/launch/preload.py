"""Imports PyTorch once for all ranks, and checks whether ranks may be forked afterwards."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path


def preload(*, alone: bool = False) -> str:
    """Import PyTorch; return why ranks must be separate processes, "" if they may be forked.

    With ``alone`` this process becomes the only rank. Otherwise ``torch._dynamo``, which the first
    optimizer would import, is imported for all, which takes 0.9 s of processor time.

    A fork keeps only the calling thread. numpy's OpenBLAS stops its threads before a fork; other
    pools and CUDA contexts do not survive one.

    The garbage collector would visit hundreds of thousands of objects repeatedly, during the
    imports and at each rank's end, so it is made to ignore them (gc.freeze).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _preload(alone)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def _preload(alone: bool) -> str:
    _import("numpy")
    threads = _threads()
    problem = _import("torch") or ("" if alone else _import("torch._dynamo"))
    if problem:
        return problem
    _choose_store()
    if sys.modules["torch"].cuda.is_initialized():
        return "CUDA has been initialised"
    if _threads() > threads:
        return "a thread pool is running"
    return ""


def _choose_store() -> None:
    """Use a rendezvous store without libuv if PyTorch is built without it, as Debian's is.

    PyTorch (2.6) uses libuv by default even then, and does not say whether it is available.
    """
    dist = sys.modules["torch"].distributed
    if "USE_LIBUV" in os.environ or not dist.is_available():
        return
    try:
        dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        if "without libuv" in str(error):
            os.environ["USE_LIBUV"] = "0"


def _import(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # the training may not need it, or give a better error
        return f"{name} cannot be imported ({error})"
    return ""


def _threads() -> int:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 1
