"""Leaves out the import of ``torch._dynamo`` until something needs it.

A training's first optimizer imports it, and so does ``DistributedDataParallel``, to keep functions
from being compiled where nothing is. That takes nearly as much processor time as all the rest of
PyTorch (0.9 and 1.1 s, 2.13). Here these functions of PyTorch have other code that does without;
everybody else imports the module as ever, and by then PyTorch is what it was.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NAME = "torch._dynamo"
_KEPT = "__dynamo_disable"
"""Where PyTorch keeps what ``torch._dynamo.disable`` makes of a function."""
_ANSWERS = "_hops_dynamo"
_WORDS = (b"_dynamo", b"torch.compile", b"sys.modules", b"\0")
"""A script with one of them may notice, or needs it anyway; nothing can be told of an archive."""
_MAKERS = (
    ("torch._compile", "_disable_dynamo"),
    ("torch.optim.optimizer", "_use_grad_for_differentiable"),
)
"""Decorators whose functions import it."""
_RELEASES = "2.13."
"""Of PyTorch, whose programs were compared with plain Python's (tests/profiler/launch)."""
_UNASKED = ("ctypes.util", "ctypes.wintypes")
"""What comes with it, and scripts may use without importing it."""
_CHECKPOINTS = ("_get_user_allowed_globals", "_get_safe_globals", "_clear_safe_globals")
"""What :func:`torch.load` accepts; the import adds classes of distributed tensors."""


def postpone(script: Path) -> None:
    """Leave it out, once PyTorch is imported.

    ``script``: if it names the compiler or the list of modules, its optimizers import it as ever.
    """
    known = str(sys.modules["torch"].__version__).startswith(_RELEASES)
    spec = find_spec(_NAME) if known and _NAME not in sys.modules else None
    if spec is None or type(spec.loader) is not SourceFileLoader:
        return
    with contextlib.suppress(OSError):
        text = script.read_bytes()
        if not any(word in text for word in _WORDS):
            _Postponed().wait()


class _Postponed:
    """Until it is imported, which this sees as an import hook."""

    def __init__(self) -> None:
        self._asked = False
        self._restore: list[Callable[[], object]] = []
        self._disabled: dict[Any, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def wait(self) -> None:
        sys.meta_path.insert(0, self)
        os.register_at_fork(before=_finish)
        setattr(sys.modules["torch"], _ANSWERS, _Answers(self))
        for function in _askers():
            code = function.__code__
            function.__code__ = _answered(code)
            self._restore.append(functools.partial(setattr, function, "__code__", code))

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: Any = None) -> Any:
        """As others find it; to load it tells us. Where a program imports more of PyTorch after
        its optimizer, the import is made up for first: it may bring that along, and more.
        """
        if not name.startswith("torch.") or name in sys.modules:
            return None
        if _NAME in sys.modules:  # somebody's hook has loaded it
            self._end()
            return None
        if name != _NAME and (not self._asked or _importer() == "torch"):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        own: Any = spec.loader  # its attributes go before its class's
        if name == _NAME:
            own.exec_module = functools.partial(self._execute, own)
        else:
            own.create_module = functools.partial(_import_before, own)
        return spec

    def _execute(self, loader: Any, module: ModuleType) -> None:
        del loader.exec_module  # of this instance: the class's is back
        kept = self._end()  # before: it remembers functions by their code
        loader.exec_module(module)
        for function in kept:
            _, options, named = self._disabled[function]
            setattr(function, _KEPT, module.disable(function, *options, **named))

    def _end(self) -> list[Any]:
        """PyTorch is what it was. The functions that were called meanwhile. Threads may meet."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        restore, self._restore = self._restore, []
        for each in reversed(restore):
            each()
        kept = []
        for function, (call, _, _) in list(self._disabled.items()):
            if getattr(function, _KEPT, None) is call:
                vars(function).pop(_KEPT, None)
                kept.append(function)
        return kept

    def ask(self) -> Any:
        """The module if it has been imported. Plain Python would import it now."""
        if _NAME in sys.modules:
            self._end()
            return importlib.import_module(_NAME)
        if not self._asked:
            self._asked = True
            for name in _UNASKED:
                importlib.import_module(name)
            self._catch_submodules()
            self._catch_checkpoints()
        return None

    def disable(self, function: Any, *options: Any, **named: Any) -> Any:
        """As its function: PyTorch keeps what it gets, which is replaced after the import."""
        module = self.ask()
        if module is not None:
            return module.disable(function, *options, **named)

        def call(*args: Any, **kwargs: Any) -> Any:  # a frame, which warnings count
            return function(*args, **kwargs)

        return self._disabled.setdefault(function, (call, options, named))[0]

    def _catch_submodules(self) -> None:
        """Its import brings other packages' submodules along, which scripts may use
        (``torch.distributed.fsdp``) without importing them.
        """
        for name, package in list(sys.modules.items()):
            if not name.startswith("torch.") or type(package) is not ModuleType:
                continue
            if "__path__" in vars(package) and "__getattr__" not in vars(package):
                self._replace(package, "__getattr__", functools.partial(_submodule, package))

    def _catch_checkpoints(self) -> None:
        unpickler: Any = sys.modules.get("torch._weights_only_unpickler")
        for name in _CHECKPOINTS:
            original = getattr(unpickler, name, None)
            if original is not None:
                self._replace(unpickler, name, functools.partial(_after_import, original))

    def _replace(self, owner: ModuleType, name: str, by: object) -> None:
        names = vars(owner)
        before = names.get(name)

        def restore() -> None:
            if names.get(name) is not by:  # somebody else has replaced it, too
                return
            if before is None:
                names.pop(name, None)
            else:
                names[name] = before

        names[name] = by
        self._restore.append(restore)


class _Answers:
    """What PyTorch's own functions get in place of the module, if nothing is compiled."""

    def __init__(self, postponed: _Postponed) -> None:
        self.disable = postponed.disable
        self.utils = _Utilities(postponed)
        self._postponed = postponed

    def graph_break(self, *args: Any, **kwargs: Any) -> None:
        module = self._postponed.ask()
        if module is not None:
            module.graph_break(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(_NAME), name)


