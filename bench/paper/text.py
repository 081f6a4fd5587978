"""The text around the tables of bench/results/paper.md."""

INTRODUCTION = """The experiments of section 4 of the Hops paper
(SoCC 2024) in our simulator, with the paper's figures in italics beside ours. Means and standard
deviations are over seeds; every seed is another draw of jobs, arrivals and server speeds.
LR is the latency ratio, waiting time over expected run time.

All policies have the same rounds of 360 s, the same restart cost (30 s of holding GPUs; the first
start is free), the same jobs in the same order, and know true speeds and samples. `sia-hops` and
`gavel-queue` are the rivals as the Hops paper ran them: Sia with one configuration per requirement,
Gavel rigid at the median requirement, both with the latency ratio as queue order. `sia`, `gavel`
and `gavel-ftf` are as published by their authors; `slurm` is first come, first served with
conservative backfill; `fifo`, `sjf`, `srtf` and `las` are rigid as well, and the last two move jobs
up to faster GPUs. `hops+`, the daemon's default, is not the paper's, and its rounds may end early
([policies.md](policies.md#hops)).

What the paper does not print, and what we used instead:

- **Speeds.** Modelled by the paper's equations 1 to 5 from public figures of models and hardware
  (`hopsd/sim/models.py` names each assumption). They are not measurements of the paper's servers.
- **Job mix.** Figure 8 has no printed numbers. Categories are drawn such that all jobs together
  need about 8 hours of 64 GPUs and 10 hours of 512. Requirements are 1 to 8 of the counts 1 to 16,
  chosen so that the median takes at most 8 hours. The total was adjusted twice after first runs to
  make makespans about as long as the paper's; it was not tuned to favour one policy.
- **Sia's placement** is not printed. Ours does not spread a job over servers where one server can
  hold it. A first version did: on 512 GPUs (one seed) it finished in 10.7 h with 0.02 fragments,
  this one in 11.0 h with 12. So Sia's fragments say as much about this choice as about Sia.
- **Round length and restart cost** of the paper's simulation are not printed.
- **Overheads.** Planning and profiling take no virtual time here (`--count-planning` and
  `--profiling` of `hopsctl simulate` count them); planning times are below. Hops' plans are limited
  by effort, not by time, so that a run is the same on every machine.

So absolute hours cannot agree. What can be checked is which policy is better, by how much, and why.
"""

AGREES = """
"yes": the same direction and at least half of the paper's effect; "in direction": less than that;
"undecided": the seeds' standard deviation is larger than the effect.
"""

FINDINGS = """
## What does not agree, and why

- **Waits against Sia.** Sia's jobs wait less and run for longer: on the 512 GPUs 1.16 h, under hops
  0.83. So hops ends them earlier although they wait longer.
- **Makespan, 512 GPUs.** On two seeds hops ends 0.7 h later than Sia, on the others both end within
  0.1 h. On four of five the last job under hops is a long one that waited for hours (below). The
  latency ratio divides the wait by the run time, so a long job that waited for hours weighs no more
  than a short one that waited for minutes. That is how equation 8 keeps completion times short. No
  run tested other reasons. The last arrivals are at 5 hours; in the paper's runs the cluster may
  have been full to the end.
- **Largest latency ratio.** Set by jobs that need seconds (the shortest {shortest:.0f} s) and wait
  for the next round of 360 s because no GPU is idle before. The paper's shortest jobs are not
  printed; ours are probably shorter. Jobs of a round or more have a separate column.
- **Gavel's largest latency ratio** is 70 in the paper, ours 16, and 15 as its authors published it:
  there, too, a job that has had nothing is served first. The paper does not say how the latency
  ratio was built into Gavel.
- **Priorities.** Priorities other than the latency ratio do not starve jobs here as they do in the
  paper, and SJF and SRTF end them 6 and 8 % earlier. Among jobs of a round or more, the latency
  ratio as priority has the lowest largest ratio. Whether the paper's load or its jobs are the
  reason cannot be determined from what is printed.

`hops+`, as it was at 97b7db12, ends jobs 13 % earlier than hops on the 512 GPUs and 7 % on the 64.
It is first in every column of both tables; on 512 GPUs the makespan of `sia-hops` and the fairness
of `las` are within 3 % of it.
"""

CONCLUSION = """
CPU seconds of every round's first plan, including the solver's processes. `python -m bench.plan`
measures how planning scales with GPUs and queue length (figure 15).
"""

KNOWLEDGE_OPENING = """\
The tables above give every policy the true speeds and samples. Here they know in turn
all, what hopsd would have had ("measured": the speed of one GPU, that of other shapes with a mean
error of 10 %, run times by past runs and before those by time limits) and nothing but time limits
([simulator.md](simulator.md#what-policies-know)). Three figures in each cell; seeds: {seeds}.

"""

KNOWLEDGE_FINDINGS = """
With what hopsd would have had, `hops` keeps the earliest mean, 21 % later than with all; `srtf`
loses 43 %, `sjf` 24, `gavel-queue` 17 and the others at most 4. With time limits alone every GPU
counts as fast as any other, and `hops` leaves some job on a slow one for days.
"""

SEARCH_OPENING = """\
Rounds, the shortest job and the amount of work are not printed. Here all combinations of three
lengths, two bounds and two amounts ("work": all jobs' hours, as a multiple of those above) are
played on an eighth of the 512 GPUs with an eighth of the jobs, over the same five hours, three
seeds (`python -m bench.paper`, its experiment `search`). Each cell: hops over the rival,
geometric mean and 95 % interval over seeds. Bold agrees with table 4: hops leads by at least half
of the paper's effect (half of its logarithm), and the interval leaves out 1. "agree": how many of
the five do.
"""

SEARCH_FINDINGS = """\
Rows are of three seeds. Under none does table 4 come out as a whole:

- **Long rounds bring it closest.** With rounds of 1,080 s the lead in mean completion over Sia is
  more than half of the paper's, with 180 and 360 s less.
- **Makespan against Sia** is shorter under none by more than chance: hops ends 1 % earlier to 8 %
  later in the mean, and every interval contains 1. "Undecided" above stays so.
- **Against Gavel** makespan and fragments agree under all. The lead in the largest latency ratio
  does not: the paper's Gavel has 70, ours 2 to 48, since it is served in the order of the latency
  ratio.
- **The shortest job and the round** set the largest latency ratio of hops: 3.3 with rounds of 360 s
  (1.7 where no job needs less than half a GPU hour), 13 (3.6) with 1,080 s. The paper has 3.22.
  Sia's 78.5 is between 133 and 25 of the same runs of 360 s; one seed of three makes most of both.
- **More work** brings makespans and waits against Gavel closer to the paper's. Against Sia, jobs of
  hops wait longer with it.

A latency ratio of 80 is a job that waited 80 times its run time, so within a makespan of 12.4 hours
one that needs less than 9.4 minutes. SJF and SRTF serve such jobs first, so if their makespans are
like that of hops, figure 13's many jobs above 80 cannot be long ones that starve. These priorities
were not played under other assumptions.
"""
