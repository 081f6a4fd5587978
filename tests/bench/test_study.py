"""Studies over seeds: workloads under conditions, and intervals by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from bench.spread import interval
from bench.study import page
from bench.study.cases import (
    BASE,
    CLUSTERS,
    EXPERIMENTS,
    FACTORS,
    SEEDS,
    TRACES,
    USUAL,
    WORKS,
    Case,
    Conditions,
)
from bench.study.works import JOBS, work
from hopsd.errors import InputError
from hopsd.sim.facts import facts_of


def case(conditions: Conditions = USUAL, policy: str = "hops", seed: int = 0) -> Case:
    return Case(BASE, conditions, policy, seed)


@pytest.mark.parametrize("load", [0.5, 1.0, 1.5])
def test_arriving_work_matches_the_load(load: float) -> None:
    cluster, jobs = work(case(replace(USUAL, load=load)), None)
    hours = sum(facts.gpu_seconds for facts in facts_of(cluster, jobs)) / 3600.0
    assert hours / (jobs.jobs[-1].submit / 3600.0) / cluster.gpus == pytest.approx(load)


@pytest.mark.parametrize("name", CLUSTERS)
def test_other_clusters_have_as_many_gpus_and_the_same_work(name: str) -> None:
    cluster_size, conditions = CLUSTERS[name]
    cluster, jobs = work(Case(cluster_size, conditions, "hops", 0), None)
    hours = sum(facts.gpu_seconds for facts in facts_of(cluster, jobs)) / 3600.0
    assert cluster.gpus == 64
    assert len(jobs.jobs) == JOBS
    assert hours / (jobs.jobs[-1].submit / 3600.0) / 64 == pytest.approx(conditions.load)
    assert all(len(job.reqs) == 1 for job in jobs.jobs) == (conditions.rigid == 1.0)


def test_the_share_of_rigid_jobs_grows_while_the_jobs_stay_the_same() -> None:
    _, elastic = work(case(), None)
    _, half = work(case(replace(USUAL, rigid=0.5)), None)
    _, rigid = work(case(replace(USUAL, rigid=1.0)), None)
    differences = [a.reqs != b.reqs for a, b in zip(elastic.jobs, half.jobs, strict=True)]
    assert 0 < sum(differences) <= JOBS // 2
    assert all(len(job.reqs) == 1 for job in rigid.jobs)
    assert [job.samples for job in rigid.jobs] == [job.samples for job in elastic.jobs]


def test_restarts_by_model_take_longer_for_larger_ones() -> None:
    _, jobs = work(case(replace(USUAL, restart=None)), None)
    seconds = {str(job.workload): job.restart_seconds or 0.0 for job in jobs.jobs}
    assert min(seconds.values()) > 10.0
    assert seconds["vgg11-imagenet"] > seconds["mobilenet_v2-imagenet"]


def test_every_case_is_saved_under_a_unique_name() -> None:
    cases = {case for cases_of_one in EXPERIMENTS.values() for case in cases_of_one}
    assert len({case.name for case in cases}) == len(cases)
    assert all(
        {case.seed for case in cases_of_one} == set(SEEDS) for cases_of_one in EXPERIMENTS.values()
    )


def test_traces_require_their_folder() -> None:
    name, conditions = next(iter(TRACES.items()))
    with pytest.raises(InputError, match="--sia"):
        work(Case(name, conditions, "hops", 0), None)


def test_an_interval_matches_values_by_hand() -> None:
    """Ratios of 2 and 8: a mean of 4; the logarithms' deviation is ln 2 times sqrt 2."""
    difference = interval([2.0, 16.0], [1.0, 2.0])
    assert difference.mean == pytest.approx(4.0)
    assert difference.high / difference.mean == pytest.approx(
        2 ** (12.706 * sqrt(2) / sqrt(2)), rel=1e-3
    )
    assert difference.low * difference.high == pytest.approx(16.0)
    assert not difference.differs
    no_difference = interval([0.0, 3.0], [0.005, 3.0])
    assert (no_difference.mean, no_difference.differs) == (1.0, False), (
        "what is nearly 0 is no ratio"
    )


def test_tables_show_simulated_cases_and_mark_significant_differences() -> None:
    def find(case: Case) -> page.Figures | None:
        if (case.work, case.policy) not in {(BASE, "hops"), (BASE, "sia")}:
            return None
        if case.conditions not in (USUAL, FACTORS["load"]["load 1.5"]):
            return None
        value = 2.0 + case.seed / 100 if case.policy == "sia" else 1.0
        return dict.fromkeys(page.KEYS, value)

    rows = page.works(find, WORKS).splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == ["`hops`", "`sia`"] * 2
    assert rows[0].count("**1**") == len(page.KEYS)
    assert "2.02 (2.00-2.04)" in rows[1]
    lines = page.conditions(find).splitlines()
    assert [line.split(" | ")[0] for line in lines if "**" in line] == ["| none", "| load 1.5"]
    assert lines[0] == "| changed | `hops` | `sia` |"
