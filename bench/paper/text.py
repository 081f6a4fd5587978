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
  such that the median takes at most 8 hours.
- **Round length and restart cost** of the paper's simulation are not printed.
- **Overheads.** Planning and profiling take no virtual time here; planning times are below.

So absolute hours cannot agree. What can be checked is who is better, by how much, and why.
"""

CLOSING = """
Planning times are of a shared machine with two cores; its load is in the table's last column. How
planning scales with GPUs and queue length (figure 15) is measured by `python -m bench.plan`.
"""
