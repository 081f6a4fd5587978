"""A training process's report, in the format of the timing plugin."""

from __future__ import annotations

from typing import Any

NOW = 1_700_000_000.0


def report(**changes: Any) -> dict[str, Any]:
    """A valid report of job 17 on n0: 20 iterations/s of 32 samples."""
    return {
        "version": 1,
        "job": "17",
        "run": 0,
        "node": "n0",
        "rank": 0,
        "world": 1,
        "pid": 4242,
        "started": NOW - 30,
        "first_step": NOW - 20,
        "at": NOW,
        "final": False,
        "iterations": 103,
        "samples": 3296,
        "samples_from": "batch",
        "timed": {"iterations": 100, "samples": 3200, "seconds": 5.0},
        "kind": "training",
        "batch": 32,
        "params": 25_600_000,
        "basics": {
            "clock": "cpu",
            "pattern": 2,
            "t_f": 0.01,
            "t_b": 0.02,
            "t_u": 0.003,
            "t_w": 0.001,
        },
        "phases": {"data": {"count": 100, "mean": 0.002, "bins": {"75": 60, "90": 40}}},
        "backward_by_data": {"75": 1.2, "90": 0.8},
        "interrupted": 0,
        "failure": "",
    } | changes


def timed_part(iterations: int, samples: int, seconds: float) -> dict[str, Any]:
    """The part of a report about a number of timed iterations."""
    return {
        "timed": {"iterations": iterations, "samples": samples, "seconds": seconds},
        "phases": {"data": {"mean": 0.002, "bins": {"75": iterations}}},
        "backward_by_data": {"75": 0.02 * iterations},
    }
