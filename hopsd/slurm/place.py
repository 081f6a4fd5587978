"""Starts held jobs on exactly their planned GPUs; otherwise they stay held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, floor

from hopsd.core.submission.rules import RulesOnNodes
from hopsd.model.allocation import Allocation
from hopsd.model.asked import Asked
from hopsd.model.devices import cores_of, is_cpu
from hopsd.model.ids import JobId, NodeName, host_of
from hopsd.model.reading import (
    PARTITIONS_MARK,
    PROFILE_MARK,
    USER_HOLD_BEGIN,
    Hold,
    JobReading,
    NodeReading,
    Reading,
    SiteMemory,
    SlurmState,
    with_marks,
)
from hopsd.model.rules import exact
from hopsd.model.step import OutcomeStatus, Step
from hopsd.slurm.adapter import Adapter, Placement
from hopsd.slurm.shape import filled, fits, free_gpus
from hopsd.slurm.watch import ApplySettings, Jobs, Watch, refusals

# slurmd refuses a credential made in the second of the job's last kill there, or earlier: "Job
# credential revoked", and the job ends as FAILED (seen live on 22.05). Slurm's own guard is a begin
# time 120 s after the requeue, which a placement clears.
_REST_SECONDS = 1.1

# scontrol asks for each of them. While slurmctld starts thousands of jobs, an answer took 0.1 s and
# more (22.05): these take a fraction of a command's time-out, and their numbers fit one line. They
# are placed just before: the submit plugin tells a hold in between for 60 s.
_RELEASED_AT_ONCE = 50

# So many are under way at a time, or half as many as have started. Before the next ones are
# released, the cluster is read once more.
_AT_ONCE = 400

RELEASING_SECONDS = 60.0
"""slurmctld looks at each node of a job's partition before it starts it: with 5,000 nodes this is
0.02 s of CPU (22.05). All starts of a first plan are minutes, in which nobody else gets one, and
nothing is planned anew or told."""

VACATED_SECONDS = 180.0
"""Likewise for what starts on GPUs that others were stopped for: they would be idle meanwhile."""

_HOLDING = frozenset({SlurmState.RUNNING, SlurmState.SUSPENDED})

HELD_MEANWHILE = "its owner or an operator holds it"

# A job that Slurm passes over takes its nodes from all others for the rest of a scheduling cycle,
# and one that asks for several partitions has the reason of the last one that was tried. Their
# reasons are taken for lasting only after this time.
_CYCLE_SECONDS = 6.0

# Between two readings of results, so many times what one takes: 0.15 s on a small cluster.
_RESTS_PER_READING = 3

# Slurm's reasons (22.05 to 26.05) that waiting does not change. Priority and Resources do change
# while a job that leaves still cleans up; BeginTime and Dependency are checked earlier.
_LASTING = (
    "Account",
    "Assoc",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeld",
    "Licenses",
    "MaxMemPerLimit",
    "NodeDown",
    "Partition",
    "QOS",
    "ReqNodeNotAvail",
    "Reservation",
)


@dataclass(frozen=True, slots=True)
class Result:
    """The result for one job; ``actual`` as read back. See :class:`StepOutcome`."""

    status: OutcomeStatus
    actual: Allocation = field(default_factory=Allocation)
    error: str = ""
    started: float = 0.0
    reason: str = ""
    ran: Allocation = field(default_factory=Allocation)


@dataclass(frozen=True, slots=True)
class _Starting:
    """A released job. ``restarts``: before it was. ``patient_until``: up to this tick a reason may
    be one that passes. ``latest``: the tick at which it is held again, whatever others do.
    """

    step: Step
    released: float
    restarts: int
    patient_until: float
    latest: float

    def waits(self, job: JobReading | None, ticks: float) -> bool:
        """Whether it may still start; False once it ran and was requeued."""
        return _waits(job, patient=ticks < self.patient_until) and not self.requeued(job)

    def requeued(self, job: JobReading | None) -> bool:
        """Whether it ran, and waits again."""
        if job is None or job.state is not SlurmState.PENDING:
            return False
        return job.restarts > self.restarts


class Placer:
    """Starts jobs in parallel.

    Each starts as soon as its GPUs are free and Slurm's way of filling nodes gives exactly the
    planned ones. A job that does not start delays only uneven jobs on its nodes. The start time-out
    is shared, and begins anew whenever jobs are released or start: Slurm needs its time for
    hundreds. A job has at most that and :data:`RELEASING_SECONDS`, from its own release, for as
    long as others start.

    After ``until``, or while nothing starts, no more is released: the remaining starts are put
    off, still held. So is a start that Slurm has not looked at in all of its time; the second time
    in a row it fails, and the next plan tries other nodes.
    """

    def __init__(self, adapter: Adapter, watch: Watch, settings: ApplySettings) -> None:
        self._adapter = adapter
        self._watch = watch
        self._settings = settings
        self._overlooked: set[JobId] = set()

    def start(
        self, steps: Iterable[Step], left: Mapping[JobId, float], until: float, seen: Reading | None
    ) -> dict[JobId, Result]:
        """Start jobs that are pending and eligible, the first ones first, as just ``seen`` if they
        were.

        ``left``: when some left their last nodes. They are not put off for want of time.
        ``until``: the tick after which others are, except the first few.
        """
        waiting = {step.job: step for step in steps}
        targets = {job: step.target for job, step in waiting.items()}
        starting: dict[JobId, _Starting] = {}
        results: dict[JobId, Result] = {}
        progress: float | None = None
        reading = seen
        looks: dict[JobId, float] = {}
        timeout = self._settings.start_timeout_seconds
        room = _AT_ONCE
        while waiting or starting:
            now = self._watch.ticks()
            if progress is not None and now > min(until, progress + timeout / 2):
                late = [job for job in waiting if job not in left]
                results |= {job: _put_off(waiting.pop(job).target) for job in late}
            if waiting and len(starting) <= room / 2:
                reading = reading or self._adapter.read()
                free = usable_gpus(reading)
                wave = _wave(waiting.values(), free, [s.step.target for s in starting.values()])
                if not wave and not starting:
                    return results | _left_over(waiting.values(), results, targets, free)
                wave = wave[: room - len(starting)]
                jobs = {job.id: job for job in reading.jobs}
                self._overlooked &= jobs.keys()
                requests, reading = Requests(reading, self._settings), None
                for at in range(0, len(wave), _RELEASED_AT_ONCE):
                    too_late = progress is not None and self._watch.ticks() > until
                    part = wave[at : at + _RELEASED_AT_ONCE]
                    part = [step for step in part if step.job in left or not too_late]
                    for step in part:
                        del waiting[step.job]
                    released, refused = self._release_together(part, jobs, requests, left)
                    starting |= released
                    results |= refused
                    if released:
                        progress = self._watch.ticks()
            if starting and progress is not None:
                settled = self._settled(starting, progress + timeout, looks)
                results |= settled
                if any(result.status is OutcomeStatus.DONE for result in settled.values()):
                    progress = self._watch.ticks()
            for job in results:
                starting.pop(job, None)
            done = [job for job, r in results.items() if r.status is OutcomeStatus.DONE]
            self._overlooked.difference_update(done)
            room = max(_AT_ONCE, len(done) // 2)
        return results

    def _settled(
        self, starting: Mapping[JobId, _Starting], deadline: float, looks: dict[JobId, float]
    ) -> dict[JobId, Result]:
        """The results of the first of ``starting`` to have one, half of them if that is soon; at
        ``deadline``, of all. None where nodes were looked at in vain: those of a job in ``looks``
        are again at that tick.
        """
        ticks = self._watch.ticks
        soon = ticks() + min(_CYCLE_SECONDS, _RESTS_PER_READING * self._watch.reading_seconds)

        def passed_over(now: Jobs) -> dict[JobId, _Starting]:
            """What has a reason that should have passed, and may have lost its GPUs."""
            return {
                job: s
                for job, s in starting.items()
                if ticks() >= s.patient_until
                if job in now and now[job].reason and s.waits(now[job], ticks())
            }

        def to_look(suspects: Iterable[JobId]) -> bool:
            return any(ticks() >= looks.get(job, 0.0) for job in suspects)

        def to_be_read(now: Jobs) -> bool:
            """What started can wait to be read with others, not what is to be held again."""
            over = [job for job, s in starting.items() if not s.waits(now.get(job), ticks())]
            begun = [job for job in over if job in now and now[job].state in _HOLDING]
            late = ticks() >= soon or 2 * len(over) >= len(starting)
            return bool((over and (late or len(begun) < len(over))) or to_look(passed_over(now)))

        look = min([*(s.latest for s in starting.values()), deadline])
        seen = self._watch.until(starting, to_be_read, max(0.0, look - ticks()))
        now = ticks()
        lost: frozenset[JobId] = frozenset()
        suspects = passed_over(seen) if now < deadline else {}
        if to_look(suspects):
            lost = self._lost(suspects)
            rest = max(_CYCLE_SECONDS, _RESTS_PER_READING * (ticks() - now))
            looks |= dict.fromkeys(suspects, ticks() + rest)
        return {
            job: self._read_back(start, seen.get(job))
            for job, start in starting.items()
            if now >= min(deadline, start.latest)
            or job in lost
            or not start.waits(seen.get(job), now)
        }

    def _lost(self, starting: Mapping[JobId, _Starting]) -> frozenset[JobId]:
        """Those whose GPUs another job, such as a plain one, took first and does not leave.

        Slurm's reason for them is that of jobs which wait for one that leaves: Resources, Priority.
        """
        reading = self._adapter.read()
        free = free_gpus(reading.nodes, [job for job in reading.jobs if job.state in _HOLDING])
        waiting = {job.id for job in reading.jobs if job.state is SlurmState.PENDING}
        return frozenset(
            job for job in waiting & starting.keys() if not fits(free, starting[job].step.target)
        )

    def _release_together(
        self,
        steps: Sequence[Step],
        jobs: Mapping[JobId, JobReading],
        requests: Requests,
        left: Mapping[JobId, float],
    ) -> tuple[dict[JobId, _Starting], dict[JobId, Result]]:
        """The jobs released, and the others' results."""
        errors: dict[JobId, str] = {}
        for step in steps:
            job = jobs.get(step.job)
            if job is None or job.state is not SlurmState.PENDING:
                state = "gone" if job is None else job.state_text
                errors[step.job] = f"it does not wait any more: {state}"
                continue
            with refusals(errors, step.job):
                self._prepare(step, job, requests)
        ready = [step.job for step in steps if step.job not in errors]
        elsewhere = {step.job for step in steps if _goes_elsewhere(step)}
        back = [job for job in ready if job not in elsewhere]
        stopped = [left.get(job, 0.0) for job in back]
        stopped += [jobs[job].submit for job in back if jobs[job].restarts]  # the last requeue
        self._watch.rest_until(max(stopped, default=0.0) + _REST_SECONDS, _REST_SECONDS)
        at = self._watch.now()
        self._release(ready, errors)
        ticks = self._watch.ticks()
        patient = ticks + _CYCLE_SECONDS
        latest = ticks + self._settings.start_timeout_seconds + RELEASING_SECONDS
        released = {
            step.job: _Starting(step, at, jobs[step.job].restarts, patient, latest)
            for step in steps
            if step.job not in errors
        }
        return released, {job: Result(OutcomeStatus.FAILED, error=e) for job, e in errors.items()}

    def _prepare(self, step: Step, job: JobReading, requests: Requests) -> None:
        if job.hold is Hold.NONE:
            self._adapter.hold(job.id)
        partition = requests.partitions(job, step.target, step.partition)
        comment = _marked(job, step, partition)
        placement = requests.placement(job, step.target, comment)
        self._adapter.place(replace(placement, partition=partition))

    def _release(self, jobs: Sequence[JobId], errors: dict[JobId, str]) -> None:
        """Release all in one request; if Slurm refuses, one by one, to find which it refuses."""
        if not jobs:
            return
        together: dict[JobId, str] = {}
        with refusals(together, jobs[0]):
            self._adapter.release(jobs)
        if not together:
            return
        seen = self._watch.jobs()
        for job in jobs:
            if job in seen and seen[job].hold is Hold.USER:
                errors[job] = HELD_MEANWHILE
            elif job in seen and seen[job].hold is Hold.HOPS:
                with refusals(errors, job):
                    self._adapter.release([job])

    def _read_back(self, start: _Starting, job: JobReading | None) -> Result:
        step = start.step
        if job is None or job.state.finished:
            ended = "it ended before its allocation was read"
            return Result(
                OutcomeStatus.GONE, error=ended if job else "Slurm does not know it any more"
            )
        if job.state in _HOLDING and job.allocation == step.target:
            return Result(OutcomeStatus.DONE, job.allocation, started=job.start)
        if job.state is SlurmState.COMPLETING:
            return Result(OutcomeStatus.FAILED, job.allocation, f"it is {job.state_text}")
        refused = self._take_back(job)
        now = self._watch.jobs().get(job.id) if refused else job
        if now is None or (now.state, now.hold) != (job.state, job.hold):  # such as: it just began
            return self._read_back(start, now)
        result = self._not_started(start, job, refused)
        if start.requeued(job):
            told = "it started, and was requeued before its allocation was read"
            return replace(result, error=told, started=start.released, ran=step.target)
        return replace(result, started=job.start, ran=job.allocation) if job.allocation else result

    def _take_back(self, job: JobReading) -> str:
        """Hold it again; why Slurm refused, "" if it did not."""
        errors: dict[JobId, str] = {}
        with refusals(errors, job.id):
            if job.state is not SlurmState.PENDING:
                self._adapter.requeue_hold(job.id)
            elif job.hold is Hold.NONE:
                # A person held it between placing and release: only that leaves this mark.
                self._adapter.hold(job.id, USER_HOLD_BEGIN if _marked_held(job) else 0.0)
        return errors.get(job.id, "")

    def _not_started(self, start: _Starting, job: JobReading, refused: str) -> Result:
        """``refused``: why Slurm did not hold it again, "" if it did."""
        if job.hold is Hold.USER or _marked_held(job):
            return Result(OutcomeStatus.FAILED, error=HELD_MEANWHILE, reason="JobHeldUser")
        target = start.step.target
        overlooked = job.state is SlurmState.PENDING and not job.reason and not start.requeued(job)
        if overlooked and not refused and job.id not in self._overlooked:
            self._overlooked.add(job.id)
            return _put_off(target, "Slurm has not come to it")
        given = job.allocation or "nothing"
        said = f"Slurm gave {given} in place of {target}: {job.state_text}"
        return Result(
            OutcomeStatus.FAILED, error=f"{said}; {refused or 'held again'}", reason=job.reason
        )


