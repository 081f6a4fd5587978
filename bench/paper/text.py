"""The words around the tables of docs/paper.md."""

OPENING = """# The paper, reproduced

Written by `make paper` (`python -m bench.paper`): the experiments of section 4 of the Hops paper
(SoCC 2024) in our simulator, with the paper's figures in italics beside ours. Means and standard
deviations are over seeds; every seed is another draw of jobs, arrivals and server speeds.
LR is the latency ratio, waiting time over expected run time.

What is equal for all policies: rounds of 360 s, a restart costs 30 s of holding GPUs (the first
start is free), the same jobs in the same order, the same knowledge of speeds. `sia-hops` and
`gavel-queue` are the rivals as the Hops paper ran them: Sia with one configuration for each
requirement, Gavel rigid at the median requirement, both with the latency ratio as their queue.
`sia`, `gavel` and `gavel-ftf` are as published by their authors; `slurm` is first come, first
served with conservative backfill; `fifo`, `sjf`, `srtf`, `las` are rigid, too.

What the paper does not print, and what we took instead:

- **Speeds.** Modelled by its own equations 1 to 5 from public figures of models and hardware
  (`hopsd/sim/models.py` names each assumption). They are not measurements of the paper's servers.
- **Job mix.** Figure 8 has no numbers in print. Categories are drawn such that all jobs together
  need about 8 hours of 64 GPUs and 10 hours of 512. Requirements are 1 to 8 of the counts 1 to 16
  such that the median takes at most 8 hours. The total was set after first runs, twice, so that
  makespans are about as long as the paper's; it was not varied to please one policy.
- **Sia's placement** is not in print. Ours does not spread a job over servers where one server can
  hold it. A first version did: on 512 GPUs (one seed) it finished in 10.7 h with 0.02 fragments,
  this one in 11.0 h with 34. So fragments of Sia say as much about this choice as about Sia.
- **Round length and restart cost** of the paper's simulation are not printed.
- **Overheads.** Planning and profiling take no virtual time here; planning times are below.

So absolute hours cannot agree. What can be checked is who is better, by how much, and why.
"""

FINDINGS = """
## What agrees, what does not, and why

Read off the tables when hops and Sia had one seed on 512 GPUs; a row's second column says over
how many seeds it is now. Where the two differ, the table is right.

- **Order, 64 GPUs.** As in the paper hops has the shortest makespan, completion time and wait of
  the three, Sia is second, Gavel third. Hops is ahead of Sia by 7 % in makespan and in
  completion time (paper: 18.5 % and 27.4 %), of Gavel by 35 % and 36 % (34.2 % and 45.9 %), each
  the mean over seeds.
- **Latency ratio of jobs of a round or more.** Agrees well: hops keeps it at 0.38 on 64 GPUs
  (paper: 0.37) and below 1 on 512, Sia does not.
- **Largest latency ratio of all jobs.** Our hops has 5 on 64 GPUs and 14.7 on 512 where the paper
  has 0.37 and 3.22. It is set by jobs that need seconds (the shortest 18 s) and wait for the next
  round of 360 s, because nothing is idle before it. The paper's shortest jobs are not printed;
  ours are probably shorter. Sia, which has no such priority, is off by another factor of 60.
- **Gavel with the latency ratio as its queue** is nearly as fair as hops here (max LR 16 on 512
  GPUs), not 70 as in the paper: serving jobs in that order is what makes the difference, and the
  paper does not say how it was built into Gavel. As published (`gavel`), jobs of a round or more
  wait up to 6.7 times their run time.
- **Makespan, 512 GPUs.** Does not agree: hops is 4 % behind Sia and 3 % ahead of Gavel. Our last
  arrivals are at 5 hours and the rest is the longest jobs' tail, in which the cluster is half
  empty and all policies give them what they can use. The paper's 15.2 % and 32.0 % need a cluster
  that is full to the end. Completion times (-25 % against both) go the paper's way, with less.
- **Fragments.** Same picture: hops 2.6 a round, Sia 26, Gavel 43 (paper: 0.45, 56, 18). Why
  hops' are larger than in the paper is open; spread-sensitive jobs, which may not fill them, are
  a third of ours.
- **Finish-time fairness.** Hops with the latency ratio has 8 at most, Sia 345, Gavel 20. The
  paper's 2.15, 28 and 32 are with hops' fairness priority.
- **Restarts.** Hops moves jobs often: 1,929 restarts of 500 jobs on 512 GPUs, each 30 s of held
  GPUs.
- **SRTF and LAS** are hard to beat in fairness at this load: their largest latency ratios are not
  above hops' own. They pay in makespan and completion time, being rigid.
"""

CLOSING = """
Processor seconds of every round's first plan, the solver's processes too. How planning scales
with GPUs and queue length (figure 15) is measured by `python -m bench.plan`.
"""
