"""What a job's own options ask for beside the comment, as job_submit.lua found it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hopsd.model.ids import GpuType, NodeName
from hopsd.model.rules import ShapeRule


@dataclass(frozen=True, slots=True)
class Asked:
    """The defaults ask for nothing.

    ``shape`` and ``per_node``: as in :class:`hopsd.model.rules.Rules`; ``shape`` None: not said.
    Tasks: ``tasks_per_gpu``, else ``tasks_each`` on each node. ``cores_per_gpu`` None: the
    site's number. ``memory_mb_per_gpu``: of ``--mem-per-gpu``; ``whole_memory``: ``--mem=0``;
    ``default_memory``: no option about memory. ``gres``: other than GPUs, on each node, as
    ``VRAM:12G,nvme:1``. ``nodes``: of ``--nodelist``, None: any. ``signal``: that the script wants
    before it must go, "": the site's; to its steps alone with ``signal_steps``, else to its shell;
    ``signal_seconds``: how long before. ``traps``: the signals that the script handles, None: not
    known. ``ranks``: that it starts on each node, whatever it gets there, None: as many as GPUs.
    """

    shape: ShapeRule | None = None
    per_node: int | None = None
    tasks_per_gpu: Fraction | None = None
    tasks_each: int = 1
    cores_per_gpu: Fraction | None = None
    memory_mb_per_gpu: int | None = None
    whole_memory: bool = False
    default_memory: bool = False
    exclusive: bool = False
    gpu_type: GpuType | None = None
    gres: str = ""
    nodes: frozenset[NodeName] | None = None
    signal: str = ""
    signal_steps: bool = False
    signal_seconds: int | None = None
    traps: frozenset[str] | None = None
    ranks: int | None = None

    def tasks(self, gpus: int) -> int:
        """On a node where the job has ``gpus`` GPUs."""
        if self.tasks_per_gpu is None:
            return self.tasks_each
        return max(1, int(self.tasks_per_gpu * gpus))


NOTHING_ASKED = Asked()