class Requests:
    """Requests to Slurm for placements on the nodes of one reading."""

    def __init__(self, reading: Reading, settings: ApplySettings) -> None:
        self._reading, self._settings = reading, settings
        self._rules = RulesOnNodes(reading.nodes, settings.cpus_per_gpu)
        self._at = {node.name: at for at, node in enumerate(reading.nodes)}
        self._for_any_type = any(node.mixed and not node.by_type for node in reading.nodes)

    def _nodes(self, target: Allocation) -> list[NodeReading]:
        """The nodes of ``target`` in the cluster's order."""
        there = (self._at[name] for name in target.nodes if name in self._at)
        return [self._reading.nodes[at] for at in sorted(there)]

    def placement(
        self, job: JobReading, target: Allocation, comment: str | None = None
    ) -> Placement:
        """The request for ``target``, with the cores and memory that the plan assumed.

        Slurm takes one number of cores for all nodes of a job; on CPU nodes, all that each has.
        """
        memory = self._reading.memory_of(job)
        rules, nodes = self._rules.of(job, memory), self._nodes(target)
        cores = exact(rules.cores_per_gpu)
        asked, share = job.asked, floor(rules.memory_mb_per_gpu)
        any_type = asked.gpu_type is None
        if any_type and any(node.mixed for node in nodes):  # Slurm would give GPUs of all its types
            asked = replace(asked, gpu_type=nodes[0].gpu_type)
        if asked.exclusive and asked.cores_per_gpu and nodes:  # no other job has a part of these
            shares = (Fraction(n.cores, target.on(n.name)) for n in nodes)
            cores = min(asked.cores_per_gpu, *shares)
        if any(is_cpu(node.gpu_type) for node in nodes):
            cores = Fraction(min(cores_of(node, self._settings.kept_cores) for node in nodes))
        each: int | None = None
        if asked.whole_memory and share:
            whole = all(target.on(node.name) == node.gpus and not node.mixed for node in nodes)
            each = 0 if whole else share * max(gpus for _, gpus in target)
        by_gpu = share and each is None and _by_gpu(asked, memory)
        return Placement(
            job=job.id,
            allocation=target,
            cores_per_gpu=cores,
            comment=comment,
            reset=job.per_job_gpus or (any_type and self._for_any_type),
            asked=asked,
            memory_mb_per_gpu=share if by_gpu else None,
            memory_mb_per_node=each,
            memory_mb_per_core=_memory_per_core(asked, cores),
        )

    def partitions(self, job: JobReading, target: Allocation, counted: str = "") -> str:
        """The job's partitions that hold all nodes of ``target``, of them those where the plan has
        it ``counted``; "" where it names but one.

        Slurm tries one partition after the other, and gives up on the named nodes for the whole
        cycle where the first lacks them or a limit of it is reached (22.05, job_scheduler.c): the
        job would not start, nor any other there.
        """
        asked = job.partition.split(",")
        if len(asked) == 1:
            return ""
        asked = [name for name in asked if name in counted.split(",")] or asked
        nodes = self._nodes(target)
        hold = [name for name in asked if all(name in node.partitions for node in nodes)]
        return ",".join(hold or asked)


