"""Command line of experiments with saved runs: run the missing cases, write the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from bench.clock import cpu_seconds
from hopsd.ctl.study.progress_bar import ProgressBar


class HasName(Protocol):
    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=HasName)


def main(
    experiments: Mapping[str, Sequence[C]],
    is_saved: Callable[[C], bool],
    run: Callable[[C], object],
    write_page: Callable[[], None],
    parents: Sequence[argparse.ArgumentParser] = (),
) -> None:
    """``experiments`` has cases by the name that ``--only`` takes, ``parents`` further options."""
    parser = argparse.ArgumentParser(parents=parents)
    parser.add_argument("--only", default=",".join(experiments), help="comma-separated")
    parser.add_argument(
        "--no-run", action="store_true", help="only write the page, from saved runs"
    )
    options = parser.parse_args()
    selection = [] if options.no_run else options.only.split(",")
    if unknown := set(selection) - set(experiments):
        parser.error(f"no experiment {min(unknown)!r}; there are {', '.join(experiments)}")
    missing = {
        case.name: (experiment, case)
        for experiment in selection
        for case in experiments[experiment]
        if not is_saved(case)
    }
    with ProgressBar("runs") as bar:
        for number, (experiment, case) in enumerate(missing.values()):
            bar.show(number, len(missing))
            began = cpu_seconds()
            run(case)
            seconds = cpu_seconds() - began
            print(f"{experiment}: {case.name} in {seconds:.0f} s", file=sys.stderr)
    write_page()
