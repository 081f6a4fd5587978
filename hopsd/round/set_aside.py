"""Excludes the jobs and nodes that make a decision raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hopsd.model.ids import JobId, NodeName
from hopsd.model.isolation import PASS_THROUGH_ERRORS, describe_error, find_failing_items
from hopsd.model.plan import RoundInfo
from hopsd.model.reading import NodeReading, Reading
from hopsd.model.reason import Reason, ReasonCode
from hopsd.round.decide import Decision, PlanningInputs, decide
from hopsd.round.observation import SET_ASIDE, Observation
from hopsd.round.settings import RoundSettings


def decide_excluding_defective(
    observation: Observation, info: RoundInfo, inputs: PlanningInputs, settings: RoundSettings
) -> Decision:
    """Decide for all jobs and nodes except those that make it raise, which are set aside.

    Such a job stays where it runs, or waits; jobs on such a node stay there.
    """
    try:
        return decide(observation, info, inputs, settings)
    except PASS_THROUGH_ERRORS:
        raise
    except Exception:  # below, the culprits are found, or the error is raised again
        bad = _defective_nodes(observation, info, inputs, settings)
    remaining = replace(
        observation.reading,
        nodes=tuple(node for node in observation.reading.nodes if node.name not in bad),
    )
    decision, failures = find_failing_items(
        tuple(observation.comments),
        lambda jobs: decide(
            replace(observation, reading=remaining).only(jobs), info, inputs, settings
        ),
    )
    defects = {job: describe_error(error) for job, error in failures}
    return _with_reasons(decision, observation.reading, bad, defects)


def _defective_nodes(
    observation: Observation, info: RoundInfo, inputs: PlanningInputs, settings: RoundSettings
) -> dict[NodeName, str]:
    """Find the nodes that make the decision raise even without jobs, each with a description."""

    def with_nodes(nodes: Sequence[NodeReading]) -> Decision:
        reading = replace(observation.reading, nodes=tuple(nodes))
        return decide(replace(observation, reading=reading).only(()), info, inputs, settings)

    _, bad = find_failing_items(observation.reading.nodes, with_nodes)
    return {node.name: describe_error(error) for node, error in bad}


def _with_reasons(
    decision: Decision,
    reading: Reading,
    bad: Mapping[NodeName, str],
    defects: Mapping[JobId, str],
) -> Decision:
    """Add the reasons for the nodes and jobs that ``decision`` leaves out."""
    nodes = tuple(
        replace(node, usable=False, state_text=f"{node.state_text} ({SET_ASIDE}: {bad[node.name]})")
        if node.name in bad
        else node
        for node in reading.nodes
    )
    reasons = {
        job: Reason(ReasonCode.ERROR, f"{SET_ASIDE}: {text}") for job, text in defects.items()
    }
    observation = replace(
        decision.observation,
        reading=replace(reading, nodes=nodes),
        errors={**decision.observation.errors, **reasons},
    )
    plan = replace(decision.plan, waiting={**decision.plan.waiting, **reasons})
    return replace(decision, observation=observation, plan=plan, defects=defects)
