"""The words around the tables of docs/themis.md."""

from __future__ import annotations

OPENING = """# Themis and its rivals, measured

Written by `python -m bench.themis`: the experiments of section 6 of the Themis paper (NSDI 2020) in
our simulator. What the policies do is in [policies.md](policies.md).

Equal for all: 64 GPUs of one type (8 servers of 2, 12 of 4, the paper's testbed), rounds of 300 s,
leases of 600 s, a restart costs 30 s of holding GPUs. 32 apps arrive within about 3 hours. A tenth
has one job.

- **Workload 1**: apps of up to 12 jobs of 1 or 2 GPUs that all run to their end, 0.5 to 6 GPU hours
  each.
- **Workload 2**: successive halving over 4, 8 or 16 jobs, from 1 or 2 GPUs a job up to 8; 2 to 40
  GPU hours an app, the same in every phase.

What the paper does not print, and what we took: its traces are not published as apps, so apps are
drawn by its job and GPU counts, scaled down in number and length. It names eleven models and prints
two speeds: half of our apps lose 29 % across servers (VGG16 of its table 1), half nothing
(Inception-v3). Its simulated cluster is said to have 256 GPUs; the servers that it lists have 168.
The testbed's 64 are used throughout.

**rho** of an app is its time from submission to end over its time alone on 1/N of the cluster, N
the mean number of apps present in its life. Two ways to count the latter: as eq. 2 prints it, the
time on all GPUs that the app can use times N, and exactly 1/N. They agree where an app can use the
whole cluster. Of our apps most cannot, so eq. 2 is generous: by it nearly everybody has less than
1. `themis` follows eq. 2, `themis-share` is the same with exactly 1/N.

**placement** is the mean over apps of 1/S, weighted by GPU time. **GPU hours** are those held.
**spread** is the largest rho minus the smallest. Means of two seeds where nothing else is said.
"""

MAIN = """
## Fairness and efficiency (figures 9 to 13)
"""

CONTENTION_TEXT = """
## Contention (figure 14)

Workload 1 on 64, 32 and 16 GPUs; largest rho, one seed.
"""

MIX = """
## Share of network-bound apps (figures 15 and 16)

Workload 2, one seed.
"""

SWEEPS = """
## f and the lease (figure 19)

`themis`, workload 2. At `f` = 0 everybody bids, at 1 the app with the largest rho alone.
"""

LYING = """
## A lying app (figure 18)

One server of 8 GPUs and 28 of 2; eight equal apps of one network-bound job that takes 1 to 8 GPUs.
One of them says that it is slower by X on several servers than it is, and faster by X on one. Mean
of 6 seeds.

"""
