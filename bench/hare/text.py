"""The text around the tables of bench/results/hare.md."""

INTRODUCTION = """Hare (Chen et al., HPDC 2022) schedules single tasks. A job is a
sequence of rounds, each with as many tasks as the job's scale. Tasks of a round may run one after
the other on the same GPU ("relaxed scale-fixed synchronisation"). While a job synchronises, its
GPUs train for others. The objective is the least sum of weighted completion times. The paper's fast
task switching (section 4) exists within a job ([switching.md](switching.md)), not between jobs.

| module of `hopsd/policies/hare` | |
|---|---|
| `tasks.py` | the model of table 1: an instance, a schedule, their figures |
| `relaxation.py` | the lower bound and the relaxed starts |
| `lists.py` | Algorithm 1 as printed (`hare`), and with a different line 12 (`hare-eft`) |
| `dispatch.py` | the same relaxation without a list (`hare-dispatch`) |
| `check.py` | checks constraints 4 to 8; shares no code with the schedulers |
| `policy.py` | Hare in rounds, for `hopsctl simulate` |
| `sequence.py` | whose turn comes when in a lane, for `hopsctl sequence` |
| `switching.py` | what switches between jobs cost a schedule |

Gavel_FIFO, SRTF, Sched_Homo and Sched_Allox are `rivals/hare.py`.

## The relaxation

The printed relaxation replaces constraint 8 by Queyranne's inequality (9) and is a mixed-integer
quadratic program; the authors used commercial solvers. We instead solve a **linear** program over
time intervals, with HiGHS. `relaxation.py` names its rows. Each row holds for every feasible
schedule, so the optimum is a lower bound, and **every schedule states it**. In `hopsctl` it appears
as `proven_gap`: the share of its objective by which a plan may be worse than the best one.

- The bound is not tight, by design. Work in an interval counts as if done at the interval's start,
  and the placement of a job's tasks is averaged over the job. With 300 jobs on 160 GPUs the program
  has about 30,000 columns and takes seconds.
- A relaxed start is the time at which the program has trained the preceding rounds. Jobs of one
  interval follow one another, those trained earliest overall first.

We could not follow one step in the paper. Lemma 2 applies (9) to Algorithm 1's own assignment and
to every prefix of its order, while the relaxation has (9) for its own assignment and for all tasks
at once. So we do not rely on the guarantee alpha (2 + alpha). Instead we measure (last section),
and each schedule's own bound proves how far from the optimum it can be.

## Two better rules

Line 12 takes the GPU that is free first, whatever its speed. If GPU speeds differ by a factor of
seven, slow GPUs get as many tasks as they can take, and a round is only as fast as its slowest
task. `hare-eft` takes the GPU on which the task is synchronised first. `hare-dispatch` uses no
list: whenever a GPU is idle, the first job in the queue with a runnable task gets the fastest idle
GPU. So no GPU stays idle waiting for a task that cannot start yet.

## In the simulator

`hopsctl simulate --policy hare` (also `hare-eft`, `hare-dispatch`) runs in the same engine on the
same workloads as all others. There, as on a Slurm cluster, a GPU stays with a job until a plan
takes it away, a restart costs 30 s or what the job says, and future arrivals are unknown. So
each plan makes a new schedule of the remaining training, and each job gets the GPUs on which its
tasks start at once:

- A job's scale is its rigid size, the median requirement. A task lasts about one scheduling round
  on the fastest type, and a job's remaining work is at most 3 rounds of tasks.
- T^s is part of T^c, since a GPU cannot be lent while its job synchronises.
- A job may get fewer GPUs than its scale where its `reqs` allow it (tasks then take turns). They
  are of one type and as close together as possible. A job that keeps type and count stays where it
  is.
- All jobs have the same weight.
"""

FIGURES_OPENING = """## Against the paper's figures

These experiments use the task model itself: no restarts, and GPUs lent during synchronisation. As
in the paper, Hare plans with all arrivals known, while the baselines decide when a job arrives or
ends. Every schedule passed the checker. Figures are the sum of w_n (C_n - a_n) in thousands of
hours; the last column is the best schedule's sum of w_n C_n over the lower bound. Values are means
and standard deviations over five draws of jobs. Most of a deviation comes from the draw and is
common to all schemes; the percentages exclude it, since they compare draw by draw.

We use what the paper prints: models, batch sizes and task times (tables 2 and 3), the testbed's
GPUs, speeds of ResNet50 and GraphSAGE (figure 2). `bench/hare/workload.py` assumes the rest: other
models' speeds, run times (3 to 50 minutes on V100s at the job's scale), scales 1, 2, 4, 8, weights
1 to 4, arrivals over an hour, 40 GPUs of each type, and 30 scheduled rounds per job, each standing
for its share of mini-batches.

### By how much Hare changes the weighted completion time
"""

