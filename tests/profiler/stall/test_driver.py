"""Answers of the GPU driver through stubs of NVML: a Python module and a shared library."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hops_profiler.stall import driver

BUSY = {"GPU-1", "GPU-2"}


class Nvml:
    """Has GPUs ``GPU-0`` and so on; each of those in ``busy`` has a process."""

    def __init__(self, busy: set[str], lists: int | None = None) -> None:
        self.busy, self.lists = busy, lists
        self.names: dict[int, str] = {}

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:  # noqa: N802
        handle._obj.value = len(self.names) + 1
        self.names[handle._obj.value] = name.decode()
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(  # noqa: N802
        self, handle: ctypes.c_void_p, count: Any, processes: None
    ) -> int:
        assert (count._obj.value, processes) == (0, None)
        busy = self.names[handle.value or 0] in self.busy
        return self.lists if self.lists is not None else 7 if busy else 0


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A PyTorch that computes on four GPUs."""
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 4,
        get_device_properties=lambda device: SimpleNamespace(uuid=str(device)),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(driver, "_state", {})
    return cuda


def use(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    def load(name: str) -> Any:
        if isinstance(library, Exception):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_gpus_used_by_any_process_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Nvml(BUSY))
    assert driver.visible_and_taken() == (4, 2)
    assert driver.visible_and_taken() == (4, 2), "asked again"


def test_the_driver_is_not_asked_before_the_training_uses_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: SimpleNamespace
) -> None:
    gpus.is_initialized = lambda: False
    use(monkeypatch, AssertionError("asked"))
    assert driver.visible_and_taken() == (None, None)


@pytest.mark.parametrize("library", [OSError("no such file"), Nvml(BUSY, lists=3), object()])
def test_missing_answers_of_the_driver_are_unknown(
    monkeypatch: pytest.MonkeyPatch, library: Any
) -> None:
    use(monkeypatch, library)
    assert driver.visible_and_taken() == (None, None)
    assert driver.visible_and_taken() == (None, None)


NVML = r"""
#include <stdio.h>
#include <string.h>

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef enum {
    NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_FOUND = 6, NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_GPU_IS_LOST = 15
} nvmlReturn_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
struct nvmlDevice_st { unsigned int processes; };

/* Far above 4 GiB: a handle that is cut to an int is another. */
static struct nvmlDevice_st devices[GPUS];
static int initialized;

nvmlReturn_t nvmlInit_v2(void) {
    for (int i = 0; i < GPUS; i++) devices[i].processes = i % 3;
    initialized = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (!initialized) return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < GPUS; i++) {
        char name[96];
        snprintf(name, sizeof name, "GPU-%08x-0000-0000-0000-000000000000", i);
        if (!strcmp(name, uuid)) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes) {
    if (!initialized) return NVML_ERROR_UNINITIALIZED;
    if (LOST) return NVML_ERROR_GPU_IS_LOST;
    if (device < devices || device >= devices + GPUS || !count || (*count && !processes))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = device->processes;
    return room < *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
"""
"""What the driver asks of NVML, by the declarations of NVIDIA's nvml.h of version 12: names, types,
return codes and when they are returned. On each GPU are as many processes as its number is modulo
three.
"""

TORCH = """
from types import SimpleNamespace

cuda = SimpleNamespace(
    is_initialized=lambda: True,
    device_count=lambda: 8,
    get_device_properties=lambda device: SimpleNamespace(
        uuid=f"{device:08x}-0000-0000-0000-000000000000"
    ),
)
"""
ASK = "import torch; from hops_profiler.stall.driver import *; print(visible_and_taken())"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("gpus", "is_lost", "answer"),
    [(8, 0, "(8, 5)"), (8, 1, "(None, None)"), (7, 0, "(None, None)")],
    ids=["usual", "a GPU is lost", "a GPU is unknown"],
)
def test_the_nvml_library_is_called_as_its_header_declares(
    tmp_path: Path, gpus: int, is_lost: int, answer: str
) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    subprocess.run(
        [
            *("cc", "-shared", "-fPIC", "-xc", "-", f"-DGPUS={gpus}", f"-DLOST={is_lost}"),
            *("-o", tmp_path / "libnvidia-ml.so.1"),
        ],
        input=NVML,
        text=True,
        check=True,
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    result = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == answer
