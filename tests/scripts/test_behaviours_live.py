"""Scripts that fail, trap, submit or start again do so under hops as on plain Slurm."""

from __future__ import annotations

import pytest
from behaviours import BEHAVIOURS, Behaviour
from script_site import Run, Script, ScriptSite

pytestmark = [pytest.mark.live, pytest.mark.slow]


def script(case: Behaviour, comment: str | None = None) -> Script:
    options = "".join(f"#SBATCH {option}\n" for option in case.options.split())
    return Script(options + case.commands, comment, case.arguments)


@pytest.mark.long
def test_each_script_behaves_as_on_plain_slurm(scripts: ScriptSite) -> None:
    cases = BEHAVIOURS
    if scripts.release >= (25, 5):  # Slurm holds jobs of accounts without a login shell (26.05)
        cases = [case for case in BEHAVIOURS if not case.logs_in]
    single_cases = [case for case in cases if not case.restarts]
    plain = scripts.run([script(case) for case in single_cases])
    assert unexpected_results(single_cases, plain) == {}
    gpus = ["2" if "gpu:2" in case.options else "1" for case in cases]
    hops = scripts.run(
        [script(case, f"hops:reqs={n}") for case, n in zip(cases, gpus, strict=True)]
    )
    assert unexpected_results(cases, hops) == {}


def unexpected_results(cases: list[Behaviour], runs: list[Run]) -> dict[str, object]:
    """Return the results of the cases that did not end as expected."""
    return {
        case.name: (run.end, script_lines(run), run.output, run.message)
        for case, run in zip(cases, runs, strict=True)
        if (run.end, script_lines(run)) != (case.end, case.output)
    }


def script_lines(run: Run) -> tuple[str, ...]:
    """Return the lines that the script itself printed."""
    lines = run.output.splitlines()
    prefixes = ("FIGURES ", "hops: ", "srun: ", "slurmstepd", "[20", "/", "Terminated")
    return tuple(line for line in lines if not line.startswith(prefixes))
