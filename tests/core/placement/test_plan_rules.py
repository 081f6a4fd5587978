"""Sections 5 to 7, checked in the plan: configurations, the program and a round."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hopsd.formats.plan import plan_json
from hopsd.formats.snapshot import read_snapshot
from hopsd.policies.hops.policy import plan

Json = dict[str, Any]
SPREADABLE = {"v": {"aggregated": {"1": 10.0}, "distributed": {"2": 8.0}}}
SENSITIVE = {"v": {"aggregated": {"1": 10.0}, "distributed": {"2": 5.0}}}
PACKED_TABLE = {"v": {"aggregated": {"1": 10.0}}}


def job(job_id: str = "1", **fields: Any) -> Json:
    return {
        "id": job_id,
        "user": "u",
        "submit": 0,
        "wait": 100,
        "age": 100,
        "priority": 1.0,
        "reqs": [1],
        "preemptible": True,
        "running": {},
        "sensitivity": None,
        "throughput": PACKED_TABLE,
        **fields,
    }


def nodes(*idle: int, gpus: int = 4, gpu_type: str = "v") -> list[Json]:
    return [
        {"name": f"n{i}", "gpu_type": gpu_type, "gpus": gpus, "idle": free}
        for i, free in enumerate(idle)
    ]


def plan_of(servers: list[Json], *jobs: Json, first: bool = True, **settings: Any) -> Json:
    document = {
        "now": 1000,
        "round": {"first": first, "seconds": 1000},
        "nodes": servers,
        "jobs": list(jobs),
        "settings": {"gap": 0, **settings},
    }
    return plan_json(plan(*read_snapshot(json.dumps(document))))


def places(plan: Json) -> Json:
    return plan["placements"]


# Section 5: configurations.


def test_a_job_may_fill_a_whole_server() -> None:
    plan = plan_of(nodes(4), job(reqs=[4]))
    assert places(plan) == {"1": {"n0": 4}}


def test_every_server_that_holds_a_requirement_is_a_configuration() -> None:
    assert plan_of(nodes(4, 2, 0), job(reqs=[1, 2, 3]))["configurations"] == 2 + 2 + 1


def test_a_job_of_low_sensitivity_is_spread_over_neighbours() -> None:
    plan = plan_of(nodes(2, 2), job(reqs=[3], throughput=SPREADABLE), first=False)
    assert places(plan) == {"1": {"n0": 2, "n1": 1}}
    assert plan["configurations"] == 1


def test_a_sensitive_job_is_not_spread() -> None:
    plan = plan_of(nodes(2, 2), job(reqs=[3], throughput=SENSITIVE), first=False)
    assert places(plan) == {}
    [waiting] = plan["waiting"]
    assert waiting["code"] == "no_configuration"
    assert "3 GPUs" in waiting["reason"]
    assert "4 idle on nodes that it may use, at most 2 on one node" in waiting["reason"]


def test_a_job_as_sensitive_as_sigma_is_spread() -> None:
    tables = {"v": {"aggregated": {"1": 14.0}, "distributed": {"2": 10.0}}}
    wide = job(reqs=[3], throughput=tables)
    assert places(plan_of(nodes(2, 2), wide, first=False)) == {"1": {"n0": 2, "n1": 1}}
    assert places(plan_of(nodes(2, 2), wide, first=False, sigma=1.39)) == {}


def test_a_sensitive_job_larger_than_every_server_is_spread() -> None:
    plan = plan_of(nodes(4, 4), job(reqs=[6], throughput=SENSITIVE))
    assert places(plan)["1"] in ({"n0": 4, "n1": 2},)
    assert places(plan_of(nodes(4, 4), job(reqs=[2, 6], throughput=SENSITIVE))) != {
        "1": {"n0": 4, "n1": 2}
    }


def test_a_server_with_nothing_idle_separates_neighbours() -> None:
    wide = job(reqs=[3], throughput=SPREADABLE)
    assert places(plan_of(nodes(2, 0, 2), wide, first=False)) == {}


@pytest.mark.parametrize("contract", [{}, {"shape": "even"}, {"shape": "even", "per_node": 2}])
def test_a_server_that_a_job_may_not_use_does_not_separate_neighbours(contract: Json) -> None:
    """Regression: excluded servers never become free for the job, which would wait for ever."""
    wide = job(reqs=[4], throughput=SPREADABLE, nodes=["n0", "n2"], **contract)
    assert places(plan_of(nodes(2, 2, 2, gpus=2), wide)) == {"1": {"n0": 2, "n2": 2}}
    assert places(plan_of(nodes(2, 0, 2, gpus=2), wide, first=False)) == {"1": {"n0": 2, "n2": 2}}


def test_neighbours_are_of_one_type_in_the_clusters_order() -> None:
    servers = nodes(2, 2, 2)
    servers[1]["gpu_type"] = "other"
    wide = job(reqs=[3], throughput=SPREADABLE)
    assert places(plan_of(servers, wide, first=False)) == {"1": {"n0": 2, "n2": 1}}


def test_only_the_spread_shapes_over_the_fewest_servers_are_kept() -> None:
    # From n0: 1+1+2, from n1: 1+3; from n2 on the 4 GPUs: 3+1.
    wide = job(reqs=[4], throughput=SPREADABLE)
    plan = plan_of(nodes(1, 1, 3, 3), wide, first=False)
    assert plan["configurations"] == 2
    assert places(plan)["1"] in ({"n1": 1, "n2": 3}, {"n2": 3, "n3": 1})


def test_spread_shapes_begin_where_one_server_is_too_small() -> None:
    # n1 holds 2 by itself; from n0 it takes 1, with 1 on n1; n2 has no neighbour left.
    plan = plan_of(nodes(1, 4, 1), job(reqs=[2], throughput=SPREADABLE), first=False)
    assert plan["configurations"] == 2


def test_a_running_job_keeps_its_placement_as_a_configuration() -> None:
    odd = job(reqs=[2], running={"n0": 3}, throughput=PACKED_TABLE)
    assert plan_of(nodes(1), odd)["configurations"] == 2
    assert plan_of(nodes(1), odd, paper_exact=True)["configurations"] == 1


def test_a_current_placement_that_is_also_a_configuration_counts_once() -> None:
    assert plan_of(nodes(2), job(reqs=[2], running={"n0": 2}))["configurations"] == 1


# Section 6: the program.


def test_gain_is_throughput_over_the_smallest_of_the_jobs_configurations() -> None:
    plan = plan_of(nodes(4), job(reqs=[1, 4], priority=0.5))
    assert plan["jobs"]["1"]["gain"] == 4.0
    assert plan["objective"] == 0.5 * 4.0


@pytest.mark.parametrize(
    ("priorities", "weights"),
    [
        ((2.0, 3.0), (2.0, 3.0)),
        ((0.0, 3.0), (0.01, 3.01)),
        ((-2.0, 3.0), (0.01, 5.01)),
        ((0.0, 0.0), (0.01, 0.01)),
    ],
)
def test_bias_lifts_priorities_where_one_is_not_positive(
    priorities: tuple[float, float], weights: tuple[float, float]
) -> None:
    jobs = [job(str(i), priority=p) for i, p in enumerate(priorities)]
    assert plan_of(nodes(4), *jobs)["objective"] == pytest.approx(sum(weights))
    objective = plan_of(nodes(4), *jobs, **{"lambda": 2})["objective"]
    assert objective == pytest.approx(sum(weight**2 for weight in weights))


def test_bias_considers_only_jobs_of_the_program() -> None:
    inside, outside = job("1", reqs=[4], priority=2.0), job("2", reqs=[4], priority=-9.0)
    plan = plan_of(nodes(4), inside, outside)
    assert plan["window"] == ["1"]
    assert plan["objective"] == 2.0


def test_lambda_0_means_efficiency_only_and_a_large_lambda_priority_only() -> None:
    urgent = job("1", reqs=[4], priority=9.0, throughput={"v": {"aggregated": {"1": 10.0}}})
    fast = job("2", reqs=[1, 4], priority=1.0)
    assert places(plan_of(nodes(4, 0), urgent, fast, **{"lambda": 0})) == {"2": {"n0": 4}}
    assert places(plan_of(nodes(4, 0), urgent, fast, **{"lambda": 50})) == {"1": {"n0": 4}}


def test_the_service_window_counts_all_gpus_including_those_of_pinned_jobs() -> None:
    pinned_job = job("9", running={"n0": 4}, preemptible=False)
    queue = [job(str(i), reqs=[4], priority=10.0 - i) for i in range(4)]
    plan = plan_of(nodes(0, 4), pinned_job, *queue)
    assert plan["window"] == ["0", "1"]
    outside = {w["id"]: w for w in plan["waiting"] if w["code"] == "outside_window"}
    assert set(outside) == {"2", "3"}
    for number in ("number 3", "priority 8", "first 2 jobs", "8 GPUs"):
        assert number in outside["2"]["reason"]


def test_a_job_that_fits_nowhere_takes_no_place_in_the_window() -> None:
    plan = plan_of(nodes(4), job("1", reqs=[5], priority=9.0), job("2", reqs=[4]), job("3"))
    assert plan["window"] == ["2"]
    [waiting_row] = [w for w in plan["waiting"] if w["id"] == "1"]
    assert waiting_row["code"] == "no_configuration"
    assert "5 GPUs" in waiting_row["reason"]
    assert "v has 4 in one server" in waiting_row["reason"]


# Section 7: a round.


def test_a_first_plan_lets_running_jobs_compete_again() -> None:
    runs = job("1", reqs=[4], priority=1.0, running={"n0": 4})
    urgent = job("2", reqs=[4], priority=5.0)
    plan = plan_of(nodes(0), runs, urgent)
    # The window ends with the urgent job, which asks for all GPUs.
    assert places(plan) == {"2": {"n0": 4}}
    assert [(w["id"], w["code"]) for w in plan["waiting"]] == [("1", "outside_window")]


def test_a_later_plan_leaves_running_jobs_alone() -> None:
    runs = job("1", reqs=[2], running={"n0": 2})
    plan = plan_of(nodes(2), runs, job("2", reqs=[1, 2, 4], priority=9.0), first=False)
    assert places(plan) == {"2": {"n0": 2}}
    assert plan["waiting"] == []
    assert set(plan["jobs"]) == {"2"}


def test_a_pinned_job_keeps_its_gpus_and_appears_in_no_plan() -> None:
    pinned_job = job("1", reqs=[2], priority=0.1, running={"n0": 2}, preemptible=False)
    plan = plan_of(nodes(2), pinned_job, job("2", reqs=[3], priority=9.0), job("3", reqs=[2]))
    assert places(plan) == {"3": {"n0": 2}}
    assert "1" not in {w["id"] for w in plan["waiting"]}


def test_the_cost_of_a_move_is_applied_after_the_row_is_normalised() -> None:
    # At home 1 GPU, gain 1; moved to 2 GPUs, gain 2 times what a restart of 400 s leaves of 1000.
    runs = job("1", reqs=[1, 2], running={"n0": 1}, restart_seconds=400)
    plan = plan_of(nodes(1), runs)
    assert places(plan) == {"1": {"n0": 2}}
    assert plan["jobs"]["1"]["gain"] == pytest.approx(2 * 0.6)
    assert plan["jobs"]["1"]["throughput"] == 20.0
    stays = plan_of(nodes(1), {**runs, "restart_seconds": 600})
    assert places(stays) == {"1": {"n0": 1}}


def test_a_restart_longer_than_the_round_has_value_0_and_not_less() -> None:
    runs = job("1", reqs=[1, 2], running={"n0": 1}, restart_seconds=5000)
    plan = plan_of(nodes(1), runs)
    assert (places(plan), plan["objective"]) == ({"1": {"n0": 1}}, 1.0)


def test_a_restart_is_free_under_paper_exact() -> None:
    runs = job("1", reqs=[1, 2], running={"n0": 1}, restart_seconds=600)
    plan = plan_of(nodes(1), runs, paper_exact=True)
    assert (places(plan), plan["objective"]) == ({"1": {"n0": 2}}, 2.0)


def test_the_adjustment_applies_to_later_plans_only() -> None:
    queue = [
        job("1", reqs=[4], priority=9.0, sensitivity=2.0),
        job("2", reqs=[1], priority=2.0, sensitivity=1.1),
    ]
    plan = plan_of(nodes(2), *queue, first=False)
    assert (plan["window"], plan["adjusted"]) == (["1"], ["2"])
    assert places(plan) == {"2": {"n0": 1}}
    assert plan_of(nodes(2), *queue)["adjusted"] == []


@pytest.mark.parametrize("state", ["held", "dependency", "profiling"])
def test_jobs_outside_the_queue_wait_for_their_own_reason(state: str) -> None:
    plan = plan_of(nodes(4), job("1", state=state))
    assert (places(plan), plan["window"], plan["jobs"]) == ({}, [], {})
    assert [(w["id"], w["code"]) for w in plan["waiting"]] == [("1", state)]
    assert plan["fragments"] == 0


def test_idle_gpus_are_fragments_while_jobs_wait() -> None:
    assert plan_of(nodes(3), job("1", reqs=[2]), first=False)["fragments"] == 0
    plan = plan_of(nodes(3), job("1", reqs=[2]), job("2", reqs=[2]), first=False)
    assert plan["fragments"] == 1
    assert plan_of(nodes(3), job("1", reqs=[4]), first=False)["fragments"] == 3


def test_idle_gpus_that_a_job_of_the_window_can_use_are_used() -> None:
    small = job("2", priority=1e-9)
    plan = plan_of(nodes(4), job("1", reqs=[3], priority=1e3), small, gap=0.05)
    assert set(places(plan)) == {"1", "2"}


def test_an_empty_queue_or_cluster_gives_an_empty_plan() -> None:
    for empty_plan in (plan_of(nodes(4)), plan_of([]), plan_of([], job())):
        assert (places(empty_plan), empty_plan["objective"], empty_plan["gap"]) == ({}, 0.0, 0.0)
        assert empty_plan["status"] == "optimal"
    assert plan_of([], job())["waiting"][0]["code"] == "no_configuration"
