"""Runs the training script in a forked rank as ``python script.py`` would."""

from __future__ import annotations

import functools
import random
import runpy
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from hops_profiler import environment, startup


def run(arguments: Sequence[str], *, module: bool) -> None:
    """Become the script, with its argv, path, seeds and, in a hops job, timing."""
    _seed()
    _keep_groups_longer_than_reducers()
    sys.argv = list(arguments)
    if module:
        _run_module(arguments[0])
    elif Path(arguments[0]).is_file():
        _run_file(Path(arguments[0]))
    else:  # a folder or an archive with a __main__; else Python reports the error
        _time()
        runpy.run_path(arguments[0], run_name="__main__")


def _keep_groups_longer_than_reducers() -> None:
    """Free a model's process group only after its reducer (PyTorch 2.13, gloo).

    A group's destructor waits for the group's threads. If a reducer has the last reference, it does
    so while holding the GIL, and waits forever if a thread needs the GIL to free an all-reduce: on
    a busy machine, ranks whose model is local to a function often never ended. Python's objects for
    groups release the GIL.
    """
    parallel = sys.modules.get("torch.nn.parallel")
    if parallel is None:  # then ranks are separate processes
        return
    original = parallel.DistributedDataParallel.__init__
    if hasattr(original, "hops_wraps"):
        return

    @functools.wraps(original)
    def init(model: Any, *args: Any, **kwargs: Any) -> None:
        original(model, *args, **kwargs)
        with suppress(Exception):  # errors are not the user's
            for name in ("reducer", "logger"):  # each holds the reducer; some models have neither
                part = getattr(model, name, None)
                if part is not None:
                    weakref.finalize(part, _free, model.process_group).atexit = False

    init.hops_wraps = True  # type: ignore[attr-defined]
    parallel.DistributedDataParallel.__init__ = init


def _free(_group: object) -> None:
    """Do nothing; called with the group after the reducer has been freed."""


def _run_file(path: Path) -> None:
    """Run the script in a ``__main__`` that lives as long as the process. :func:`runpy.run_path`
    destroys its module at the script's end, and a process group freed then waits forever for its
    threads (PyTorch 2.13, gloo).
    """
    sys.path[0] = str(path.resolve().parent)
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    main = ModuleType("__main__")
    main.__file__ = str(path.absolute())
    main.__dict__.update(__builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    _time()
    exec(code, main.__dict__)  # noqa: S102 - the user's own script


def _run_module(name: str) -> None:
    sys.path[0] = str(Path.cwd())
    spec = find_spec(name)
    sys.modules["__main__"].__file__ = getattr(spec, "origin", None)
    _time()
    # ``python -m`` itself calls this; run_module() has a temporary ``__main__``, see above.
    runpy._run_module_as_main(name, alter_argv=False)  # type: ignore[attr-defined]


def _time() -> None:
    """Start the timing plugin, which looks at ``__main__``, if this is a hops job."""
    if environment.number():
        startup.resume()


def _seed() -> None:
    """Seed anew, since ranks started separately draw different numbers; PyTorch's seed is fixed."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
