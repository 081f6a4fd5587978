"""One small training, written in the ways that users write theirs.

Each module has ``train(run)``, which is the whole script of one rank, and ``MODULES``, the slow
imports that it needs.
"""

from __future__ import annotations

import importlib
from types import ModuleType

WAYS = (
    "plain", "trainer", "lightning", "accelerate", "webdataset", "text", "trainer_stream",
    "lightning_stream",
)  # fmt: skip


def way(name: str) -> ModuleType:
    return importlib.import_module(f"bench.elastic.ways.{name}")
