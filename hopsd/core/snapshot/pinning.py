"""Which running jobs stay where they are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from hopsd.core.submission.comment import Comment
from hopsd.core.submission.partitions import Access
from hopsd.model.history import JobRecord
from hopsd.model.ids import NodeName, UserName, WorkloadName
from hopsd.model.reading import JobReading, SlurmState


class Unsaved(StrEnum):
    """Whether a job that was not seen to save stays where it runs.

    ``STAYS``: always; ``STAYS_IF_SEEN``: if its reports show that it trains, so a training that
    hops cannot see is moved; ``MOVES``: never. A job that handles the signal sent before a move can
    be moved in any case, since it can save then.
    """

    STAYS = "stays"
    STAYS_IF_SEEN = "stays_if_seen"
    MOVES = "moves"


UNSAVED_NOTE = (
    "it is not moved until it has been seen to save once, since it might start over (and it was not"
    " seen to handle a signal: --signal, trap); preempt=yes in the comment allows moving it"
)


ENDS_NOTE = (
    "it is not moved, since an earlier job of its workload ended within the grace of hops' signal:"
    " make the script run scontrol requeue $SLURM_JOB_ID on the signal, and name another workload"
    " in the comment"
)


RESUBMITS_NOTE = (
    "it is not moved, since its script submits a job when it is stopped (trap): leave sbatch out of"
    " the trap, and hops starts the job again by itself"
)

FAILED_AGAIN_NOTE = (
    "it is not moved, since an earlier job of its workload failed within a minute of a restart:"
    " make the script tolerate a second start, and name another workload in the comment"
)


DEADLINE_NOTE = (
    "it is not moved, since Slurm ends a restarted job whose whole time limit no longer fits before"
    " its --deadline"
)

REFUSES_NOTE = (
    "it is not moved, since its script fails if a file or folder of an earlier start exists:"
    " make it continue from there"
)

UNSEEN_SAVE_NOTE = (
    "hops has seen no save of it: after a move it continues from what it saves on hops' signal, or"
    " starts over; preempt=no in the comment keeps it where it runs"
)


STEPS_NOTE = (
    "on another GPU count its steps have another number of samples, and the epoch begins again"
    " unless the script keeps its place in the data: hops_profiler.ElasticLoader keeps both, as do"
    " Trainer, Lightning and Accelerate with --signal=USR1@60"
)


class StayRule(Enum):
    """Whether, and why, a job stays where it runs.

    ``UNTIL_SAVED``: until it was seen to save once; ``ENDS_BY_SIGNAL``: since an earlier job of its
    workload ended in the grace of hops' signal; ``RESUBMITS``: since its script submits a job when
    it is stopped; ``REFUSES``: since its script fails at a second start; ``FAILED_AGAIN``: since an
    earlier job of its workload failed at a second start; ``DEADLINE``: since it has a deadline.
    """

    NO = auto()
    YES = auto()
    UNTIL_SAVED = auto()
    ENDS_BY_SIGNAL = auto()
    RESUBMITS = auto()
    REFUSES = auto()
    FAILED_AGAIN = auto()
    DEADLINE = auto()


STAY_NOTES = {
    StayRule.UNTIL_SAVED: UNSAVED_NOTE,
    StayRule.ENDS_BY_SIGNAL: ENDS_NOTE,
    StayRule.RESUBMITS: RESUBMITS_NOTE,
    StayRule.REFUSES: REFUSES_NOTE,
    StayRule.FAILED_AGAIN: FAILED_AGAIN_NOTE,
    StayRule.DEADLINE: DEADLINE_NOTE,
}
"""The notes for the jobs' users."""


@dataclass(frozen=True, slots=True)
class Pinning:
    """The rules that decide which running jobs stay.

    ``schedulable``: the schedulable nodes; ``by_user``: whether ``preempt=no`` is honoured;
    ``unsaved``: what happens to a job that was not seen to save; ``signal``: sent to the jobs that
    ask for none; ``ended_by_signal``, ``failed_again``: as in
    :class:`hopsd.model.knowledge.Knowledge`.
    """

    schedulable: frozenset[NodeName]
    access: Access
    by_user: bool
    unsaved: Unsaved
    signal: str
    ended_by_signal: frozenset[tuple[UserName, WorkloadName]] = frozenset()
    failed_again: frozenset[tuple[UserName, WorkloadName]] = frozenset()

    def decide(
        self, job: JobReading, comment: Comment | None, record: JobRecord | None
    ) -> StayRule:
        """Decide whether the job stays.

        It does if its user says so, if Slurm may not requeue it, if one of its nodes accepts no new
        jobs (drained, down) or no job of its length (reserved), where the job may finish, or if a
        move would do harm.
        """
        if job.state is not SlurmState.RUNNING:
            return StayRule.NO
        may_move = comment is not None and (comment.preempt or not self.by_user)
        returnable = self.schedulable.issuperset(job.allocation.nodes) and self.access.take_back(
            job
        )
        if not (may_move and job.requeue and returnable):
            return StayRule.YES
        return self._harm(job, record)

    def _harm(self, job: JobReading, record: JobRecord | None) -> StayRule:
        """Return the harm that a move would do to a job that Slurm and its user allow to move."""
        kind = None if record is None else (record.user, record.workload)
        reasons = {
            StayRule.DEADLINE: job.deadline > 0.0,
            StayRule.RESUBMITS: "resubmits" in job.options.repeats,
            StayRule.REFUSES: "refuses" in job.options.repeats,
            StayRule.FAILED_AGAIN: kind in self.failed_again,
            StayRule.ENDS_BY_SIGNAL: kind in self.ended_by_signal
            and job.options.is_warned(self.signal),
            StayRule.UNTIL_SAVED: self._is_unsaved(job, record),
        }
        return next((stay for stay, applies in reasons.items() if applies), StayRule.NO)

    def _is_unsaved(self, job: JobReading, record: JobRecord | None) -> bool:
        """Whether a job that could otherwise be moved stays until it has saved."""
        is_vouched_for = self.unsaved is Unsaved.MOVES or job.options.preempt
        if record is None or record.saved or is_vouched_for or self._answers(job, record):
            return False
        return self.unsaved is Unsaved.STAYS or record.saved is False

    def _answers(self, job: JobReading, record: JobRecord) -> bool:
        """Whether a job that was not seen to save may still do so on its signal.

        Only the reports show whether the job's steps handle a signal: scripts also ask for one
        before the time limit, where an unhandled signal costs nothing. A job that was restarted
        without having saved is not stopped in vain again.
        """
        options = job.options
        is_warned = options.is_warned(self.signal)
        if "requeues" in options.repeats:
            return is_warned
        in_vain = job.restarts > 0 and record.saved is False
        if options.signal and options.signal_steps:
            return record.answers_signal is True and not in_vain
        return is_warned and not in_vain
