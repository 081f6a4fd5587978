"""The adapter that uses Slurm's commands: works with every release and needs nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from hopsd.breaker import LastAnswers
from hopsd.core.submission.comment import parse
from hopsd.errors import CommentError, SlurmError, SlurmUnavailableError
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName, Tasks, host_of
from hopsd.model.reading import JobReading, NodeReading, Reading, SiteMemory
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions
from hopsd.model.site import Licence, SiteRules
from hopsd.slurm.accounting.ends import EndedJobs
from hopsd.slurm.accounting.guarded import TIMEOUT_SECONDS, GuardedCommands
from hopsd.slurm.accounting.rules import SiteRulesReader
from hopsd.slurm.accounting.unrecorded import UPDATE_SECONDS, UnrecordedJobs
from hopsd.slurm.adapter import Placement, SignalScope
from hopsd.slurm.command import ScontrolSession, SlurmCommands
from hopsd.slurm.mixed import OTHER_TYPE_SINCE, places, with_idle_shares
from hopsd.slurm.ordering.dependency import awaited_jobs
from hopsd.slurm.ordering.job_arrays import in_turn
from hopsd.slurm.parse import (
    GLANCE,
    UNREGISTERED_TEXT,
    bar_reason,
    closed_partitions,
    glance_readings,
    holder,
    holds_gpus,
    is_held,
    is_hops_job,
    isolated_reading,
    job_allocation,
    known_jobs,
    node_readings,
    records,
    task_reading,
)
from hopsd.slurm.racks.topology import TopologyReader, nodes_of_topology
from hopsd.slurm.script import Scripts
from hopsd.slurm.shadow.plain import as_hops_job
from hopsd.slurm.shape import (
    Release,
    clear_cores,
    free_gpus,
    reset_arguments,
    update_arguments,
)
from hopsd.slurm.site import (
    MagneticReservation,
    account_and_above,
    closed_groups,
    groups_of,
    licences,
    magnetic_now,
    partition_groups,
    partition_memory,
    reserved_from,
    reserved_now,
    reserved_until,
    site_memory,
)
from hopsd.slurm.submit_line import SubmitLines, submit_lines

_REGISTRATION_SECONDS = 30.0
_GROUPS_SECONDS = 60.0
_GROUP_SECONDS = 1.0
_NO_LINES = "{}: until it answers, hops does not see a --signal on sbatch's own command line"
_OUTSIDE = (
    "hops does not schedule partition {} (slurm.partitions): an operator can give the job to plain"
    " Slurm (hopsctl release)"
)
_MAX_NAMES = 5
"""How many nodes a message names; there may be thousands."""

# What scancel prints before it sends a signal again: slurmctld delivers a signal to a task but
# still reports a refusal while other tasks of the array wait (22.05 to 26.05).
_RETRY_WORDS = "transitional state"


class ScontrolAdapter:
    """``squeue``, ``scontrol`` and ``scancel``; see :class:`hopsd.slurm.adapter.Adapter`."""

    name = "scontrol"

    def __init__(
        self,
        commands: SlurmCommands | None = None,
        *,
        partitions: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        shadow: bool = False,
    ) -> None:
        """With ``shadow``, plain jobs with GPUs are read as hops jobs that must not be moved."""
        self._commands = commands or SlurmCommands()
        self._session: ScontrolSession | None = None
        self._partitions = tuple(partitions)
        self._clock = clock
        self._shadow = shadow
        self._scripts = Scripts(self._commands)
        self._unrecorded = UnrecordedJobs(clock)
        self._submitted: Mapping[JobId, float] = {}
        self._slurmdbd = GuardedCommands(
            "slurmdbd",
            self._commands,
            on_silence=lambda error: self._unrecorded.note_silence(
                clock() - TIMEOUT_SECONDS, error
            ),
        )
        self._lines = SubmitLines(self._slurmdbd, self._has_slurmdbd)
        self._ended_jobs = EndedJobs(self._slurmdbd, self._commands, self._has_slurmdbd)
        self._site = SiteRulesReader(self._commands, slurmdbd=self._slurmdbd)
        self._order: Mapping[NodeName, int] = {}
        self._closed_partitions: Mapping[str, str] = {}
        self._groups: Mapping[str, frozenset[str]] = {}
        self._groups_of: dict[str, tuple[float, frozenset[str]]] = {}
        self._group_answers = LastAnswers[str, frozenset[str]](_GROUP_SECONDS, _GROUP_SECONDS)
        self._gpus = 0
        self._rests: Mapping[JobId, Tasks] = {}
        self._unheard_since: float | None = None
        self._known_release: Release | None = None
        self._known_config = ""
        self._topologies = TopologyReader(self._commands, self._release, self._config)
        self._site_memory: SiteMemory | None = None

    def read(self) -> Reading:
        partitions = self._partition_records()
        self._closed_partitions, self._groups = (
            closed_partitions(partitions),
            partition_groups(partitions),
        )
        nodes, names = node_readings(
            self._node_records(), self._partitions, self._closed_partitions
        )
        self._order = places(names, nodes)
        self._gpus = sum(node.gpus for node in nodes)
        self._require_known(nodes)
        answer = self._job_answer()
        foreign: dict[NodeName, int] = {}
        holders = []
        for job in answer["jobs"]:
            if holds_gpus(job) and not self._is_selected(job):
                holders.append(holder(job, self._order))
                for node, (gpus, _) in job_allocation(job, self._order).items():
                    foreign[node] = foreign.get(node, 0) + gpus
        now = self._clock()
        reservations = self._reservation_records()
        reservation_starts, inside = (
            reserved_from(reservations, now),
            reserved_now(reservations, now),
        )
        ends = reserved_until(reservations, now)
        jobs, memory = self._readings(answer, learn=self._session is None), self._memory()
        rules = self._site.read(jobs)
        jobs = self._with_magnetic(jobs, magnetic_now(reservations, now), rules)
        nodes = [replace(node, foreign_gpus=foreign.get(node.name, 0)) for node in nodes]
        topology = self._topologies.for_partitions(
            fields
            for fields in partitions
            if not self._partitions or fields.get("PartitionName") in self._partitions
        )
        return Reading(
            now=now,
            nodes=tuple(
                replace(
                    node,
                    reserved_from=reservation_starts.get(host),
                    reservation=inside.get(host, node.reservation),
                    reserved_until=ends.get(host),
                    switches=topology.switches.get(host, ()),
                    by_type=node.is_mixed and self._release() < OTHER_TYPE_SINCE,
                )
                for node in with_idle_shares(
                    nodes_of_topology(topology, nodes), free_gpus(nodes, jobs)
                )
                for host in [host_of(node.name)]
            ),
            jobs=jobs,
            slurm_version=_full_release(answer),
            problems=tuple(
                filter(None, [self._slurmdbd.problem and _NO_LINES.format(self._slurmdbd.problem)])
            ),
            memory=memory,
            other_holders=tuple(holders),
            site=rules,
            partition_memory=partition_memory(partitions, memory),
            several_blocks=self._topologies.several_blocks(topology),
            licences=self._licences() if any(job.licences for job in jobs) else {},
        )

    def jobs(self) -> Sequence[JobReading]:
        if not self._order:
            return self.read().jobs
        return self._readings(self._job_answer(), learn=False)

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        return self._ended_jobs.read(records)

    def glance(self, jobs: Collection[JobId]) -> Mapping[JobId, JobReading]:
        command = ("squeue", "--noheader", "--all", "--states=all", f"--Format={GLANCE}")
        return glance_readings(self._commands.run(*command), jobs)

    def hold(self, job: JobId, begin: float = 0.0) -> None:
        self._update(job, "priority=0", f"starttime={f'uts{begin:.0f}' if begin else 'now'}")

    def place(self, placement: Placement) -> None:
        if placement.reset:
            self._update(placement.job, *reset_arguments(self._release()))
        words = update_arguments(placement, self._release())
        if placement.comment is not None:
            words.append(f"comment={placement.comment}")
        self._update(placement.job, *words)

    def release(self, jobs: Sequence[JobId]) -> None:
        if jobs:
            self._commands.run("scontrol", "release", ",".join(map(self._printed_name, jobs)))

    def signal(self, job: JobId, signal: str, scope: SignalScope) -> None:
        flags = {SignalScope.BATCH: ["--batch"], SignalScope.ALL: ["--full"]}.get(scope, [])
        command = ("scancel", f"--signal={signal}", *flags)
        if "_" in job:
            self._commands.run_until(_RETRY_WORDS, *command, "--verbose", job)
        else:
            self._commands.run(*command, job)

    def requeue_hold(self, job: JobId, *, ended: bool = False) -> None:
        words = [] if ended else ["incomplete"]
        self._commands.run("scontrol", "requeuehold", *words, job)

    @contextmanager
    def batch(self) -> Iterator[None]:
        with closing(ScontrolSession(self._commands)) as session:
            self._session = session
            try:
                yield
            finally:
                self._session = None

    def unpin(
        self,
        job: JobId,
        gpus: int,
        comment: str,
        *,
        nodes: int = 1,
        options: ScriptOptions = NO_OPTIONS,
        avoid: Sequence[NodeName] = (),
        begin_now: bool = False,
        partition: str = "",
    ) -> None:
        # Slurm never mixes GPUs with and without a type in a job (22.05), and keeps neither cores
        # nor memory per GPU for a job without a type (26.05).
        kind = f"gpu:{options.gpu_type}" if options.gpu_type else "gpu"
        by_gpu = ["MemPerTres=", *clear_cores(self._release())]
        memory = options.memory_mb_per_gpu
        other_gres = ",".join(f"gres:{item}" for item in options.gres.split(",") if item)
        counts = [f"numtasks={nodes}", f"numcpus={nodes}"]
        if job not in self._rests:  # an array's record never ran, and scontrol refuses these for it
            counts += [f"numnodes={nodes}", "reqnodelist="]
        self._update(job, "tresPerNode=", "tresPerJob=", *by_gpu, *counts)
        self._update(
            job,
            "cpuspertask=1",
            "mincpusnode=1",
            f"tresPerJob=gres:{kind}:{gpus}",
            *([f"tresPerNode={other_gres}"] if other_gres else []),
            *([f"MemPerTres=gres:gpu:{memory}"] if memory else []),
            f"comment={comment}",
            *([f"excnodelist={','.join(map(host_of, avoid))}"] if avoid else []),
            *(["starttime=now"] if begin_now else []),
            *([f"partition={partition}"] if partition else []),
        )

    def _release(self) -> Release:
        """The major and minor release of the commands, which parse the updates."""
        if self._known_release is None:
            output = self._commands.run("scontrol", "--version")
            match = re.search(r"(\d+)\.(\d+)", output)
            if match is None:
                raise SlurmError(f"scontrol --version: no release in {output.strip()!r}")
            self._known_release = int(match[1]), int(match[2])
        return self._known_release

    def _update(self, job: JobId, *words: str) -> None:
        words = ("update", f"jobid={self._printed_name(job)}", *words)
        commands = self._commands
        if self._has_slurmdbd() and self._unrecorded.may_wait(self._submitted.get(job, inf)):
            commands = commands.with_time_out(UPDATE_SECONDS)
        with self._updating(job):
            if self._session is None:
                commands.run("scontrol", *words)
            else:
                self._session.run(*words, seconds=commands.timeout_seconds)

    def _updating(self, job: JobId) -> AbstractContextManager[None]:
        """Refuse at once an update that slurmctld would refuse only after seconds."""
        return self._unrecorded.update(job, self._submitted.get(job, inf))

    def _printed_name(self, job: JobId) -> str:
        """The job's id for Slurm: an array's bare id would mean all its tasks, running ones too."""
        # scontrol does not accept steps such as 0-98:2.
        return f"{job}_[{Tasks.from_numbers(self._rests[job])}]" if job in self._rests else job

    def _memory(self) -> SiteMemory:
        """Read memory defaults once: an administrator restarts hopsd after changing them."""
        if self._site_memory is None:
            self._site_memory = site_memory(self._config())
        return self._site_memory

    def _config(self) -> str:
        if not self._known_config:
            self._known_config = self._commands.run("scontrol", "show", "config")
        return self._known_config

    def _has_slurmdbd(self) -> bool:
        return "accounting_storage/slurmdbd" in self._config()

    def _node_records(self) -> Sequence[Mapping[str, str]]:
        return records(self._commands.run("scontrol", "show", "node", "-a", "-o"))

    def _partition_records(self) -> Sequence[Mapping[str, str]]:
        return records(self._commands.run("scontrol", "show", "partition", "-a", "-o"))

    def _reservation_records(self) -> Sequence[Mapping[str, str]]:
        return records(self._commands.run("scontrol", "show", "reservation", "-o"))

    def _job_answer(self) -> Any:
        # 22.05 always prints every job; 24.11 and later print only those that are asked for.
        text = self._commands.run("squeue", "--all", "--states=all", "--json")
        try:
            answer = json.loads(text)
            jobs = answer["jobs"]
        except (ValueError, KeyError, TypeError) as error:
            raise SlurmError(f"squeue --json: unexpected output: {error}") from error
        if not isinstance(jobs, list):
            return {"jobs": []}
        return {**answer, "jobs": [*map(as_hops_job, jobs)]} if self._shadow else answer

    def _is_selected(self, job: Mapping[str, Any]) -> bool:
        """Also selects held jobs of other partitions, which hops would otherwise hold for ever."""
        is_left = is_held(job) and not self._shadow
        return is_hops_job(job) and (is_left or not self._is_outside(job.get("partition") or ""))

    def _is_outside(self, partition: str) -> bool:
        names = partition.split(",")
        return bool(self._partitions) and set(names).isdisjoint(self._partitions)

    def _readings(self, answer: Any, *, learn: bool) -> tuple[JobReading, ...]:
        """With ``learn``, read batch scripts, which takes seconds; never while applying steps."""
        known_jobs_now = known_jobs(answer["jobs"])
        own_jobs = filter(self._is_selected, answer["jobs"])
        readings = in_turn(
            (isolated_reading(job, self._order, known_jobs_now) for job in own_jobs),
            self._task_capacity,
            lambda record, task: task_reading(record, task, known_jobs_now),
        )
        self._rests = {job.id: job.rest for job in readings if job.rest is not None}
        self._submitted = {job.id: job.submit for job in readings}
        self._unrecorded.keep(self._submitted.keys())
        readings = self._lines.apply(readings, submit_lines(answer["jobs"]))
        scripts, waited_for = (
            self._scripts.for_jobs(readings, learn=learn),
            awaited_jobs(known_jobs_now.jobs),
        )
        return tuple(
            replace(
                job,
                script=scripts.get(job.id, ""),
                is_awaited=not waited_for.isdisjoint((job.id, job.number, job.array)),
                bar=job.bar
                or (_OUTSIDE.format(job.partition) if self._is_outside(job.partition) else "")
                or bar_reason(job.partition, self._closed_partitions)
                or self._closed_to(job),
            )
            for job in readings
        )

    def _with_magnetic(
        self,
        jobs: tuple[JobReading, ...],
        reservations: Sequence[MagneticReservation],
        rules: SiteRules,
    ) -> tuple[JobReading, ...]:
        # Only backfill starts a job there that names its nodes, as hops' jobs do (22.05).
        if not reservations or "sched/backfill" not in self._config():
            return jobs

        def admitting(job: JobReading) -> tuple[str, ...]:
            accounts = account_and_above(job.account, rules)
            groups = partial(self._group_names, job.user)
            return tuple(r.name for r in reservations if r.admits(job.user, accounts, groups))

        return tuple(
            job if job.reservation else replace(job, magnetic=admitting(job)) for job in jobs
        )

    def _task_capacity(self, job: JobReading) -> int:
        """How many tasks of the job's array the cluster has GPUs for, at least one."""
        try:
            min_gpus = min(parse(job.comment).reqs)
        except CommentError:
            return 1
        return max(1, self._gpus // min_gpus)

    def _closed_to(self, job: JobReading) -> str:
        """Why AllowGroups keeps the job from its partitions; root may use every partition."""
        if not self._groups or job.uid == 0:
            return ""
        return closed_groups(job.partition, self._groups, lambda: self._group_names(job.user))

    def _group_names(self, user: str) -> frozenset[str] | None:
        """The user's groups, cached for a minute: the system may have to ask another machine. None
        if that hangs and the groups are unknown.
        """
        now = time.monotonic()
        entry = self._groups_of.get(user)
        if entry is not None and now - entry[0] <= _GROUPS_SECONDS:
            return entry[1]
        groups = self._group_answers.get(user, lambda: groups_of(user))
        if groups is not None:
            self._groups_of[user] = now, groups
        return groups

    def _licences(self) -> Mapping[str, Licence]:
        return licences(records(self._commands.run("scontrol", "show", "licenses", "-o")))

    def _require_known(self, nodes: Sequence[NodeReading]) -> None:
        """Raise while a slurmctld that has just started does not know yet which nodes are up.

        Nodes register within some seconds (four, on 22.05). A plan made before would crowd all jobs
        onto the nodes that have registered. A node that has not by then counts as lost and delays
        no job.
        """
        unheard = [node.name for node in nodes if _unheard(node)]
        if not unheard:
            self._unheard_since = None
            return
        now = time.monotonic()
        if self._unheard_since is None:
            self._unheard_since = now
        if now - self._unheard_since < _REGISTRATION_SECONDS:
            suffix = f" and {len(unheard) - _MAX_NAMES} others" if len(unheard) > _MAX_NAMES else ""
            raise SlurmUnavailableError(
                "slurmctld has just started and has not heard from"
                f" {', '.join(unheard[:_MAX_NAMES])}{suffix}"
            )


def _unheard(node: NodeReading) -> bool:
    return node.state_text.rstrip("*") == "UNKNOWN" or node.state_text.endswith(UNREGISTERED_TEXT)


def _full_release(answer: Mapping[str, Any]) -> str:
    """The full release: in ``meta.Slurm`` on 22.05, in ``meta.slurm`` on 24.11 and later."""
    meta = answer.get("meta") or {}
    return str((meta.get("slurm") or meta.get("Slurm") or {}).get("release") or "")
