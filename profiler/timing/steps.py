"""Compares the samples of an iteration's steps, if several optimizers step."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hops_profiler.timing.sample_counter import Batch


class Step:
    """What a step trained on: ``samples`` in ``batches``, by passes that began at ``places``.

    The other attributes are the union of those of the batches; ``contents`` is None if those of any
    batch are unknown. ``own_rows`` are those of all batches.
    """

    def __init__(self, batches: Sequence[Batch], samples: float) -> None:
        self.samples = samples
        self.is_made = all(batch.is_made for batch in batches)
        self.own_rows = sum(batch.own_rows for batch in batches)
        self.places: frozenset[Any] = frozenset(batch.place for batch in batches)
        self.widths: set[tuple[int, ...]] = set().union(*(batch.widths for batch in batches))
        self.parameters: set[int] = set().union(*(batch.parameters for batch in batches))
        self.sources: set[tuple[int, int]] = set().union(*(batch.sources for batch in batches))
        contents = [batch.contents for batch in batches if batch.contents is not None]
        is_known = len(contents) == len(batches)
        self.contents: set[int] | None = set().union(*contents) if is_known else None

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


def trains_on(steps: Sequence[Step], rows: float, storages: set[int]) -> bool:
    """Whether the ``steps`` of an iteration are over the ``rows`` that it read: each over all of
    them, or over a chunk, beside rows that a model made. The last step is that of this model.

    Steps that take nothing but parts of the ``storages`` that were read are over these rows, too:
    those of copies that adapt to a task each.
    """
    taken = {storage for step in steps for storage, _ in step.sources}
    if taken and taken <= storages:
        return True
    real = [step for step in steps[:-1] if step.own_rows]
    if sum(step.own_rows for step in real) == rows:
        return True
    contents = [step.contents or set() for step in real]
    return bool(real) and all(
        step.own_rows == rows and own & contents[0]
        for step, own in zip(real, contents)  # noqa: B905 - Python 3.8
    )


def turns(steps: Sequence[Step]) -> float | None:
    """Samples of an iteration as a multiple of those of its first step, the leading optimizer's.

    Steps of the same code over different samples add up. A leading step without samples, such as
    that of a temperature, has those of the other steps. None if it is unknown whether the samples
    differ, or if steps of other code have more of them.
    """
    leading, *others = steps
    if not leading.samples:
        is_one_turn = not others or turns(others) == 1.0
        return 1.0 if is_one_turn else None
    groups = _groups(steps)
    if groups is None:
        return None
    totals = [sum(step.samples for step in group) for group in groups]
    return totals[0] / leading.samples if totals[0] == max(totals) else None


def _groups(steps: Sequence[Step]) -> list[list[Step]] | None:
    """Groups of alike steps, without those over the same samples as another step of their group.
    None if this is unknown for any step.
    """
    groups: list[list[Step]] = []
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
    return groups
