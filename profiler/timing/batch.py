"""Counts the samples in a batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

DEPTH = 4

MIN_SEQUENCES = 3
"""Minimum number of parts of a list that are samples if only their lengths differ. Two may come
from two loaders."""

CHANNELS = (1, 3, 4)
"""Length of the first axis of an image: grey, colour, and colour with transparency."""


def is_integer_vector(value: Any) -> bool:
    """Whether ``value`` is a vector of whole numbers: a batch of labels, or one text."""
    return isinstance(value, torch.Tensor) and value.dim() == 1 and not value.is_floating_point()


def samples_of(batch: Any, depth: int = DEPTH) -> int:
    """Samples in ``batch``, judged by its structure; 0 if that does not show them.

    Objects that know their batch size (graph batches, packed sequences) are asked for it. A tuple,
    a dict or a dataclass has the length of most of its parts, or of the first part if none agree.
    A list of images, or of sequences of different lengths, has one sample for each.
    """
    if isinstance(batch, torch.Tensor):
        # A vector of floats is one sample without a batch axis; a vector of labels is a batch.
        vector = batch.dim() == 1 and batch.is_floating_point()
        return int(batch.shape[0]) if batch.dim() and not vector else 1
    if depth == 0 or batch is None or isinstance(batch, (str, bytes)):
        return 0
    size = _size_attribute(batch)
    if size is not None:
        return size
    if is_dataclass(batch) and not isinstance(batch, type):
        batch = field_values(batch)
    elif hasattr(batch, "values") and callable(batch.values):
        batch = list(batch.values())
    elif not isinstance(batch, (list, tuple)):
        return 0
    elif _lists_samples(batch):
        return len(batch)
    vectors = any(isinstance(part, torch.Tensor) and part.dim() > 1 for part in batch)
    lengths = [
        int(part.shape[0])
        if vectors and isinstance(part, torch.Tensor) and part.dim() == 1
        else samples_of(part, depth - 1)
        for part in batch
        if not isinstance(part, torch.Tensor) or part.dim()
    ]
    votes = Counter(length for length in lengths if length)
    return votes.most_common(1)[0][0] if votes else 0


def field_values(thing: Any) -> list[Any]:
    """Values of a dataclass's fields."""
    return [getattr(thing, field.name, None) for field in fields(thing)]


def samples_given(values: list[Any]) -> int:
    """Samples in the arguments of a module. Several arguments, or the values of a dictionary, are
    parts of its input, not a list of samples.
    """
    parts = len(values) > 1 or (values and isinstance(values[0], dict))
    return samples_of(dict(enumerate(values)) if parts else values, DEPTH + 1)


def _size_attribute(batch: Any) -> int | None:
    if isinstance(batch, PackedSequence):
        return int(batch.batch_sizes[0])
    for name in ("num_graphs", "batch_size"):
        value = getattr(batch, name, None)
        if isinstance(value, torch.Size) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _lists_samples(batch: Any) -> bool:
    """True for a list of images or of sequences, or with a dictionary per sample (detection)."""
    if not batch:
        return False
    if all(isinstance(part, dict) for part in batch):
        return True
    if isinstance(batch, list) and len(batch) >= MIN_SEQUENCES:
        kinds = {(part.dtype, part.shape[1:]) for part in batch if isinstance(part, torch.Tensor)}
        lengths = {part.shape[:1] for part in batch if isinstance(part, torch.Tensor)}
        if len(kinds) == 1 < len(lengths):
            return all(isinstance(part, torch.Tensor) for part in batch)
    return all(
        isinstance(part, torch.Tensor) and part.dim() == 3 and part.shape[0] in CHANNELS
        for part in batch
    )
