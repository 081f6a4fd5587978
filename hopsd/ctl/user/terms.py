"""The words of `hopsctl status` and `explain`; docs/glossary.md has them too."""

from __future__ import annotations

TERMS: dict[str, str] = {
    "backfill": "Slurm's way of starting later jobs early where they delay nobody.",
    "expected run time": "How long the job runs in all, from its samples and speed, from past runs"
    " of the same training, or else from its time limit.",
    "first plan": "The plan that opens a round: running jobs that may move compete again.",
    "fragments": "GPUs that stay idle while a job waits that an empty cluster could run.",
    "further plan": "A plan within a round: only waiting jobs get GPUs, and jobs move only to make"
    " room for a session.",
    "gain": "How much faster the job runs in its placement than in its slowest possible one.",
    "grace period": "The time that a job has to save between hops' signal and its requeue.",
    "latency ratio": "Waiting time over expected run time. At 1, a job has waited as long as it"
    " runs. wait/run in tables.",
    "limit": "A bound set by the site's accounts, QOS or partitions, such as GPUs per user.",
    "measuring run": "A short run that measures a workload's speed on one GPU type; also profile"
    " run.",
    "noticed": "What hops observed about the job that its owner should know.",
    "placement": "The GPUs of a job on each node: n0:2 n1:2 is four GPUs on two nodes.",
    "plain job": "A job without a hops comment: only Slurm schedules it.",
    "priority": "A job's weight in the plan; under hops and hops+ it grows with the latency ratio.",
    "rack fragments": "Whole racks' worth of idle GPUs on racks where no waiting rack-bound job"
    " could use them.",
    "RAQLR": "The mean latency ratio of the jobs that ended within metrics.raqlr_hours.",
    "reqs": "The GPU counts that the job accepts.",
    "restarts": "How often the job was stopped and restarted, on the same or on other GPUs.",
    "round": "The time between two first plans; only at its end may running jobs be moved.",
    "sensitivity": "How many times slower each GPU gets when the job is spread over servers.",
    "server": "A node of the cluster, as the Hops paper calls it.",
    "server factor": "A server's speed relative to others of its GPU type: 0.95 is 5 % slow.",
    "session": "A job that its user waits for (interactive in its comment): it starts before"
    " others and never moves.",
    "shape": "How a job's GPUs are laid out: how many, on how many servers.",
    "throughput": "Samples that the job trains on per second.",
    "tick": "One pass of hopsd: it reads Slurm, plans and applies the plan, every"
    " daemon.refresh_seconds.",
    "window": "The jobs at the head of the queue that compete in a plan.",
    "workload": "The training that a job runs. Jobs of one workload share measurements.",
}
"""Maps each word to its meaning, in a sentence or two."""

WAITS: dict[str, str] = {
    "outside_window": "Jobs ahead of it ask for all GPUs. Its priority rises while it waits;"
    " smaller counts in reqs let it fit into a gap.",
    "limit": "A limit of its account, QOS or partition is used up. It starts when other jobs end;"
    " ask your admin for more.",
    "no_configuration": "No server or group of servers can hold it; the reason names what is"
    " missing. Add smaller counts to reqs, or relax nodes, memory or GPU type.",
    "lost_to_others": "It competed, and the plan gave the GPUs to jobs of higher value. It"
    " competes again at the next plan; counts with a better speed per GPU help.",
    "held": "You, an operator or --begin hold it. Run `scontrol release JOB`.",
    "dependency": "It waits for another job (--dependency).",
    "profiling": "A measuring run takes its speed; then it returns to the queue by itself.",
    "error": "Something is wrong with the job itself, and the reason says what.",
}
"""Maps the code of a waiting job to what it means and what its owner can do."""
