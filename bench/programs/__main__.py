"""``python -m bench.programs FOLDER``: accuracy of the plugin on public programs.

FOLDER holds the repositories, each in a folder "owner+name" with its commit in a file
``.version``; ``--python`` is an interpreter with their requirements.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.programs.catalogue import LISTS, programs
from bench.programs.run import Result, run
from hopsd.ctl.render import show, table

GOOD = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.programs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--list", default="catalogue", choices=LISTS, help="which programs")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three parts of the list")
    parser.add_argument("--keep", type=Path, help="keep copies, clocks and reports here")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="hops-programs-") as scratch:
        part, parts = map(int, options.part.split("/"))
        for number, program in enumerate(programs(options.list)):
            if options.only in program.name and number % parts == part - 1:
                place = (options.keep or Path(scratch)) / str(number)
                try:
                    result = run(program, options.folder.resolve(), options.python, place)
                except (OSError, ValueError) as error:
                    result = Result(program, failure=repr(error))
                results.append(result)
                print("|", " | ".join(_row(result)), "|", flush=True)
    _summary(results)


def _row(result: Result) -> tuple[str, ...]:
    program = result.program
    source = f"{program.repo}/{program.script}" if program.repo else f"{program.package}"
    if not result.version:
        return program.name, source, "", "", "", result.failure
    iteration, speed = result.errors
    milliseconds, rates = (1e3 * value for value in result.iteration), result.speed
    return (
        program.name,
        source,
        result.version,
        "{:.3g} ms, by hand {:.3g} ms: {:+.1%}".format(*milliseconds, iteration),
        "{:.4g}/s, by hand {:.4g}/s: {:+.1%}".format(*rates, speed),
        result.failure or ("" if max(abs(iteration), abs(speed)) <= GOOD else "off"),
    )


def _summary(results: list[Result]) -> None:
    clock_results = [result for result in results if result.version]
    good = [r for r in clock_results if not r.failure and max(map(abs, r.errors)) <= GOOD]
    show(
        table(
            "Programs",
            ["run", "measured by hand", f"both within {GOOD:.0%} by the plugin"],
            [(str(len(results)), str(len(clock_results)), str(len(good)))],
        )
    )


if __name__ == "__main__":
    main()
