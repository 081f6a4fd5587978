"""Waits for PyTorch, and for frameworks that save by themselves: who imports none pays nothing.

Imports only what every Python has imported: this runs in every Python program of a job.
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
"""The environment as the job gave it. Libraries change theirs while they are imported, and not in
every run the same: `torch._dynamo`, for one, sets ``TORCHINDUCTOR_CACHE_DIR``.
"""

_WAITED_FOR = (
    "torch",
    "transformers.trainer_utils",
    "transformers.trainer",
    "lightning.pytorch.trainer.trainer",
    "pytorch_lightning.trainer.trainer",
    "accelerate.accelerator",
)
_suspended = False


def install() -> None:
    """Start measuring as soon as ``torch`` is imported, or now if it is already; and likewise look
    after the frameworks' saves.
    """
    if _suspended or any(isinstance(finder, _Trap) for finder in sys.meta_path):
        return
    waiting = set(_WAITED_FOR)
    for name in _WAITED_FOR:
        if name in sys.modules:
            waiting.remove(name)
            _loaded(name)
    if waiting:
        sys.meta_path.insert(0, _Trap(waiting))


def suspend() -> None:
    """Do not measure this process after ``torch`` is imported: a launcher's ranks train, not it."""
    global _suspended  # noqa: PLW0603 - each of the two ways in asks this module
    _suspended = True
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _Trap)]


def resume() -> None:
    """Start measuring after all, in a rank that was forked."""
    global _suspended  # noqa: PLW0603
    _suspended = False
    install()


class _Trap:
    """An import hook: has the real loader of a module in ``waiting`` call us once it has run it.

    Stays until then: code that only asks whether there is a ``torch`` (`importlib.util.find_spec`,
    as Transformers does) gets the true answer, however often it asks.
    """

    def __init__(self, waiting: set[str]) -> None:
        self._waiting = waiting
        self._asking: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._waiting or fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(fullname, path, target) if find else None
                if spec is not None:
                    self._call_after(spec)
                    return spec
        finally:
            self._asking.discard(fullname)
        return None

    def _call_after(self, spec: ModuleSpec) -> None:
        """Have ``spec.loader`` tell us after it has run the module."""
        loader = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # This loader loads one module: an instance attribute hides the class's method only
            # for it, and code that inspects the loader still sees its real type.
            del loader.exec_module
            run(module)
            self._waiting.discard(spec.name)
            if not self._waiting and self in sys.meta_path:
                sys.meta_path.remove(self)
            if not _suspended:
                _loaded(spec.name)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def _loaded(name: str) -> None:
    try:
        if name == "torch":
            from hops_profiler.timing import session  # noqa: PLC0415 - needs torch

            session.start()
        else:
            from hops_profiler.frameworks import attach  # noqa: PLC0415

            attach(name)
    except Exception:  # noqa: S110 - a job runs with or without its profiler
        pass
