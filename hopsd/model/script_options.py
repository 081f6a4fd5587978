"""What a job's own sbatch options ask for, apart from the comment, as read by job_submit.lua."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hopsd.model.ids import GpuType, NodeName
from hopsd.model.rules import ShapeRule

SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP")
"""Those of ``--signal`` that hops sends: nobody traps others."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """A job's sbatch options; the defaults ask for nothing.

    ``shape`` and ``per_node``: as in :class:`hopsd.model.rules.Rules`; ``shape`` None: not
    specified. Tasks: ``tasks_per_gpu``, else ``tasks_each`` on each node. ``cores_per_gpu`` None:
    the site's default. ``memory_mb_per_gpu``: from ``--mem-per-gpu``; ``memory_mb_per_core``: from
    ``--mem-per-cpu``, for the cores that the job asks for, however many it gets; ``whole_memory``:
    ``--mem=0``; ``default_memory``: no memory option. ``gres``: other than GPUs, per node, such as
    ``VRAM:12G,nvme:1``. ``disk_mb``: from ``--tmp``, per node. ``nodes``: from ``--nodelist``,
    None: any. ``signal``: the one the script wants before it is stopped, "": the site's; sent to
    its steps only if ``signal_steps``, else to its shell, ``signal_seconds`` ahead. ``traps``: the
    signals that the script handles, None: unknown; ``ends``: those of them by which it may end as
    if it were done. ``ranks``: started on each node whatever the job
    gets there, None: one per GPU.
    ``switches``: the most leaf switches that its nodes may be on, None: any number;
    ``switches_seconds``: how long it would wait for that, None: for ever. ``segment``: how many
    nodes at a time are to be on one leaf switch or block, None: any; ``spread_segments``: each on
    one of its own; ``consolidate_segments``: all below one switch or aggregated block.
    ``starts``: what the script starts its training by, where that matters to measuring it
    (``hopsd/core/submission/unseen.py``). ``repeats``: what a second start would do once more:
    "submits" jobs, "requeues" the job, "counts" its restarts; "resubmits": submits a job when it is
    stopped; "refuses": fails at a second start. ``preempt``: its user wrote preempt=yes, so that it
    may be moved though no save of it was seen. ``time_min_seconds``: from ``--time-min``, None: the
    job starts with all of its time.
    """

    shape: ShapeRule | None = None
    per_node: int | None = None
    tasks_per_gpu: Fraction | None = None
    tasks_each: int = 1
    cores_per_gpu: Fraction | None = None
    memory_mb_per_gpu: int | None = None
    memory_mb_per_core: int | None = None
    whole_memory: bool = False
    default_memory: bool = False
    exclusive: bool = False
    gpu_type: GpuType | None = None
    gres: str = ""
    disk_mb: int = 0
    nodes: frozenset[NodeName] | None = None
    signal: str = ""
    signal_steps: bool = False
    signal_seconds: int | None = None
    traps: frozenset[str] | None = None
    ends: frozenset[str] = frozenset()
    ranks: int | None = None
    switches: int | None = None
    switches_seconds: int | None = None
    segment: int | None = None
    spread_segments: bool = False
    consolidate_segments: bool = False
    starts: frozenset[str] = frozenset()
    repeats: frozenset[str] = frozenset()
    preempt: bool = False
    time_min_seconds: float | None = None

    @property
    def survived_signals(self) -> frozenset[str] | None:
        """The signals that its shell answers without ending the job as done; None: unknown."""
        return None if self.traps is None else self.traps - self.ends

    @property
    def is_warned(self) -> bool:
        """Whether the job is sent a signal before it is moved, by which it can save."""
        if (self.signal and self.signal_steps) or self.survived_signals is None:
            return True
        return self.signal in self.survived_signals if self.signal else bool(self.survived_signals)

    def tasks(self, gpus: int) -> int:
        """The number of tasks on a node where the job has ``gpus`` GPUs."""
        if self.tasks_per_gpu is None:
            return self.tasks_each
        return max(1, int(self.tasks_per_gpu * gpus))


NO_OPTIONS = ScriptOptions()
