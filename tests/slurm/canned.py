"""Answers of Slurm's commands without Slurm."""

from __future__ import annotations

from hopsd.slurm.command import SlurmCommands


class CannedCommands(SlurmCommands):
    """Commands with prepared answers: nodes as text, and squeue's JSON."""

    nodes = "NodeName=n0 CPUTot=8 Gres=gpu:a:2 State=IDLE Partitions=main"
    jobs = '{"jobs": []}'

    def run(self, *arguments: str) -> str:
        if arguments[0] == "squeue":
            return self.jobs
        if arguments == ("scontrol", "--version"):
            return "slurm 22.05.8"
        return self.nodes
