"""The text around the tables of bench/results/allox.md."""

PAPER = {
    "es": "*-88 %*",
    "drff": "*-95 %*",
    "drfs": "*-84 %*",
    "drfa": "*-53 %*",
    "srpt": "*+30 %*",
}

INTRODUCTION = """Section 5 of the AlloX paper (EuroSys 2020) in our simulator,
{jobs} jobs of 10 users on 20 GPUs and 20 CPUs, means and standard deviations over {seeds} draws of
the jobs. The paper's figures are *in italics*; the curves over time show the first draw.

As in the paper: a job takes one GPU or one CPU (19 of 20 cores, one is kept for GPU jobs); ten
models with a speedup of 1.8 to 10 on a GPU; alpha 0.1; run times estimated by lines through two
samples on each type, with an error of about 8 %; samples cost 3 % of a job. One user's jobs are
four times as long. Only SRPT preempts, and its moves are free. SRPT and DRFF pay for no samples,
and SRPT knows the exact run times.

The paper does not print the run times, the arrivals and the load. We use log-normal run times
(median 2 minutes on a GPU) and Poisson arrivals (busy hours with nine times the rate of quiet ones)
instead of the Google trace. The load is the GPU seconds arriving per second over the number of
GPUs. 1.3 was chosen after first runs at 1.1, so that GPUs alone cannot carry it; at 2.0 queues
build up under every policy. The paper has over 1,000 jobs per user. We have fewer, so our queues
have less time to grow.

"Spread of progress" is the standard deviation over users of section 3.3.2's progress, averaged
over the time to the last arrival. "Longest 1 %" is the mean completion time of those jobs.
"""

CONCLUSION = """
## What agrees, what does not

These findings were taken from the tables; where they differ, the tables are right.

- **Order.** As in the paper, AlloX (alpha 0.1) has a lower mean completion time than ES, DRFF, DRFS
  and DRFA. DRFF is the worst of them and DRFA the closest to AlloX. SRPT is below all.
- **Size.** Does not agree: -55 % against DRFF where the paper has -95 %, -24 % against ES (-88 %),
  -24 % against DRFS (-84 %), -15 % against DRFA (-53 %). Such figures depend on how long queues can
  grow: at load 2.0 it is -66 % against DRFF, while the distance to the others shrinks. The paper
  does not print its trace, run times and load, and it has over twelve times as many jobs.
- **SRPT.** AlloX is 56 % above it with alpha 0.1 (paper: 30 %) and 28 % with alpha 1 (9 %). Our
  SRPT also knows run times exactly and takes no samples.
- **AlloX+** and AlloX with alpha 0.1 are equal within the spread of the draws. With alpha 1, AlloX
  is 8 to 20 % ahead on every draw, as in the paper. AlloX+ enforces no fairness, and the users'
  progress spreads more. At load 2.0 AlloX with alpha 0.1 loses to SJF+, which is AlloX+ without the
  time-out.
- **The longest 1 %.** As in the paper, AlloX is ahead of SRPT on every draw: by 10 to 24 %, at load
  2.0 by up to 8 %.
- **Estimation errors.** As in the paper, they matter little: a mean error of 35 % costs AlloX 0 to
  12 %.
- **Fairness.** As in the paper, a larger alpha lowers completion times and spreads progress more;
  the latter effect is smaller than the spread of the draws. DRFF and DRFS spread it least. At load
  2.0 AlloX with alpha 0.1 has less than half the spread of AlloX+.
- **Overhead.** As in the paper, sampling slows all policies that sample: samples of 20 % make AlloX
  38 to 48 % slower than no samples, and ES 21 to 47 %.
- **CPUs.** As in the paper's figure 12, DRFF and DRFS leave them idle, since every job is faster on
  a GPU. ES and DRFA use them most, even for jobs that gain most on a GPU.

## Speed

Measured by `python -m bench.allox.speed`: one plan for 1,000 waiting jobs on 10,000 idle nodes,
half of them CPUs, takes AlloX+ 0.05 CPU seconds (the paper: 0.7 s on its hardware) and AlloX 0.63.
The Hops paper's 500 jobs on 512 GPUs under AlloX take 12 to 15 CPU seconds for the whole simulated
day.
"""
