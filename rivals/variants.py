"""Variants of hopsd's policies that their papers or our studies compare."""

from __future__ import annotations

from functools import partial

from hopsd.policies.hare.policy import Hare
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.themis.agents import honest
from hopsd.policies.themis.finish_time import share_seconds
from hopsd.policies.themis.policy import Themis

themis_share = Themis(partial(honest, independent=share_seconds))
hare_eft = Hare(SCHEDULERS["hare-eft"])
hare_dispatch = Hare(SCHEDULERS["hare-dispatch"])
