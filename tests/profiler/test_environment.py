"""A process reads the variables of its job, never those of the job that submitted it."""

from __future__ import annotations

import pytest
from hops_profiler import environment

OURS = {
    "SLURM_JOB_ID": "7",
    "HOPS_JOB": "1",
    "HOPS_JOB_ID": "7",
    "HOPS_REPORT_DIR": "/reports",
    "HOPS_PROFILE": "20",
    "HOPS_LR": "0.8",
    "HOPS_STATE_DIR": "/memory/hops/7.n1",
    "HOPS_RESTART_COUNT": "3",
    "HOPS_REQUEUE_EXIT_CODE": "85",
    "HOPS_TRAINS": "1",
    "HOPS_TRIAL": "1",
}


@pytest.mark.parametrize("environ", [OURS, {k: v for k, v in OURS.items() if k != "HOPS_JOB_ID"}])
def test_a_job_reads_its_variables(environ: dict[str, str]) -> None:
    job = environment.job(environ)
    assert job is not None
    assert (job.id, job.profile, job.run) == ("7", 20, 3)
    assert environment.learning_rate(environ) == 0.8
    assert environment.state_dir(environ) == OURS["HOPS_STATE_DIR"]
    assert environment.requeue_code(environ) == 85
    assert environment.is_below_training(environ)
    assert environment.is_trial(environ)


def test_variables_of_the_submitting_job_are_ignored() -> None:
    child = OURS | {"SLURM_JOB_ID": "8"}
    assert environment.job(child) is None
    assert environment.number(child) == ""
    assert environment.learning_rate(child) is None
    assert environment.state_dir(child) == ""
    assert environment.requeue_code(child) is None
    assert environment.restarts(child) == 0
    assert not environment.is_below_training(child)
    assert not environment.is_trial(child)
