"""A job's sbatch options and script, apart from the comment, as read by job_submit.lua."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hopsd.model.ids import GpuType, NodeName
from hopsd.model.rules import ShapeRule

SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP")
"""The signals of ``--signal`` that hops sends: nobody traps others."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """A job's sbatch options, and what its script does; the defaults ask for nothing.

    ``shape`` and ``per_node``: as in :class:`hopsd.model.rules.Rules`; ``shape`` is None if not
    specified. A node has ``tasks_per_gpu`` tasks per GPU, or else ``tasks_each``. ``cores_per_gpu``
    is None for the site's default. ``memory_mb_per_gpu``: from ``--mem-per-gpu``;
    ``memory_mb_per_core``: from ``--mem-per-cpu``, for the cores that the job asks for, however
    many it gets; ``whole_memory``: ``--mem=0``; ``default_memory``: no memory option. ``gres``:
    other than GPUs, per node, such as ``VRAM:12G,nvme:1``. ``disk_mb``: from ``--tmp``, per node.
    ``nodes``: from ``--nodelist``, None for any.

    ``signal``: the signal that the script wants before it is stopped, "" for the site's. It is sent
    ``signal_seconds`` ahead, to the job's steps only if ``signal_steps``, else to its shell.
    ``traps``: the signals that the script handles, None if unknown; ``ends``: the signals among
    them on which the script may end as if it were done. ``ranks``: the number started on each node
    whatever the job gets there, None for one per GPU.

    ``switches``: the maximum number of leaf switches of the job's nodes, None for any;
    ``switches_seconds``: how long the job would wait for that, None for ever. ``segment``: the
    number of nodes in a group that is to be on one leaf switch or block, None for any;
    ``spread_segments``: each group is on one of its own; ``consolidate_segments``: all groups are
    below one switch or aggregated block.

    ``starts``: the commands that start the training, if they matter to measuring it
    (``hopsd/core/submission/unseen.py``). ``repeats``: what a second start would do once more:
    "submits" jobs, "requeues" the job, "counts" its restarts; "resubmits": the script submits a job
    when it is stopped; "refuses": it fails at a second start. ``preempt``: the user wrote
    preempt=yes, so the job may be moved although it was not seen to save. ``time_min_seconds``:
    from ``--time-min``, None if the job starts with all of its time.
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
        """The signals that the shell handles without ending the job as done; None if unknown."""
        return None if self.traps is None else self.traps - self.ends

    def is_warned(self, site_signal: str) -> bool:
        """Whether the job is sent a signal before it is moved, by which it can save: its own, or
        else ``site_signal``.
        """
        if (self.signal and self.signal_steps) or self.survived_signals is None:
            return True
        return (self.signal or site_signal) in self.survived_signals

    def tasks(self, gpus: int) -> int:
        """Return the number of tasks on a node where the job has ``gpus`` GPUs."""
        if self.tasks_per_gpu is None:
            return self.tasks_each
        return max(1, int(self.tasks_per_gpu * gpus))


NO_OPTIONS = ScriptOptions()
