"""Run the hostile property tests for as long as requested, each turn with a seed of its own.

    python -m bench.hostile [--minutes 10] [--seed 1] [--examples 25]

Ends at the first failure or the first turn that hangs, and prints the seed that reproduces it and
the smallest example. Otherwise prints how many examples were drawn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/round/test_hostile.py",)
TURN_SECONDS = 1800.0
"""A turn takes a minute or two; one that fails takes longer, to find a smallest example."""


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="No turn begins after this time.")
@click.option("--seed", default=1, show_default=True, help="Seed of the first turn; each adds 1.")
@click.option("--examples", default=25, show_default=True, help="Examples per property and turn.")
def main(minutes: float, seed: int, examples: int) -> None:
    """Draw hostile comments, reports, readings and clocks until the time is over."""
    began = time.monotonic()
    turns = 0
    while turns == 0 or time.monotonic() - began < 60.0 * minutes:
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=0",
            "--show-capture=no", f"--hypothesis-seed={seed + turns}", "-m", "not live", *TESTS,
        ]  # fmt: skip
        environment = os.environ | {"HOPS_HOSTILE_EXAMPLES": str(examples)}
        try:
            process = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TURN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"seed {seed + turns} hangs: no end after {TURN_SECONDS:g} s"
            ) from None
        if process.returncode:
            print(process.stdout[-6000:])
            raise SystemExit(f"seed {seed + turns} fails, after {turns} turns without a failure")
        turns += 1
        print(f"{turns} turns of {examples} examples, {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"no tick failed and no honest job was placed otherwise in {2 * turns * examples} attacks"
    )


if __name__ == "__main__":
    main()
