"""Samples of the steps of an iteration, where several optimizers step."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hops_profiler.timing.sample_counter import Batch


class Step:
    """What a step was over: ``samples`` in ``batches``, of passes that began at ``places``."""

    def __init__(self, batches: Sequence[Batch], samples: float) -> None:
        self.samples = samples
        self.is_made = all(batch.is_made for batch in batches)
        self.places: frozenset[Any] = frozenset(batch.place for batch in batches)
        self.widths: set[tuple[int, ...]] = set().union(*(batch.widths for batch in batches))
        self.parameters: set[int] = set().union(*(batch.parameters for batch in batches))
        self.sources: set[tuple[int, int]] = set().union(*(batch.sources for batch in batches))
        contents = [batch.contents for batch in batches]
        self.contents: set[int] | None = set()
        for content in contents:
            known = self.contents is not None and content is not None
            self.contents = self.contents | content if known else None  # type: ignore[operator]

    def belongs_to(self, other: Step) -> bool:
        """Whether the same code has made both steps, of the same models or of as many others."""
        if self.places != other.places or len(self.parameters) != len(other.parameters):
            return False
        return self.parameters == other.parameters or not self.parameters & other.parameters

    def is_alike(self, other: Step) -> bool:
        """Whether it is also of models of the same width: others have a part of their own, as that
        for goals has beside one for actions.
        """
        return self.belongs_to(other) and self.widths == other.widths

    def differs(self, other: Step) -> bool | None:
        """Whether the two are over samples of their own; None if unknown.

        The same models are trained on other memory where optimizers take turns, and other models on
        a batch of their own where there are several learners; but two critics may be given copies.
        """
        if self.is_made or other.is_made:
            return False
        if self.parameters == other.parameters:
            return not self.sources & other.sources
        if self.contents is None or other.contents is None:
            return None
        return not self.contents & other.contents


def are_learners(one: Step, other: Step) -> bool | None:
    """Whether the same code has trained other models on as many samples of their own: steps of
    either are iterations. None if unknown.
    """
    is_alike = other.belongs_to(one) and one.samples == other.samples > 0
    return is_alike and one.parameters != other.parameters and one.differs(other)


def turns(steps: Sequence[Step]) -> float | None:
    """How many times the samples of the first of ``steps``, the leading optimizer's, an iteration
    has: those of the same code add up where they differ. None if unknown, or if others have more.
    A step without samples, as a temperature's, takes those of others.
    """
    if not steps[0].samples:
        number = turns(steps[1:]) if len(steps) > 1 else 1.0
        return 1.0 if number == 1.0 else None
    groups: list[list[Step]] = []  # of steps that differ, or do not, but for their models
    for step in steps:
        group = next((group for group in groups if step.is_alike(group[0])), None)
        if group is None:
            groups.append([step])
            continue
        verdicts = [step.differs(other) for other in group]
        if None in verdicts:
            return None
        if all(verdicts):
            group.append(step)
    totals = [sum(step.samples for step in group) for group in groups]
    return totals[0] / steps[0].samples if totals[0] == max(totals) > 0 else None
