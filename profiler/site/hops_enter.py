"""Loads the plugin in two ways: through ``sitecustomize``, and PyTorch's search for extensions.

Another ``sitecustomize`` earlier on the path hides ours. PyTorch 2.5 and newer load the entry
points ``torch.backends`` of distributions on the path; the folder ``hops_profiler-1.dist-info``
next to this file declares ``enter``.
"""
# A job's Python may be as old as 2.7, and must be able to parse this file.
# Every program of the job waits for this file, and importing pathlib alone takes 5 ms.
# ruff: noqa: PLC0415, PTH100, PTH118, PTH120

import os
import sys


def enter():
    """Measure this process's training if it is in a hops job. Never raises."""
    if sys.version_info < (3, 8) or os.environ.get("HOPS_JOB") != "1":
        return
    if os.environ.get("HOPS_JOB_ID") not in (None, os.environ.get("SLURM_JOB_ID")):
        return  # the variables belong to another job, which submitted this one
    try:
        if "hops_profiler" not in sys.modules:
            _load()
        from hops_profiler.startup import install

        install()
    except Exception:  # noqa: S110 - a job runs with or without its profiler
        pass


def _load():
    """Import ``hops_profiler`` from the folder above, as the job's Python may not have it."""
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = spec_from_file_location(
        "hops_profiler",
        os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder],
    )
    sys.modules["hops_profiler"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["hops_profiler"])