class _Utilities:
    def __init__(self, postponed: _Postponed) -> None:
        self._postponed = postponed

    def get_optimize_ddp_mode(self) -> str:
        """Its default, until there is a setting."""
        if self._postponed.ask() is None:
            return "ddp_optimizer"
        mode: str = importlib.import_module(f"{_NAME}.utils").get_optimize_ddp_mode()
        return mode

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{_NAME}.utils"), name)


def _askers() -> Iterator[FunctionType]:
    """Functions that every training calls."""
    made: set[Any] = set()
    for name, maker in _MAKERS:
        code = getattr(getattr(sys.modules.get(name), maker, None), "__code__", None)
        made.update(code.co_consts if code else ())
    optimizers = sys.modules["torch"].optim
    parallel = sys.modules["torch"].nn.parallel.DistributedDataParallel
    for owner in (optimizers.Optimizer, *optimizers.Optimizer.__subclasses__(), parallel):
        for member in vars(owner).values():
            function = member
            while isinstance(function, FunctionType):
                if function is parallel.__init__ or function.__code__ in made:
                    yield function
                function = getattr(function, "__wrapped__", None)


def _answered(code: CodeType) -> CodeType:
    """The same, except that what it says about ``torch._dynamo`` is about :class:`_Answers`. As it
    is where it uses the module by another name.
    """
    does = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    for (before, name), (after, following) in pairwise(does):
        imports = before == "IMPORT_NAME" and name == _NAME
        if imports and (not after.startswith("STORE_") or following != "torch"):
            return code
        if following == "_dynamo" and (not before.startswith("LOAD_") or name != "torch"):
            return code
    if "_dynamo" not in code.co_names:
        return code
    names = {_NAME: "torch", "_dynamo": _ANSWERS}
    return code.replace(co_names=tuple(names.get(name, name) for name in code.co_names))


def _submodule(package: ModuleType, name: str) -> Any:
    # `from torch.distributed import fsdp` asks first, and then imports it; `import *` lists the
    # package if it has no __all__.
    imports = _package(sys._getframe(1)) == "importlib"
    if name == "__all__" or (not imports and _can_be_imported(f"{package.__name__}.{name}")):
        importlib.import_module(_NAME)
    if name in vars(package):
        return vars(package)[name]
    raise AttributeError(
        f"module '{package.__name__}' has no attribute '{name}'", name=name, obj=package
    )


def _can_be_imported(name: str) -> bool:
    """And is not being imported just now."""
    try:
        return name not in sys.modules and find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _importer() -> str:
    """The package whose import is under way in our caller."""
    frame = sys._getframe(2)
    while _package(frame) == "importlib" and frame.f_back:
        frame = frame.f_back
    return _package(frame)


def _package(frame: FrameType) -> str:
    """The top-level one whose code it runs."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _import_before(loader: Any, spec: Any) -> Any:
    """Plain Python has imported it before this module, and may have loaded this one by it."""
    del loader.create_module
    _try()
    module = sys.modules.get(spec.name)
    if module is None:
        return loader.create_module(spec)
    loader.exec_module = lambda _: delattr(loader, "exec_module")
    return module


def _after_import(function: Callable[..., Any]) -> Any:
    _try()
    return function()


def _try() -> None:
    with contextlib.suppress(Exception):  # who does not compile need not have a compiler
        importlib.import_module(_NAME)


def _finish() -> None:
    """Wait for a thread that imports it: a fork would keep its locks, but not the thread."""
    if _NAME in sys.modules:
        _try()
