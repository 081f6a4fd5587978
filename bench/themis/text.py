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
**spread** is the largest rho minus the smallest. Means and standard deviations over five seeds,
each a draw of apps: most of a deviation is the draw's, equal for all policies. So policies are
compared draw by draw, too: there the number in brackets says in how many of the five the ratio is
below 1. Nothing here has racks or links of different speed within a server, two levels of four in
the paper's simulator.
"""

MAIN = """
## Fairness and efficiency (figures 9 to 13)
"""

CONTENTION_TEXT = """
## Contention (figure 14)

Workload 1 on 64, 32 and 16 GPUs; largest rho.
"""

AGAINST = """
## Largest rho against each rival, draw by draw

By exact 1/N; workload 1 on 64, 32 and 16 GPUs, workload 2 on 64. Below 1 Themis is fairer.
"""

MIX = """
## Share of network-bound apps (figures 15 and 16)

Workload 2.
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

FINDINGS = """
## What agrees with the paper, what does not

- **Sharing incentive needs the exact 1/N.** By eq. 2 the largest rho of workload 1 is far below 1
  with any policy (0.31 to 0.61), so it says little here. With exactly 1/N nobody keeps the largest
  rho below 1 (the paper: about 1 for Themis). Auctions that follow eq. 2 (`themis`) are less fair
  by that measure than `themis-share`, the more so the fuller the cluster: 7.8 against 2.0 with half
  of the GPUs.
- **Largest rho, workload 2.** `themis-share` is first by exact 1/N, with 1.81: in all five draws
  ahead of `srsf` (1.2 times), `optimus` and `slaq` (1.4 and 1.5), `srtf-apps` (1.7) and `gandiva`
  (3.0), in four ahead of `tiresias` (1.2); paper: 2.2 to 3.25 times better than all. It has the
  narrowest spread, too. `themis` (2.05) is level with `srsf` and `tiresias`. By eq. 2 `srsf` and
  `srtf-apps` are ahead of both.
- **Largest rho, workload 1.** A loss: `srsf` (1.70) and `tiresias` (1.92) are fairer than
  `themis-share` (2.26) in every draw, and `srtf-apps`, too, than `themis` (3.99). Jobs of 1 or 2
  GPUs that run to their end leave placement and phases out; what is left is who waits, and
  leftovers at random cost 1,500 restarts and more.
- **GPU time.** Workload 1: 2 to 3 % less than `tiresias` and `srsf`, which do not look at
  placement, and 3 % more than `gandiva` and `optimus`, for its restarts. Workload 2: 1 % less than
  `gandiva`, 2 to 3 % less than `tiresias`, 2 % more than `optimus` (paper: 5 % less than Gandiva,
  250 % ahead of SLAQ). The paper's 250 % cannot come from models that lose 29 % at most.
- **Placement** is within a hundredth of the best of the rivals in both workloads, as in the paper.
- **Contention.** As in the paper `srsf` comes close to Themis; here it is ahead, by exact 1/N, at
  each size, in all draws but one. `tiresias` is ahead of `themis-share` on 64 GPUs and, but for one
  draw, on 32; on 16 it is behind in every draw (2.22 against 1.58). The others are there at 4.5 to
  18.
- **Network-bound apps.** With them alone `themis-share` has the lowest largest rho (1.82; `themis`
  2.08, `tiresias` 2.06, `srsf` 2.19) and uses 2 % less GPU time than `gandiva` and 5 % less than
  `tiresias`, in all draws (paper: 1.2 to 1.8 times fairer, 8 % less than Gandiva). That mixtures
  are the hardest case, as in the paper, does not show.
- **f.** Between 0 and 0.8 nothing but the draw decides the largest rho; f = 1 is worse than 0.8 in
  all five, by a tenth (paper: better up to 0.8, 1.5 times worse beyond). As in the paper a small f
  uses the cluster better: 2 % less GPU time at 0 than at 0.8, in all draws.
- **Leases.** Shorter ones cost GPU time, as in the paper (3 % more at 300 s, 2 % less at 2,400 s
  than at 600 s, in all draws), and do not make things fairer.
- **Completion times** are not what Themis is for: with `srsf` they are 22 and 25 % shorter on the
  mean than with `themis-share`.
- **A lying app** gains about 1 % of its time at most (1.588 h against 1.605 h), and loses all
  with X = 100 %: it then says that one server costs no time at all, however few GPUs it gets
  there, and gets 1. The paper's liar gains nothing either and has its tipping point at 34 %. The
  1 % is there because a payment is measured by rho, and the time already gone in it does not
  shrink with GPUs. Given back where nobody else needs the GPUs, payments left the liar 5 %
  ahead.

Choices made after first runs: random rounding of payments, who paid gets nothing back, and
effort of the auction's solver (one turn, prices in place of exact payments above 100 bids).
UNSERVED, the filter and leases were not tuned.

What 500 jobs on 512 GPUs cost is in [simulator.md](simulator.md).
"""
