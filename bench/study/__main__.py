"""Policies on several workloads, five seeds each: bench/results/study.md.

    python -m bench.study [--sia DIR] [--only mix,load,...] [--no-run]

``--sia``: the ``sia-simulator`` folder of Sia's authors (github: siasosp23/artifacts), which their
traces need; without it, saved runs of the traces stay as they are. Runs are saved under
build/study, in a folder per policy; remove that folder when the policy has changed.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from bench import run_cases
from bench.study.cases import EXPERIMENTS, TRACES
from bench.study.page import write
from bench.study.runs import load_figures, run


def main() -> None:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--sia", type=Path)
    folder = options.parse_known_args()[0].sia
    experiments = {
        name: cases for name, cases in EXPERIMENTS.items() if folder or name not in TRACES
    }
    run_cases.main(
        experiments,
        lambda case: load_figures(case) is not None,
        partial(run, folder=folder),
        partial(write, load_figures),
        [options],
    )


if __name__ == "__main__":
    main()
