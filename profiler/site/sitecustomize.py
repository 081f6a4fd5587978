"""Runs at the start of every Python in a job whose task prolog put this folder on PYTHONPATH.

Sets a trap for ``import torch``, in a hops job only; then lets a site's or an environment's own
``sitecustomize`` run, which this one hides.

A job's Python may be of any age, down to 2.7: what is written here must be Python to all of them.
Those older than the plugin run only the ``sitecustomize`` that this one hides.
"""
# Every program of the job waits for this file, and importing pathlib alone takes 5 ms.
# ruff: noqa: PLC0415, PTH100, PTH120, UP036

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _behind():
    """The part of the path after this folder: what comes before it has had its turn."""
    folders = [os.path.abspath(path) for path in sys.path]
    return sys.path[folders.index(_HERE) + 1 :] if _HERE in folders else []


def _run_hidden():
    """Run the next ``sitecustomize`` on the path; its errors are its own."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", _behind())
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


def _run_hidden_as_python_2():
    import imp

    try:
        found = imp.find_module("sitecustomize", _behind())
    except ImportError:
        return
    try:
        imp.load_module("sitecustomize", *found)
    finally:
        if found[0]:
            found[0].close()


try:
    from hops_enter import enter

    enter()
except ImportError:  # the file was taken away while this one was read: as without a plugin
    pass
if sys.version_info < (3, 5):
    _run_hidden_as_python_2()
else:
    _run_hidden()