FINDINGS = """
What agrees with the paper, and what does not:

- **As printed, Algorithm 1 loses** to every baseline at 300 jobs on four GPU types, in every draw.
  On the testbed's GPUs it loses to SRTF and Sched_Allox in every draw and is level with the other
  two. With another rule in line 12, the same relaxation and order beat all four in every draw: by
  24 to 66 % on the testbed's GPUs and by 33 to 65 % at 300 jobs. That is less than the paper's 47.6
  to 75.3 % and 54.6 to 80.5 %.
- `hare-eft` is better where the cluster is crowded (by 5 % with 80 GPUs, 3 % at 300 jobs).
  `hare-dispatch` is better where it is not (by 7 % with 240 GPUs) and where GPUs are more alike (by
  26 % on one type, 12 % on two). Both hold in every draw.
- On V100s alone `hare-dispatch` is 4 % ahead of Sched_Homo, in every draw (paper: about level).
  `hare-eft` loses there: it is 29 % behind Sched_Homo and 19 % behind SRTF. Sched_Allox, with one
  GPU per job, is last. With two and four GPU types `hare-dispatch` is 62 and 52 % below Sched_Homo.
  SRTF is a strong rival and comes closest where few jobs wait (100 jobs: 19 %).
- With more jobs the gaps to Gavel_FIFO and SRTF grow, as in the paper; those to Sched_Homo and
  Sched_Allox shrink.
- More language jobs make all schemes slower and more recommendation jobs make all faster, as in the
  paper.
- A faster network helps less than in the paper (10 to 25 Gbit/s: 9 % for `hare-eft`, 5 % for
  `hare-dispatch`; paper 31.2 %). Here a synchronisation at 25 Gbit/s takes 5 to 63 % of a training
  on a V100, 20 % on average.
- Larger batches help a little (twice the default against half of it: 12 % for `hare-eft`, 7 % for
  `hare-dispatch`), but do not help the printed rule. They also help Sched_Homo, which they hurt in
  the paper: here they save synchronisations and change nothing else.
- In no draw is the best schedule more than 1.55 times the bound, so no scheduler could be more than
  36 % below it.
"""

TURNS = """### Jobs that take turns within a round

With `--switch-cost SECONDS` the schedule of tasks itself is played: jobs alternate on GPUs task by
task within a round (`hopsd/sim/turns.py`, [simulator.md](simulator.md#taking-turns)). The same jobs
as above, whose restarts were of 30 s; means over seeds 0, 1 and 2
(`python -m bench.hare --only turns`):
"""

TURNS_FINDINGS = """- **With `hare-eft` the mean completion is 16 % earlier** than with
  GPUs kept for rounds (12 to 20 % by seed), and the makespan 19 % shorter; with `hare-dispatch`
  7 % (from 13 % earlier to 6 % later) and 21 %.
- **The printed rule is 30 to 41 % later.** In rounds a job's GPUs are of one type; here line 12
  gives the tasks of a round to whatever GPUs are free first, and the slowest of them decides.
- `hops`, with GPUs kept for rounds and restarts of 30 s, is still ahead of all of them (2.31 h).
"""

SWITCH_SECTION = """## With and without switching

The experiments above take switching for free. Here a GPU that goes from a task of one job to one
of another does so later (`switching.py`): tasks keep their GPUs and their order, which were planned
without regard to it, as in the paper, and every delayed schedule passes the checker. Times are
those that [switching.md](switching.md) measures, on CPUs; 30 s is what hopsd assumes of a restart
that it has not measured.

- **Switching**: GPUs are lent while a job synchronises. That happens at every mini-batch, so a
  task that follows another job's is late by the switch times the mini-batches that it stands for.
- **Restarting**: a GPU waits while its job synchronises (T^s is part of T^c), and goes to
  another job only between tasks.
- The baselines lend no GPU while a job synchronises, and 1 to 5 % of their tasks follow another
  job's; each of these costs one change.
"""

SWITCHED_TABLES = """## With and without switching

Sum of w_n (C_n - a_n) in thousands of hours, means and standard deviations over seeds 0 to 4. The
last column: the share of tasks that follow another job's with `hare`, `hare-eft`, `hare-dispatch`.
"""

SWITCHED_FINDINGS = """Changes are against switching in 0 ms, draw by draw:

- **Switching in 10 ms is close to free for `hare-eft`**: 4 % (3 to 5 % in each draw), 11 % for
  `hare-dispatch`, which switches twice as often. Both stay ahead of all four baselines in every
  draw. So the paper may leave switching out of its problem, if it takes so little.
- **Most of what switching gives is cheap changes, not lending.** Keeping GPUs while jobs
  synchronise costs `hare-eft` 2 % (-10 to +7 %) and `hare-dispatch` 18 %, if changes are free.
- **Restarts of 3.2 s** cost `hare-eft` 6 % (-6 to +13 %), and it leads all baselines in every draw;
  `hare-dispatch` loses 29 %, and leads Sched_Allox in four of five.
- **Restarts of 7.2 s** cost `hare-eft` 13 %: it still leads all baselines in every draw.
  `hare-dispatch` loses 45 %, and its lead over Sched_Allox.
- **Restarts of 30 s** cost them 53 and 136 %; SRTF and Sched_Allox, which change little, lose
  less than 3 % in the mean. `hare-eft` is then behind Sched_Allox in every draw.
- 80 ms at every mini-batch is more than a restart of 7.2 s after a task: one that takes so long
  should switch less often than the charge here has it.
"""

COMPARED_OPENING = """Figures 14 to 19, with a quarter of the jobs and GPUs that the rows name:
switching in 10 ms / restarting in 3.2 s, one draw (seed 0).
"""

COMPARED_FINDINGS = """In figures 14 to 19, with a quarter of the jobs and GPUs, the better of
`hare-eft` and `hare-dispatch` leads all baselines either way, but on V100s alone, where Sched_Homo
is 6 to 10 % ahead. Where GPUs are many, or their jobs short, not lending them is better: a task
that follows another job's pays at each mini-batch.
"""

SMALL = """## How far from the optimum

Cases of 7 to 9 tasks on 2 or 3 GPUs, each solved by exhaustive search. "mean", "95 %" and "worst"
are the sum of w_n C_n over the optimum's; "bound" is the relaxation's over the optimum.
"""
