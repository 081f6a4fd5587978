"""Asks the driver (NVML) on which GPUs any process is, including other programs of this job."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS, _INSUFFICIENT_SIZE = 0, 7
"""nvmlReturn_t (nvml.h). An empty list is of insufficient size as soon as a process is there."""

_state: dict[str, Any] = {}


def visible_and_taken() -> tuple[int | None, int | None]:
    """Return how many GPUs this process could use, and on how many of them any process is.

    They are None if unknown: before this process computes on a GPU itself, without the driver's
    library, or on parts of GPUs (MIG).
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None, None
    try:
        handles = _handles(torch)
        return len(handles), sum(map(_is_taken, handles))
    except (OSError, AttributeError, ValueError):
        return None, None


def _handles(torch: Any) -> list[ctypes.c_void_p]:
    """Return NVML's handles of the GPUs that are visible to this process."""
    if "handles" not in _state:
        _state["handles"] = ()
        library = ctypes.CDLL(_LIBRARY)
        _check(library.nvmlInit_v2())
        handles = []
        for device in range(torch.cuda.device_count()):
            uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            handle = ctypes.c_void_p()
            _check(library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)))
            handles.append(handle)
        _state["library"], _state["handles"] = library, handles
    if not _state["handles"]:
        raise ValueError("the driver's library did not answer before")
    return list(_state["handles"])


def _is_taken(handle: ctypes.c_void_p) -> bool:
    count = ctypes.c_uint(0)
    answer = _state["library"].nvmlDeviceGetComputeRunningProcesses_v3(
        handle, ctypes.byref(count), None
    )
    if answer not in (_SUCCESS, _INSUFFICIENT_SIZE):
        raise ValueError(f"NVML: error {answer}")
    return bool(answer == _INSUFFICIENT_SIZE)


def _check(answer: int) -> None:
    if answer != _SUCCESS:
        raise ValueError(f"NVML: error {answer}")
