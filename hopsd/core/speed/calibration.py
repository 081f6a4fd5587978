"""Network bandwidth from timed all-reduces: least squares on equation 2 of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hopsd.errors import InputError


@dataclass(frozen=True, slots=True)
class Transfer:
    """Seconds of an all-reduce of ``params`` values between ``gpus`` GPUs on ``nodes`` servers."""

    params: float
    gpus: int
    nodes: int
    seconds: float

    @property
    def share(self) -> float:
        """The number of values that equation 2 divides by the bandwidth."""
        return self.params * ((self.gpus - 1) / self.gpus if self.nodes == 1 else 1.0)


@dataclass(frozen=True, slots=True)
class BandwidthFit:
    """A fitted ``bandwidth`` in parameters per second, and the ``transfers`` it was fitted to."""

    bandwidth: float
    transfers: tuple[Transfer, ...]

    def prediction(self, transfer: Transfer) -> float:
        return transfer.share / self.bandwidth

    def residual(self, transfer: Transfer) -> float:
        """Return measured minus predicted seconds, relative to measured."""
        return 1.0 - self.prediction(transfer) / transfer.seconds

    @property
    def explained_share(self) -> float:
        """Share of the squared seconds that the fit explains; 1 is all."""
        squared_error = sum((t.seconds - self.prediction(t)) ** 2 for t in self.transfers)
        return 1.0 - squared_error / sum(t.seconds**2 for t in self.transfers)


def fit(transfers: Iterable[Transfer]) -> BandwidthFit:
    """Fit the bandwidth B that minimises the squares of ``seconds - share / B``.

    Large transfers weigh most: the latency of small ones is not in equation 2.

    Raises:
        InputError: nothing was measured, or every transfer took 0 s.
    """
    measurements: Sequence[Transfer] = tuple(transfers)
    products = sum(t.share * t.seconds for t in measurements)
    if products <= 0.0:
        raise InputError("no all-reduce with a time above 0; give at least one")
    return BandwidthFit(sum(t.share**2 for t in measurements) / products, tuple(measurements))
