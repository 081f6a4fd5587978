"""What the GPUs' driver says, by a library that answers as NVML does."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hops_profiler.stall import driver

BUSY = {"GPU-1", "GPU-2"}


class Nvml:
    """With GPUs of the names ``GPU-0`` and so on; on those in ``busy`` is a process."""

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
    """A PyTorch that computes on GPUs: four of them."""
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


def test_gpus_with_a_process_of_anybody_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Nvml(BUSY))
    assert driver.visible_and_taken() == (4, 2)
    assert driver.visible_and_taken() == (4, 2), "asked again"


def test_before_the_training_computes_on_a_gpu_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, gpus: SimpleNamespace
) -> None:
    gpus.is_initialized = lambda: False
    use(monkeypatch, AssertionError("asked"))
    assert driver.visible_and_taken() == (None, None)


@pytest.mark.parametrize("library", [OSError("no such file"), Nvml(BUSY, lists=3), object()])
def test_what_the_driver_does_not_say_is_unknown(
    monkeypatch: pytest.MonkeyPatch, library: Any
) -> None:
    use(monkeypatch, library)
    assert driver.visible_and_taken() == (None, None)
    assert driver.visible_and_taken() == (None, None)
