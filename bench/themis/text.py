"""The text around the tables of bench/results/themis.md."""

from __future__ import annotations

INTRODUCTION = """The experiments of section 6 of the Themis paper (NSDI 2020) in
our simulator. The policies are described in [policies.md](policies.md).

All policies run on 64 GPUs of one type (8 servers of 2, 12 of 4, the paper's testbed), with rounds
of 300 s and leases of 600 s, and know the true speeds and samples. A restart costs 30 s of holding
GPUs. 32 apps arrive within about 3
hours. A tenth of them have one job.

- **Workload 1**: apps of up to 12 jobs of 1 or 2 GPUs that all run to completion, 0.5 to 6 GPU
  hours each.
- **Workload 2**: successive halving over 4, 8 or 16 jobs, from 1 or 2 GPUs per job up to 8; 2 to 40
  GPU hours per app, the same in every phase.

What the paper does not print, and what we used: its traces are not published as apps, so apps are
drawn from its job and GPU counts, scaled down in number and length. It names eleven models and
prints two speeds: half of our apps lose 29 % across servers (VGG16 of its table 1), half nothing
(Inception-v3). The paper gives its simulated cluster 256 GPUs; the servers that it lists have 168.
We use the testbed's 64 throughout.

**rho** of an app is its time from submission to end over its time alone on 1/N of the cluster,
where N is the mean number of apps present during its life. There are two ways to compute the
latter: N times the time on all GPUs that the app can use, as eq. 2 prints it, or the time on
exactly 1/N. They agree where an app can use the whole cluster. Most of our apps cannot, so eq. 2 is
generous: it gives nearly every app a rho below 1. `themis` follows eq. 2, `themis-share` is the
same with exactly 1/N.

**placement** is the mean over apps of 1/S, weighted by GPU time. **GPU hours** are those held.
**spread** is the largest rho minus the smallest. Values are means and standard deviations over five
seeds, each a draw of apps. Most of a deviation comes from the draw and is common to all policies.
Policies are therefore also compared draw by draw; there the number in brackets is how many of the
five ratios are below 1. Our clusters have no racks and no links of different speed within a server;
these are two of the four levels in the paper's simulator.
"""

MAIN = """
## Fairness and efficiency (figures 9 to 13)
"""

CONTENTION_TEXT = """
## Contention (figure 14)

Workload 1 on 64, 32 and 16 GPUs; largest rho.
"""

RHO_RATIOS = """
## Largest rho against each rival, draw by draw

By exact 1/N; workload 1 on 64, 32 and 16 GPUs, workload 2 on 64. Below 1 Themis is fairer.
"""

MIX = """
## Share of network-bound apps (figures 15 and 16)

Workload 2.
"""

SWEEPS = """
## f and the lease (figure 19)

`themis`, workload 2. At `f` = 0 all apps bid, at 1 only the app with the largest rho.
"""

LIE_SECTION = """
## A lying app (figure 18)

One server of 8 GPUs and 28 of 2; eight equal apps of one network-bound job that takes 1 to 8 GPUs.
One of them claims to be slower by X than it is on several servers, and faster by X on one. Mean of
6 seeds.

"""

