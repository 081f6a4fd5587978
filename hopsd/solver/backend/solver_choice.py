"""Choice of the solver: CBC, or HiGHS if it is requested and installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

from hopsd.errors import ConfigError
from hopsd.solver.backend import cbc
from hopsd.solver.backend.checked_solver import Solve

VARIABLE = "HOPS_SOLVER"
"""Environment variable that names the solver: ``cbc`` (default) or ``highs``."""


def backend() -> Solve:
    """Return the solver named in the environment.

    Raises:
        ConfigError: the named solver is unknown or not installed.
    """
    name = os.environ.get(VARIABLE, "cbc")
    if name == "cbc":
        return cbc.solve
    if name == "highs":
        if find_spec("highspy") is None:
            raise ConfigError(
                f"{VARIABLE}=highs: highspy is not installed (pip install hops[highs])"
            )
        from hopsd.solver.backend import highs  # noqa: PLC0415  # optional dependency

        return highs.solve
    raise ConfigError(f"{VARIABLE}={name}: choose cbc or highs")