def _memory_per_core(asked: Asked, cores: Fraction) -> int | None:
    """Megabytes for each of ``cores`` per GPU that come to what ``--mem-per-cpu`` asks for."""
    if asked.memory_mb_per_core is None or asked.cores_per_gpu is None:
        return None
    return ceil(asked.memory_mb_per_core * max(Fraction(1), asked.cores_per_gpu / cores))


def _by_gpu(asked: Asked, site: SiteMemory) -> bool:
    """Whether to ask for memory per GPU. Unless the site sets another default, Slurm would give a
    job that asks for none all memory of its nodes.
    """
    unset = site.mb_per_gpu is None and site.mb_per_cpu is None and site.mb_per_node is None
    return asked.memory_mb_per_gpu is not None or (asked.default_memory and unset)


def usable_gpus(reading: Reading) -> dict[NodeName, int]:
    """GPUs free on each usable node, in the cluster's node order."""
    return free_gpus((node for node in reading.nodes if node.usable), reading.jobs)


def _wave(
    steps: Iterable[Step], free: Mapping[NodeName, int], starting: Sequence[Allocation] = ()
) -> list[Step]:
    """Steps that can start together now, besides those already ``starting``.

    Uneven shapes depend on what is free on their nodes at that moment: while one starts, no other
    job starts on its nodes.
    """
    left, place = dict(free), {node: at for at, node in enumerate(free)}
    for target in starting:
        for node, gpus in target:
            left[node] = left.get(node, 0) - gpus
    moving = {node for target in starting for node in target.nodes}
    filling = {node for target in starting if not target.even for node in target.nodes}
    wave = []
    for step in steps:
        target = step.target
        if target.even and fits(left, target) and filling.isdisjoint(target.nodes):
            wave.append(step)
            moving.update(target.nodes)
            for node, gpus in target:
                left[node] -= gpus
        elif (
            not target.even and moving.isdisjoint(target.nodes) and _is_filled(free, place, target)
        ):
            wave.append(step)
            moving.update(target.nodes)
            filling.update(target.nodes)
    return wave


