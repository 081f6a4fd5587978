"""The words around the tables of docs/hare.md."""

OPENING = """# Hare

Written by `python -m bench.hare`. Hare (Chen et al., HPDC 2022) schedules single tasks: a job is
rounds of as many tasks as its scale, tasks of a round may share a GPU one after the other
("relaxed scale-fixed synchronisation"), and while a job synchronises its GPUs train for others.
The aim is the least sum of weighted completion times. The paper's fast task switching (section 4)
is not part of hops.

| module of `hopsd/policies/hare` | |
|---|---|
| `tasks.py` | the model of table 1: an instance, a schedule, their figures |
| `relaxation.py` | the lower bound and the relaxed starts |
| `lists.py` | Algorithm 1 as printed (`hare`), and with another line 12 (`hare-eft`) |
| `dispatch.py` | the same relaxation without a list (`hare-dispatch`) |
| `check.py` | constraints 4 to 8, checked by code that shares nothing with the schedulers |
| `baselines.py` | Gavel_FIFO, SRTF, Sched_Homo, Sched_Allox |
| `policy.py` | Hare in rounds, for `hopsctl simulate` |

## The relaxation

The printed one replaces constraint 8 by Queyranne's inequality (9) and is a mixed-integer
quadratic program; the authors used commercial solvers. We solve another, a **linear** program
over intervals of time, with HiGHS. `relaxation.py` names its rows; each holds for every feasible
schedule, so its optimum is a lower bound, and **every schedule states it**. In `hopsctl` it is
`proven_gap`: by how much of its objective a plan may be worse than the best one.

- The bound is not tight by design: work in an interval counts as if it were done at its begin, and
  which of a job's tasks run where is averaged over the job. With 300 jobs on 160 GPUs the program
  has about 30,000 columns and takes seconds.
- The relaxed starts are the moments at which the program has trained the rounds before. Jobs of
  one interval follow one another, first those that are trained first over all.

What we could not follow in the paper: lemma 2 applies (9) to Algorithm 1's own assignment and to
every prefix of its order, while the relaxation has (9) for its own assignment and for all tasks
at once. So we do not rest on the guarantee alpha (2 + alpha); we measure (last section), and each
schedule's own bound proves how far from the optimum it can be.

## Two better rules

Line 12 takes the GPU that is free first, whatever its speed. On GPUs that differ by a factor of
seven this gives a slow GPU as many tasks as it can take, and a round is as fast as its slowest
task. `hare-eft` takes the GPU on which the task is synchronised first. `hare-dispatch` gives up
the list: whenever a GPU is idle, the first job in line with a task to run gets the fastest idle
one, so that nothing stays idle before a task that cannot begin yet.

## In the simulator

`hopsctl simulate --policy hare` (also `hare-eft`, `hare-dispatch`) runs in the same engine on the
same workloads as all others. There, and on a Slurm cluster, a GPU stays with a job until a plan
takes it away, a restart costs 30 s instead of milliseconds, and nobody knows who comes. So each
plan makes a new schedule of what is left to train, and each job gets the GPUs on which its tasks
begin at once:

- A job's scale is its rigid size, the median requirement. A task is about a scheduling round long
  on the fastest type, and what is left of a job is at most 3 rounds of tasks.
- T^s is part of T^c, since a GPU cannot be lent while its job synchronises.
- A job may get fewer GPUs than its scale, as far as its `reqs` allow (tasks in turn). They are of
  one type and as close together as possible; a job that keeps type and count stays where it is.
- All jobs weigh the same.
"""

FIGURES_OPENING = """## Against the paper's figures

Below is the task model itself: no restarts, GPUs lent during synchronisation, and Hare plans with
all arrivals known, as in the paper, while the baselines decide when a job arrives or ends. Every
schedule passed the checker. Figures are the sum of w_n (C_n - a_n) in thousands of hours; the last
column is the best schedule's sum of w_n C_n over the lower bound. Means and standard deviations
over five draws of jobs; most of a deviation is the draw's, equal for all schemes, but in the
percentages, which compare draw by draw.

What the paper prints is used: models, batch sizes and task times (tables 2 and 3), the testbed's
GPUs, speeds of ResNet50 and GraphSAGE (figure 2). What it does not print is assumed in
`bench/hare/workload.py`: other models' speeds, run times (3 to 50 minutes on V100s at the job's
scale), scales 1, 2, 4, 8, weights 1 to 4, arrivals over an hour, 40 GPUs of each type, and 30
scheduled rounds a job, each standing for its share of mini-batches.

### By how much Hare changes the weighted completion time
"""

FINDINGS = """
What agrees with the paper, and what does not:

- **As printed, Algorithm 1 loses** to every baseline at 300 jobs on four GPU types, in every draw.
  On the testbed's GPUs it loses to SRTF and Sched_Allox in every draw and is level with the other
  two. With another rule in line 12 the same relaxation and the same order win against all four in
  every draw: by 24 to 66 % on the testbed's GPUs and by 33 to 65 % at 300 jobs, less than the
  paper's 47.6 to 75.3 % and 54.6 to 80.5 %.
- `hare-eft` and `hare-dispatch` share the wins: the first where the cluster is crowded (by 5 % with
  80 GPUs, 3 % at 300 jobs), the second where it is not (by 7 % with 240 GPUs) and where GPUs are
  more alike (by 26 % on one type, 12 % on two); each in every draw.
- On V100s alone `hare-dispatch` is 4 % ahead of Sched_Homo, in every draw (paper: about level), and
  `hare-eft` a loss: 29 % behind it and 19 % behind SRTF. Sched_Allox, one GPU a job, is last. With
  other types beside them `hare-dispatch` is 62 and 52 % below Sched_Homo. SRTF, a strong rival, is
  the closest where few jobs wait (100 jobs: 19 %).
- With more jobs the gaps to Gavel_FIFO and SRTF grow as in the paper, those to Sched_Homo and
  Sched_Allox shrink.
- More language jobs make all schemes slower, more recommendation jobs all faster, as in the paper.
- A faster network helps less than in the paper (10 to 25 Gbit/s: 9 % for `hare-eft`, 5 % for
  `hare-dispatch`; paper 31.2 %): here a synchronisation at 25 Gbit/s takes 5 to 63 % of a training
  on a V100, 20 % on average.
- Larger batches help a little (twice the default against half of it: 12 % for `hare-eft`, 7 % for
  `hare-dispatch`), but not the printed rule. They help Sched_Homo, too, which in the paper they
  hurt: here they save synchronisations and change nothing else.
- In no draw is the best schedule more than 1.55 times the bound: no scheduler could have more than
  36 % less.
"""

SMALL = """## How far from the optimum

Cases of 7 to 9 tasks on 2 or 3 GPUs, each solved by trying all schedules. "mean", "95 %" and
"worst" are the sum of w_n C_n over the optimum's; "bound" is the relaxation's over the optimum.
"""
