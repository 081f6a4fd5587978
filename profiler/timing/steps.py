"""Compares the samples of an iteration's steps, if several optimizers step."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hops_profiler.timing.sample_counter import Batch


class Step:
    """What a step trained on: ``samples`` in ``batches``, by passes that began at ``places``."""

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
        """Whether the same code made both steps, of the same models or of as many other models."""
        if self.places != other.places or len(self.parameters) != len(other.parameters):
            return False
        return self.parameters == other.parameters or not self.parameters & other.parameters

    def is_alike(self, other: Step) -> bool:
        """Whether both belong together and their models have the same width. Models of a different
        width have a task of their own, such as choosing goals rather than actions.
        """
        return self.belongs_to(other) and self.widths == other.widths

    def differs(self, other: Step) -> bool | None:
        """Whether the two steps are over different samples; None if unknown.

        Optimizers that take turns train the same models on different memory, and several learners
        train different models on a batch each; but two critics may be given copies of one batch.
        """
        if self.is_made or other.is_made:
            return False
        if self.parameters == other.parameters:
            return not self.sources & other.sources
        if self.contents is None or other.contents is None:
            return None
        return not self.contents & other.contents


def are_learners(one: Step, other: Step) -> bool | None:
    """Whether the same code trained different models in both steps, each on as many samples of its
    own, so that the steps of either are iterations. None if unknown.
    """
    is_alike = other.belongs_to(one) and one.samples == other.samples > 0
    return is_alike and one.parameters != other.parameters and one.differs(other)


def turns(steps: Sequence[Step]) -> float | None:
    """Samples of an iteration as a multiple of those of the first of ``steps``, the leading
    optimizer's. Steps made by the same code add up if their samples differ. None if unknown, or if
    steps of other code have more samples. A step without samples, such as a temperature's, takes
    those of the others.
    """
    if not steps[0].samples:
        number = turns(steps[1:]) if len(steps) > 1 else 1.0
        return 1.0 if number == 1.0 else None
    groups: list[list[Step]] = []  # of alike steps over different samples
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