def _is_filled(
    free: Mapping[NodeName, int], place: Mapping[NodeName, int], target: Allocation
) -> bool:
    """Whether Slurm's own way of filling nodes gives exactly ``target``. ``place``: of each node in
    the cluster's order.
    """
    if not place.keys() >= set(target.nodes):
        return False
    return filled(free, sorted(target.nodes, key=place.__getitem__), target.gpus) == target


def _left_over(
    waiting: Iterable[Step],
    results: Mapping[JobId, Result],
    targets: Mapping[JobId, Allocation],
    free: Mapping[NodeName, int],
) -> dict[JobId, Result]:
    """The results of steps that cannot start, though nothing is under way.

    It is no fault of theirs, and they are put off, where others did not start: what these were to
    have is free now, and Slurm would fill nodes with it otherwise than planned.
    """
    if any(result.status is OutcomeStatus.PUT_OFF for result in results.values()):
        return {step.job: _put_off(step.target) for step in waiting}
    missing = [job for job, result in results.items() if result.status is not OutcomeStatus.DONE]
    nodes = {node for job in missing for node in targets[job].nodes}
    left = {step.job: step for step in waiting}
    found: dict[JobId, Result] = {}
    while put_off := [
        step
        for step in left.values()
        if fits(free, step.target) and not nodes.isdisjoint(step.target.nodes)
    ]:
        for step in put_off:
            del left[step.job]
            nodes.update(step.target.nodes)
            found[step.job] = _put_off(step.target, "other jobs on its nodes did not start")
    return found | {job: _no_room(step, free) for job, step in left.items()}


