"""Run time extrapolated from two short samples of a job on a resource (AlloX, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from hopsd.errors import InputError


@dataclass(frozen=True, slots=True)
class Sample:
    """A run of ``iterations`` iterations; ``seconds`` includes the job's start."""

    iterations: float
    seconds: float


def run_seconds(first: Sample, second: Sample, iterations: float) -> float:
    """Extrapolate the run time of ``iterations`` linearly from two samples.

    If noise makes the longer sample no slower than the shorter one, use the longer sample's mean
    pace instead.

    Raises:
        InputError: both samples have the same length.
    """
    short, long = sorted((first, second), key=lambda sample: sample.iterations)
    if short.iterations == long.iterations or short.iterations <= 0:
        raise InputError(
            f"samples of {short.iterations:g} and {long.iterations:g} iterations;"
            " give two lengths above 0"
        )
    pace = (long.seconds - short.seconds) / (long.iterations - short.iterations)
    if pace <= 0:
        return iterations * long.seconds / long.iterations
    return long.seconds + pace * (iterations - long.iterations)
