"""``python -m bench.programs FOLDER``: measures the accuracy of the plugin on public programs.

FOLDER holds the repositories, each in a folder "owner+name" with its commit in a file ``.version``.
``--python`` is an interpreter in which their requirements are installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.programs.catalogue import LISTS, programs
from bench.programs.run import GOOD, Result, compare, run
from hopsd.ctl.render import show, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.programs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--list", default="catalogue", choices=LISTS, help="which programs")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three parts of the list")
    parser.add_argument(
        "--equal", action="store_true", help="compare what was trained with and without the plugin"
    )
    parser.add_argument("--keep", type=Path, help="keep copies, clocks and reports here")
    options = parser.parse_args()
    results: list[Result] = []
    verdicts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hops-programs-") as scratch:
        part, parts = map(int, options.part.split("/"))
        for number, program in enumerate(programs(options.list)):
            if options.only in program.name and number % parts == part - 1:
                place = (options.keep or Path(scratch)) / str(number)
                if options.equal:
                    verdicts.append(
                        compare(program, options.folder.resolve(), options.python, place)
                    )
                    print(f"| {program.name} | {verdicts[-1]} |", flush=True)
                    continue
                try:
                    result = run(program, options.folder.resolve(), options.python, place)
                except (OSError, ValueError) as error:
                    result = Result(program, failure=repr(error))
                results.append(result)
                print("|", " | ".join(_row(result)), "|", flush=True)
    if options.equal:
        _summarize_equality(verdicts)
    else:
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
        result.failure or result.verdict,
    )


def _summarize_equality(verdicts: list[str]) -> None:
    verdicts_found = [verdict for verdict in verdicts if verdict in ("equal", "different")]
    show(
        table(
            "Programs with and without the plugin",
            ["run", "could be judged", "equal bit for bit"],
            [(str(len(verdicts)), str(len(verdicts_found)), str(verdicts_found.count("equal")))],
        )
    )


def _summary(results: list[Result]) -> None:
    clock_results = [result for result in results if result.version]
    verdicts = [result.verdict for result in clock_results]
    show(
        table(
            "Programs",
            ["run", "measured by hand", f"both within {GOOD:.0%} by the plugin", "unknown", "off"],
            [
                (
                    str(len(results)),
                    str(len(clock_results)),
                    *(str(verdicts.count(verdict)) for verdict in ("", "unknown", "off")),
                )
            ],
        )
    )


if __name__ == "__main__":
    main()
