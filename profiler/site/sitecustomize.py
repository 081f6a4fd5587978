"""Runs at the start of every Python in a job whose task prolog put this folder on PYTHONPATH.

Sets a trap for ``import torch``, in a hops job only; then lets a site's or an environment's own
``sitecustomize`` run, which this one hides.
"""
# Every program of the job waits for this file, and importing pathlib alone takes 5 ms.
# ruff: noqa: PLC0415, PTH100, PTH118, PTH120, S101

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_profiler() -> None:
    """Import ``hops_profiler`` from the folder above: the job's Python need not have it."""
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(_HERE)
    spec = spec_from_file_location(
        "hops_profiler",
        os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder],
    )
    assert spec is not None  # the path ends in .py
    assert spec.loader is not None
    sys.modules["hops_profiler"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["hops_profiler"])


def _run_hidden() -> None:
    """Run the next ``sitecustomize`` on the path; its errors are its own."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    elsewhere = [path for path in sys.path if os.path.abspath(path) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


if os.environ.get("HOPS_JOB") == "1":
    try:
        if "hops_profiler" not in sys.modules:
            _load_profiler()
        from hops_profiler.startup import install

        install()
    except Exception:  # noqa: S110 - a job runs with or without its profiler
        pass
_run_hidden()
