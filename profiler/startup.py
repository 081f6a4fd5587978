"""Waits for the import of PyTorch and of frameworks that save by themselves.

It runs in every Python program of a job, so it imports only what every Python has imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


ENVIRON = dict(os.environ)
"""The job's environment before libraries change it during their import, which differs between
runs: `torch._dynamo`, for example, sets ``TORCHINDUCTOR_CACHE_DIR``.
"""

_MODULES = (
    "torch",
    "transformers.trainer_utils",
    "transformers.trainer",
    "lightning.pytorch.trainer.trainer",
    "pytorch_lightning.trainer.trainer",
    "accelerate.accelerator",
)
_is_suspended = False


def install() -> None:
    """Start measuring when ``torch`` is imported, or now if it has been; likewise hook into the
    frameworks' saves.
    """
    if _is_suspended or any(isinstance(finder, _Trap) for finder in sys.meta_path):
        return
    waiting = set(_MODULES)
    for name in _MODULES:
        if name in sys.modules:
            waiting.remove(name)
            _attach(name)
    if waiting:
        sys.meta_path.insert(0, _Trap(waiting))


def suspend() -> None:
    """Stop measuring this process: a launcher's ranks train, not the launcher itself."""
    global _is_suspended  # noqa: PLW0603 - read on both entry paths
    _is_suspended = True
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _Trap)]


def resume() -> None:
    """Undo :func:`suspend`, in a forked rank."""
    global _is_suspended  # noqa: PLW0603
    _is_suspended = False
    install()


class _Trap:
    """An import hook that lets the real loader of a module in ``waiting`` call us after running it.

    It stays until then: code that only asks whether ``torch`` exists (`importlib.util.find_spec`,
    as Transformers does) gets the true answer, however often it asks.
    """

    def __init__(self, waiting: set[str]) -> None:
        self._waiting = waiting
        self._lookups: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._waiting or fullname in self._lookups:
            return None
        self._lookups.add(fullname)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(fullname, path, target) if find else None
                if spec is not None:
                    self._call_after(spec)
                    return spec
        finally:
            self._lookups.discard(fullname)
        return None

    def _call_after(self, spec: ModuleSpec) -> None:
        """Let ``spec.loader`` call us after it has run the module."""
        loader = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader loads one module, so an instance attribute hides the class's method only
            # for it, and code that inspects the loader still sees its real type.
            del loader.exec_module
            run(module)
            self._waiting.discard(spec.name)
            if not self._waiting and self in sys.meta_path:
                sys.meta_path.remove(self)
            if not _is_suspended:
                _attach(spec.name)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def _attach(name: str) -> None:
    try:
        if name == "torch":
            from hops_profiler.timing import session  # noqa: PLC0415 - needs torch

            session.start()
        else:
            from hops_profiler.frameworks import attach  # noqa: PLC0415

            attach(name)
    except Exception:  # noqa: S110 - a job runs with or without its profiler
        pass