def _no_room(step: Step, free: Mapping[NodeName, int]) -> Result:
    there = ", ".join(f"{node}:{free.get(node, 0)}" for node in step.target.nodes)
    why = "not free" if not fits(free, step.target) else "not what Slurm gives of what is free"
    return Result(OutcomeStatus.FAILED, error=f"{step.target} is {why} ({{{there}}}); still held")


def _put_off(target: Allocation, why: str = "Slurm is busy starting other jobs") -> Result:
    error = f"its start on {target} is postponed until the next plan: {why}"
    return Result(OutcomeStatus.PUT_OFF, error=error)


def _waits(job: JobReading | None, *, patient: bool) -> bool:
    """Whether a released job may still start.

    Slurm itself holds a job again that can never run (BadConstraints), and at once gives any other
    reason (22.05): waiting does not help against a limit or a lost node. ``patient``: it does where
    the reason may be another job's or another partition's.
    """
    if job is None:
        return False
    if job.state is SlurmState.COMPLETING:
        return True
    return (
        job.state is SlurmState.PENDING
        and job.hold is Hold.NONE
        and not _marked_held(job)
        and not (job.reason.startswith(_LASTING) and not (patient and _may_pass(job)))
    )


def _may_pass(job: JobReading) -> bool:
    return "," in job.partition or job.reason.startswith("ReqNodeNotAvail")


def _marked_held(job: JobReading) -> bool:
    return job.state is SlurmState.PENDING and job.begin >= USER_HOLD_BEGIN


def _goes_elsewhere(step: Step) -> bool:
    """Whether it goes to hosts none of which it has just left."""
    before = {host_of(node) for node in step.current.nodes}
    return bool(before) and before.isdisjoint(map(host_of, step.target.nodes))


def _marked(job: JobReading, step: Step, partition: str) -> str | None:
    """The comment with or without the mark that prolog.sh reads, and with the partitions that the
    job asks for, where it is placed in fewer; None: leave it as it is.
    """
    ours = PROFILE_MARK, PARTITIONS_MARK
    words = [word for word in job.marks.split() if word.partition("=")[0] not in ours]
    if step.profiling:
        words.append(f"{PROFILE_MARK}={step.iterations}" if step.iterations else PROFILE_MARK)
    if partition and partition != job.partition:
        words.append(f"{PARTITIONS_MARK}={job.partition}>{partition}")
    marks = " ".join(words)
    return with_marks(job.comment, marks) if marks != job.marks else None
