"""Stratified draws for few playouts: even over a distribution, and nearly independent."""

from __future__ import annotations

import numpy as np

from hopsd.predict.limit_share import LimitShares
from hopsd.predict.strata import normals, shares


def test_each_job_is_sampled_evenly() -> None:
    rng = np.random.default_rng(1)
    assert np.allclose(np.sort(shares(4, 3, rng), axis=0), [[0.125], [0.375], [0.625], [0.875]])
    z = normals(16, 500, rng)
    assert np.allclose(np.median(z, axis=0), 0.0)
    assert np.allclose(z.std(axis=0), 1.0, atol=0.05)


def test_jobs_are_sampled_independently() -> None:
    z = normals(16, 400, np.random.default_rng(2))
    correlation = np.asarray(np.corrcoef(z.T))[np.triu_indices(400, 1)]
    assert abs(correlation.mean()) < 0.01
    assert correlation.std() < 0.3  # of 16 independent draws: a quarter


def test_the_share_of_a_limit_is_centred_on_past_shares() -> None:
    """With 16 draws, independent ones were off by up to a third of their spread."""
    limits = LimitShares()
    for _ in range(400):
        limits.note(0.3)
    share = limits.draw(np.zeros(200), 16, np.random.default_rng(3))
    assert np.allclose(np.median(share, axis=0), limits.median, rtol=0.02)
