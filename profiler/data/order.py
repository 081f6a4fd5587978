"""Computes which samples a step has from (seed, epoch, step), without a rank and without a list.

The shuffle is a permutation that is computed place by place (a Feistel network over a rectangle of
at least as many cells, walked until it is inside: Black and Rogaway, "Ciphers with arbitrary finite
domains", 2002). So it needs neither memory nor time for earlier samples, and a training resumes
immediately in the middle of an epoch of any length. It does not use PyTorch's random generators,
whose numbers differ between releases and devices.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass

import torch

_ROUNDS = 6
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Order:
    """The steps of epochs of ``samples`` samples each, ``global_batch`` per step; the last step of
    an epoch has the rest, or is dropped with ``drop_last``. With ``shuffle`` False, samples come in
    their own order in each epoch.
    """

    samples: int
    global_batch: int
    seed: int
    shuffle: bool
    drop_last: bool = False

    @property
    def steps_per_epoch(self) -> int:
        allowance = 0 if self.drop_last else self.global_batch - 1
        return (self.samples + allowance) // self.global_batch

    def size(self, step: int) -> int:
        """Number of samples in ``step`` (from 0) of an epoch."""
        return min(self.global_batch, self.samples - step * self.global_batch)

    def sample_ids(self, epoch: int, places: torch.Tensor) -> torch.Tensor:
        """Return the samples at ``places`` (int64, from 0) of an epoch."""
        if not self.shuffle:
            return places
        return permute(places, self.samples, f"{self.seed}/{epoch}")


def permute(places: torch.Tensor, length: int, key: str) -> torch.Tensor:
    """Apply the permutation of 0 to ``length`` - 1 given by ``key`` to ``places`` (int64)."""
    rows = math.isqrt(max(0, length - 1)) + 1
    columns = -(-length // rows)
    digest = hashlib.blake2b(f"{length}/{key}".encode(), digest_size=8 * _ROUNDS).digest()
    keys = struct.unpack(f"<{_ROUNDS}q", digest)
    result = _encrypt(places, rows, columns, keys)
    outside = (result >= length).nonzero().flatten()
    while len(outside):
        result[outside] = _encrypt(result[outside], rows, columns, keys)
        outside = outside[result[outside] >= length]
    return result


def _encrypt(cells: torch.Tensor, rows: int, columns: int, keys: tuple[int, ...]) -> torch.Tensor:
    """Permute ``rows`` times ``columns`` cells: each round moves a cell within its row or column,
    by a distance that depends on the other coordinate.
    """
    row, column = cells // columns, cells % columns
    for number, key in enumerate(keys):
        if number % 2:
            column = _move_places(column, row ^ key, columns)
        else:
            row = _move_places(row, column ^ key, rows)
    return row * columns + column


def _move_places(places: torch.Tensor, keys: torch.Tensor, length: int) -> torch.Tensor:
    """Advance ``places`` on a ring of ``length`` (at most 2^31) by hashes of ``keys``."""
    distance = (
        (_hash_values(keys) >> 32) * length
    ) >> 31  # remainders would take five times as long
    targets = places + distance
    return torch.where(targets < length, targets, targets - length)


_MULTIPLIERS = tuple(
    value - 2**64 if value >= 2**63 else value for value in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def _hash_values(values: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finalizer (Steele, Lea and Flood, 2014), without the sign bit."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS):  # noqa: B905 - Python 3.8
        values = (values ^ _shift_right(values, shift)) * multiplier
    return (values ^ _shift_right(values, 31)) & (2**63 - 1)


def _shift_right(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right as unsigned numbers."""
    return (values >> bits) & (_MASK >> bits)


def sample_seed(seed: int, epoch: int, sample: int) -> int:
    """Return the seed of one sample's augmentation, below 2^32 as NumPy requires."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{sample}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def even_ranges(count: int, parts: int) -> list[range]:
    """Cut 0 to ``count`` - 1 into ``parts`` ranges whose lengths differ by at most 1, longer first.

    >>> even_ranges(5, 3)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    size, longer = divmod(count, parts)
    starts = [part * size + min(part, longer) for part in range(parts + 1)]
    return [range(start, stop) for start, stop in zip(starts, starts[1:])]  # noqa: B905, RUF007


@dataclass(frozen=True)
class Share:
    """What ``rank`` of ``ranks`` computes of each step: at most ``micro_batch`` samples at a time,
    or all of its part at once if that is None.
    """

    rank: int
    ranks: int
    micro_batch: int | None

    def parts(self, size: int) -> list[range]:
        """Return the places of this rank's micro-batches in a step of ``size`` samples.

        Ranks that have a sample have the same number of parts if their shares allow, so that all of
        them exchange gradients equally often: always for a ``micro_batch`` above 1.
        """
        share = even_ranges(size, self.ranks)[self.rank]
        if not share:
            return []
        largest = -(-size // self.ranks)
        count = min(len(share), -(-largest // (self.micro_batch or largest)))
        return [share[part.start : part.stop] for part in even_ranges(len(share), count)]
