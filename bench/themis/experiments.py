"""The experiments: one entry per figure of the paper, or table of ours."""

from __future__ import annotations

from bench.themis.measure import Case

SEEDS = (0, 1, 2, 3, 4)
RIVALS = ("gandiva", "tiresias", "optimus", "slaq", "srtf-apps", "srsf")
THEMIS = ("themis", "themis-share")
ALL_POLICIES = (*THEMIS, *RIVALS)
NETWORK_POLICIES = (*THEMIS, "gandiva", "tiresias", "srsf")
FILTERS = (0.0, 0.4, 0.8, 1.0)
LEASES = (300.0, 600.0, 1200.0, 2400.0)
NETWORK = (0.0, 0.5, 1.0)
CONTENTION = (1, 2, 4)
LIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LIE_SEEDS = tuple(range(6))

LIE_CASES = [Case("themis", 0, seed, lie=lie) for lie in LIES for seed in LIE_SEEDS]
MAIN = [Case(p, kind, seed) for kind in (1, 2) for p in ALL_POLICIES for seed in SEEDS]
FILTER = [Case("themis", 2, s, filter_share=f) for f in FILTERS for s in SEEDS]
LEASE = [Case("themis", 2, s, lease=lease) for lease in LEASES for s in SEEDS]
MORE_CONTENTION = [
    Case(p, 1, s, contention=times) for times in CONTENTION for p in ALL_POLICIES for s in SEEDS
]
MIX = [Case(p, 2, s, network=share) for share in NETWORK for p in NETWORK_POLICIES for s in SEEDS]

EXPERIMENTS = {
    "lying": LIE_CASES,
    "main": MAIN,
    "contention": MORE_CONTENTION,
    "filter": FILTER,
    "lease": LEASE,
    "network": MIX,
}
