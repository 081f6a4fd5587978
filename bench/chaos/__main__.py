"""``python -m bench.chaos --faults N --seed S``: inject faults, report recovery and violations."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random

from bench.chaos.faults import FAULTS, Kind
from bench.chaos.judge import Finding, judge, read_runs, redone
from bench.chaos.slurm_log import STUCK_SECONDS, SlurmLog
from bench.chaos.world import Wait, World, wait_until, world

JOBS_AT_A_TIME = 8
AT_A_TIME = 2
LOOK_EVERY = 10
"""Number of faults after which all are repaired and hops must be well again."""
FINAL_STATES = (
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
)
ORDER = {"state": 0, "slurmctld": 1, "database": 2}
REPAIR_SECONDS = 120.0
RECOVERY_SECONDS = 60.0
BUSY_AT_MOST = 5.0
DRAIN_SECONDS = 300.0
DESCRIPTORS_MORE = 25
MEMORY_TIMES = 1.6
LOG_LINES_A_SECOND = 20.0


@dataclass(slots=True)
class Record:
    """Measurements taken during the faults."""

    recoveries: list[float] = field(default_factory=list)
    usages: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    fault_counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    """Time from the first fault to the last check, without the wait for the jobs' ends."""


@dataclass(slots=True)
class ActiveFault:
    kind: Kind
    harm: Iterator[float]
    until: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="only these kinds")
    parser.add_argument("--refresh", type=float, default=1.0, help="hopsd's refresh_seconds")
    parser.add_argument("--keep", type=Path, help="folder to copy logs and records to")
    options = parser.parse_args()
    with world(options.refresh) as new_world:
        summary = torment(new_world, options.faults, Random(options.seed), options.only)
        findings = summary.findings + judge(new_world)
        tell(new_world, summary, findings, options.seed)
        if options.keep is not None:
            new_world.keep(options.keep)
    return int(any(not finding.explanation for finding in findings))


def torment(world: World, faults: int, rng: Random, kind_names: list[str] | None = None) -> Record:
    """Inject ``faults`` faults, then wait until every job has ended."""
    summary = Record()
    jobs = Random(rng.random())  # separate, so that the number of jobs does not change the faults
    for daemon in world.hopsd:
        daemon.start()
    wait_until(world.well, RECOVERY_SECONDS)
    active_faults: list[ActiveFault] = []
    kinds = _draw_kinds(Random(rng.random()), kind_names)
    began_at = time.monotonic()
    for number, kind in zip(range(faults), kinds, strict=False):
        _top_up(world, jobs)
        _take_back(
            active_faults, [fault for fault in active_faults if kind.touches & fault.kind.touches]
        )
        harm = kind.harm(world, rng)
        began = time.time()
        seconds = next(harm, None)
        print(f"{began:.1f} {number} {kind.name}", file=sys.stderr, flush=True)
        if seconds is not None:
            summary.fault_counts[kind.name] += 1
            active_faults.append(ActiveFault(kind, harm, time.monotonic() + seconds))
        time.sleep(rng.uniform(0.2, 4.0))
        _take_back(
            active_faults, [fault for fault in active_faults if time.monotonic() >= fault.until]
        )
        if number % LOOK_EVERY == LOOK_EVERY - 1:
            _take_back(active_faults, active_faults)
            _look(world, summary)
        elif len(active_faults) > AT_A_TIME:
            _take_back(active_faults, [min(active_faults, key=lambda fault: fault.until)])
    _take_back(active_faults, active_faults)
    _look(world, summary)
    summary.seconds = time.monotonic() - began_at
    _drain(world, summary)
    return summary


def _draw_kinds(rng: Random, kind_names: list[str] | None) -> Iterator[Kind]:
    """Yield kinds endlessly, each once before any repeats; deterministic for a seed."""
    kinds = [kind for kind in FAULTS if not kind_names or kind.name in kind_names]
    while True:
        yield from rng.sample(kinds, len(kinds))