FINDINGS = """
## What agrees with the paper, what does not

- **Sharing incentive needs the exact 1/N.** By eq. 2 the largest rho of workload 1 is far below 1
  with any policy (0.31 to 0.61), so it says little here. With exactly 1/N no policy keeps the
  largest rho below 1 (the paper: about 1 for Themis). Auctions that follow eq. 2 (`themis`) are
  less fair by that measure than `themis-share`. The difference grows with contention: 7.8 against
  2.0 with half of the GPUs.
- **Largest rho, workload 2.** `themis-share` is best by exact 1/N, with 1.81. It is ahead of `srsf`
  (1.2 times), `optimus` and `slaq` (1.4 and 1.5), `srtf-apps` (1.7) and `gandiva` (3.0) in all five
  draws, and of `tiresias` (1.2) in four; paper: 2.2 to 3.25 times better than all. It also has the
  narrowest spread. `themis` (2.05) is level with `srsf` and `tiresias`. By eq. 2 `srsf` and
  `srtf-apps` are ahead of both.
- **Largest rho, workload 1.** A loss: `srsf` (1.70) and `tiresias` (1.92) are fairer than
  `themis-share` (2.26) in every draw, and `srtf-apps` is fairer than `themis` (3.99). Jobs of 1 or
  2 GPUs that run to completion make placement and phases irrelevant. What remains is which job
  waits, and assigning leftovers at random costs 1,500 restarts and more.
- **GPU time.** Workload 1: 2 to 3 % less than `tiresias` and `srsf`, which ignore placement, and 3
  % more than `gandiva` and `optimus`, because of its restarts. Workload 2: 1 % less than `gandiva`,
  2 to 3 % less than `tiresias`, 2 % more than `optimus` (paper: 5 % less than Gandiva, 250 % ahead
  of SLAQ). The paper's 250 % cannot come from models that lose 29 % at most.
- **Placement** is within a hundredth of the best rival in both workloads, as in the paper.
- **Contention.** In the paper `srsf` comes close to Themis; here it is ahead by exact 1/N at each
  size, in all draws but one. `tiresias` is ahead of `themis-share` on 64 GPUs and, in all draws but
  one, on 32; on 16 it is behind in every draw (2.22 against 1.58). The others have 4.5 to 18 there.
- **Network-bound apps.** If all apps are network-bound, `themis-share` has the lowest largest rho
  (1.82; `themis` 2.08, `tiresias` 2.06, `srsf` 2.19). It uses 2 % less GPU time than `gandiva` and
  5 % less than `tiresias`, in all draws (paper: 1.2 to 1.8 times fairer, 8 % less than Gandiva). In
  the paper mixtures are the hardest case; our runs do not show this.
- **f.** Between 0 and 0.8 only the draw decides the largest rho; f = 1 is worse than 0.8 in all
  five, by a tenth (paper: better up to 0.8, 1.5 times worse beyond). As in the paper, a small f
  uses the cluster better: 2 % less GPU time at 0 than at 0.8, in all draws.
- **Leases.** Shorter leases cost GPU time, as in the paper (3 % more at 300 s, 2 % less at 2,400 s
  than at 600 s, in all draws), and do not improve fairness.
- **Completion times** are not Themis' objective: with `srsf` the mean is 22 and 25 % shorter than
  with `themis-share`.
- **A lying app** gains about 1 % of its time at most (1.588 h against 1.605 h). With X = 100 % it
  loses badly (9.140 h): it then claims that one server costs no time at all, however few GPUs it
  gets there, and gets 1. The paper's liar gains nothing either and has its tipping point at 34 %.
  The 1 % arises because a payment is measured by rho, and the elapsed time in it does not shrink
  with GPUs. When payments were given back where no other app needed the GPUs, the liar was 5 %
  ahead.

## Choices

Three choices were made after first runs: random rounding of payments, no leftovers for payers, and
the effort of the auction's solver (one turn, prices instead of exact payments above 100 bids).
UNSERVED, the filter and leases were not tuned.

What 500 jobs on 512 GPUs cost is in [simulator.md](simulator.md).
"""

OTHER_IMPLEMENTATION = """## Beside another implementation

The simulator of PCS (OSDI 2024, github: TuftsNATLab/PCS) has a Themis of its own. On 150 apps that
its generator draws (`themis1`, 64 GPUs, load 0.8, linear speed-up, one elastic job an app; its
scheduler plans every 600 s and at each event, restarts cost nothing in either) our mean completion
time is a third above its. Both simulators are right; the policies differ:

| draw | PCS: mean / 99 %, h | `themis` | ratio | PCS' rule in `themis` | ratio | correlation |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 4567 | 11.6 / 63.4 | 15.3 / 99.9 | 1.32 | 11.7 / 64.2 | 1.004 | 0.999 |
| 1 | 18.0 / 192 | 22.5 / 210 | 1.25 | 18.1 / 192 | 1.005 | 0.999 |
| 2 | 15.6 / 75.9 | 21.1 / 120 | 1.36 | 15.6 / 76.2 | 0.998 | 0.998 |

Leases of 1,800 s; with 600 s draw 4567 has 15.4 / 93.7, ratio 1.33. A draw is numpy's seed.

PCS sorts the apps by rho, each as if it had all GPUs that it can use, and gives each of them all
of these in turn, until none are left. The Themis paper calls this the straw man (section 3.3): it
lowers the largest rho, but who lies about rho comes first. Themis itself holds an auction among a
fifth of the apps, here one or two, and gives what they leave to the others at random (pseudocode
1, line 21). With `themis` changed to give leftovers in the order of rho, the ratio of draw 4567 is
1.24 in place of 1.32; with exact 1/N, and rho of all apps computed as PCS does, without its weight
for leases waited, it is 1.004. The latter without ordered leftovers is no better (1.46). So our
`themis` is the paper's, and its price for honest bids shows where apps need no placement: with
PCS' rule 7 to 13 % of the apps have a rho above 1.02 (exact 1/N), with `themis` 29 to 33 %. PCS
models no placement, no leases and no restarts, and divides GPUs into fractions. Another public
scheduler named Themis sorts by rho as well; we found none with an auction.

An app that arrives waits for a lease to end, as in the paper, whose auctions begin when a GPU
becomes available. That sets the largest rho: 4.2 with leases of 1,800 s and 8.0 with 3,600 s on
draw 4567, of an app shorter than its lease (PCS: 1.9, since it plans at each arrival).
"""
