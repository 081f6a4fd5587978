"""Runs at the start of every Python in a job whose task prolog put this folder on PYTHONPATH.

In a hops job, it sets a trap for ``import torch``; then it runs the ``sitecustomize`` of the site
or of the environment, which this one hides.

A job's Python may be as old as 2.7, and must be able to parse this file. Versions that the plugin
does not support run only the hidden ``sitecustomize``.
"""
# Every program of the job waits for this file, and importing pathlib alone takes 5 ms.
# ruff: noqa: PLC0415, PTH100, PTH120, UP036

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _later_folders():
    """Return the part of the path after this folder; Python has searched the part before it."""
    folders = [os.path.abspath(path) for path in sys.path]
    return sys.path[folders.index(_FOLDER) + 1 :] if _FOLDER in folders else []


def _run_hidden():
    """Run the next ``sitecustomize`` on the path; its errors propagate."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", _later_folders())
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


def _run_hidden_as_python_2():
    import imp

    try:
        location = imp.find_module("sitecustomize", _later_folders())
    except ImportError:
        return
    try:
        imp.load_module("sitecustomize", *location)
    finally:
        if location[0]:
            location[0].close()


try:
    from hops_enter import enter

    enter()
except ImportError:  # the file was removed while Python read this one
    pass
if sys.version_info < (3, 5):
    _run_hidden_as_python_2()
else:
    _run_hidden()