def _top_up(world: World, rng: Random) -> None:
    queue = world.queue()
    if queue is None:
        return
    open_jobs = sum(state in ("PENDING", "RUNNING", "SUSPENDED") for _, state in queue.values())
    for _ in range(min(3, JOBS_AT_A_TIME - open_jobs)):
        world.submit(rng)


def _urgency(kind: Kind) -> int:
    return min((ORDER[thing] for thing in kind.touches if thing in ORDER), default=len(ORDER))


def _take_back(active_faults: list[ActiveFault], ending: Iterable[ActiveFault]) -> None:
    """Wait until each of ``ending`` has lasted its time, and repair it."""
    # Repair these first: all other repairs need them.
    for fault in sorted(ending, key=lambda fault: _urgency(fault.kind)):
        time.sleep(max(0.0, fault.until - time.monotonic()))
        next(fault.harm, None)
        active_faults.remove(fault)


def _patience(seconds: float) -> float:
    """Stretch a timeout by the machine's load."""
    return seconds * min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), BUSY_AT_MOST)


def _look(world: World, record: Record) -> None:
    """With all faults repaired, hops must recover in time; record its descriptors and memory."""
    if wait_until(world.in_order, _patience(REPAIR_SECONDS)) is None:
        raise RuntimeError(f"the bench cannot mend its own cluster; left to do: {[*world.debts]}")
    patience = _patience(RECOVERY_SECONDS)
    took = wait_until(world.well, patience)
    if took is None:
        text = "; ".join(world.status_lines())
        record.findings.append(Finding("no recovery", "", f"after {patience:.0f} s: {text}"))
    else:
        record.recoveries.append(took)
    for daemon in world.hopsd:
        usage = daemon.usage()
        if usage is not None and daemon.process is not None:
            record.usages.setdefault((daemon.name, daemon.process.pid), []).append(usage)


def _drain(world: World, record: Record) -> None:
    world.resume()
    for hold in world.holds:  # slurmctld may have lost its release; likewise a cancel below
        world.insist(world.jobs[hold.token], "scontrol", "release")
    for job in world.jobs.values():
        if job.is_cancelled:
            world.run("scancel", job.id)
    for job in world.suspended_jobs:
        # A killed slurmctld may have forgotten the suspension and refuse to resume; slurmstepd
        # has not, and refuses signals. Suspending again brings both into line.
        if world.run("scontrol", "suspend", job.id) is not None:
            world.insist(job, "scontrol", "resume")
    began = last_look = time.time()

    def is_over() -> bool:
        nonlocal last_look
        if time.time() > last_look + STUCK_SECONDS:
            last_look = time.time()
            record.findings += _cancel_stuck(world)
        world.in_order()
        world.well()
        queue = world.queue()
        return queue is not None and all(
            state in FINAL_STATES for token, (_, state) in queue.items() if token in world.jobs
        )

    if wait_until(is_over, _patience(DRAIN_SECONDS)) is None:
        remaining = {t: s for t, s in (world.queue() or {}).items() if s[1] not in FINAL_STATES}
        leader = world.leader()
        status = (leader.ask("status") if leader else None) or {"waiting": []}
        reasons = [(row["id"], row["reason"]) for row in status["waiting"]][:5]
        text = f"{DRAIN_SECONDS:g} s after the last fault there are {remaining}: {reasons}"
        record.findings.append(Finding("waits beside idle GPUs", "", text))
    time.sleep(3.0)  # until hopsd's last poll
    for (name, _), usages in record.usages.items():
        (fds, memory), (last_fds, last_memory) = usages[min(1, len(usages) - 1)], usages[-1]
        if last_fds > fds + DESCRIPTORS_MORE or last_memory > memory * MEMORY_TIMES:
            text = f"{name}: {fds} to {last_fds} descriptors, {memory} to {last_memory} bytes"
            record.findings.append(Finding("grows", "", text))
    seconds = time.time() - min((job.submit_time for job in world.jobs.values()), default=began)
    for daemon in world.hopsd:
        lines = len(daemon.log.read_bytes().splitlines()) if daemon.log.exists() else 0
        if lines > LOG_LINES_A_SECOND * max(seconds, 1.0):
            record.findings.append(Finding("floods its log", "", f"{daemon.name}: {lines} lines"))


@dataclass(frozen=True, slots=True)
class Gaps:
    """The leader's longest gaps in seconds, between ticks and between ticks that planned: while
    everything hung, and during the minute before (``quiet_*``).
    """

    ticks: float
    plans: float
    quiet_ticks: float
    quiet_plans: float


def _cancel_stuck(world: World) -> list[Finding]:
    """Cancel the jobs that slurmctld will never update again, and return a finding for each."""
    slurm = SlurmLog.read(world.folder / "log" / "slurmctld.log")
    findings = []
    for token, (job, state) in (world.queue() or {}).items():
        if state == "PENDING" and token in world.jobs and slurm.refuses_updates(job):
            explanation = "slurmctld was killed while it asked slurmdbd for the job's index"
            text = f"job {job}: slurmctld refuses every update"
            findings.append(Finding("never updated", token, text, explanation))
            world.jobs[token].is_cancelled = True
            world.run("scancel", job)
    return findings


def longest_gaps(waits: Sequence[Wait], daemon_logs: Iterable[Path]) -> Gaps:
    """Longest gaps during any of ``waits``, according to the daemons' logs."""
    ticks: list[float] = []
    plans: list[float] = []
    for log in daemon_logs:
        for line in log.read_text(errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry.get("event") == "tick" and entry.get("mode") != "standby":
                    time = datetime.fromisoformat(entry["timestamp"]).timestamp()
                    ticks.append(time)
                    plans += [time] if entry["level"] == "info" else []
    return Gaps(
        ticks=max(_longest_gap(ticks, wait.start, wait.end) for wait in waits),
        plans=max(_longest_gap(plans, wait.start, wait.planned_until) for wait in waits),
        quiet_ticks=max(_longest_gap(ticks, wait.peace, wait.start) for wait in waits),
        quiet_plans=max(_longest_gap(plans, wait.peace, wait.start) for wait in waits),
    )


def _longest_gap(times: Iterable[float], since: float, until: float) -> float:
    times_between = sorted(at for at in times if since < at < until)
    return max(after - before for before, after in pairwise([since, *times_between, until]))


def tell(world: World, record: Record, findings: list[Finding], seed: int) -> None:
    runs = read_runs(world.records)
    lost_seconds, total = redone(world)
    faults = sum(record.fault_counts.values())
    print(f"seed {seed}: {faults} faults, {len(world.jobs)} jobs,")
    print(
        f"{sum(map(len, runs.values()))} runs;"
        f" {lost_seconds:.0f} of {total:.0f} s of work done twice;"
    )
    print(f"{record.seconds / max(1, faults):.1f} s a fault, looks included;")
    slowest = max(record.recoveries, default=0.0)
    print(f"well again after {slowest:.1f} s at the latest ({len(record.recoveries)} looks)")
    if world.waits:
        gaps = longest_gaps(world.waits, [daemon.log for daemon in world.hopsd])
        print(
            f"with every wait at once, {len(world.waits)} times: longest gap between two ticks"
            f" {gaps.ticks:.1f} s, between two plans {gaps.plans:.1f} s; in the quiet minute before"
            f" {gaps.quiet_ticks:.1f} and {gaps.quiet_plans:.1f} s"
        )
    print("  ".join(f"{name} {count}" for name, count in sorted(record.fault_counts.items())))
    violations = [finding for finding in findings if not finding.explanation]
    print(f"{len(violations)} violations, {len(findings) - len(violations)} explained")
    for finding in sorted(findings, key=lambda f: (bool(f.explanation), f.kind)):
        explanation = f" [{finding.explanation}]" if finding.explanation else ""
        print(f"- {finding.kind} {finding.token}: {finding.text}{explanation}")


if __name__ == "__main__":
    sys.exit(main())
