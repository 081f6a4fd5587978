"""``python -m bench.chaos --faults N --seed S``: what happens, how long, and what it broke."""

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
from bench.chaos.world import Wait, World, wait_until, world

JOBS_AT_A_TIME = 8
AT_A_TIME = 2
LOOK_EVERY = 10
"""Faults, after which all are taken back and hops must be well again."""
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")
ORDER = {"state": 0, "slurmctld": 1, "database": 2}
REPAIR_SECONDS = 120.0
RECOVERY_SECONDS = 60.0
BUSY_AT_MOST = 5.0
DRAIN_SECONDS = 300.0
DESCRIPTORS_MORE = 25
MEMORY_TIMES = 1.6
LOG_LINES_A_SECOND = 20.0


@dataclass(slots=True)
class Seen:
    """What was measured while it went on."""

    recoveries: list[float] = field(default_factory=list)
    usages: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    """From the first fault to the last look, without the jobs' ends."""


@dataclass(slots=True)
class Lasting:
    kind: Kind
    harm: Iterator[float]
    until: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="these kinds alone")
    parser.add_argument("--refresh", type=float, default=1.0, help="hopsd's refresh_seconds")
    parser.add_argument("--keep", type=Path, help="logs and records are copied there")
    options = parser.parse_args()
    with world(options.refresh) as new_world:
        summary = torment(new_world, options.faults, Random(options.seed), options.only)
        findings = summary.findings + judge(new_world)
        tell(new_world, summary, findings, options.seed)
        if options.keep is not None:
            new_world.keep(options.keep)
    return int(any(not finding.explained for finding in findings))


def torment(world: World, faults: int, rng: Random, only: list[str] | None = None) -> Seen:
    """Let so many faults happen, then leave all in peace until every job has ended."""
    summary = Seen()
    jobs = Random(rng.random())  # how many jobs there are changes nothing of what happens to them
    for daemon in world.hopsd:
        daemon.start()
    wait_until(world.well, RECOVERY_SECONDS)
    lasting: list[Lasting] = []
    kinds = _drawn(Random(rng.random()), only)
    began_at = time.monotonic()
    for number, kind in zip(range(faults), kinds, strict=False):
        _top_up(world, jobs)
        _take_back(lasting, [one for one in lasting if kind.touches & one.kind.touches])
        harm = kind.harm(world, rng)
        began = time.time()
        seconds = next(harm, None)
        print(f"{began:.1f} {number} {kind.name}", file=sys.stderr, flush=True)
        if seconds is not None:
            summary.happened[kind.name] += 1
            lasting.append(Lasting(kind, harm, time.monotonic() + seconds))
        time.sleep(rng.uniform(0.2, 4.0))
        _take_back(lasting, [one for one in lasting if time.monotonic() >= one.until])
        if number % LOOK_EVERY == LOOK_EVERY - 1:
            _take_back(lasting, lasting)
            _look(world, summary)
        elif len(lasting) > AT_A_TIME:
            _take_back(lasting, [min(lasting, key=lambda one: one.until)])
    _take_back(lasting, lasting)
    _look(world, summary)
    summary.seconds = time.monotonic() - began_at
    _drain(world, summary)
    return summary


def _drawn(rng: Random, only: list[str] | None) -> Iterator[Kind]:
    """Without end; of one seed always the same. Each kind once before any comes again."""
    kinds = [kind for kind in FAULTS if not only or kind.name in only]
    while True:
        yield from rng.sample(kinds, len(kinds))


def _top_up(made: World, rng: Random) -> None:
    queue = made.queue()
    if queue is None:
        return
    open_jobs = sum(state in ("PENDING", "RUNNING", "SUSPENDED") for _, state in queue.values())
    for _ in range(min(3, JOBS_AT_A_TIME - open_jobs)):
        made.submit(rng)


def _urgency(kind: Kind) -> int:
    return min((ORDER[thing] for thing in kind.touches if thing in ORDER), default=len(ORDER))


def _take_back(lasting: list[Lasting], ending: Iterable[Lasting]) -> None:
    """Wait until each of ``ending`` has lasted its time, and take it back."""
    # Without the urgent ones nothing else can be taken back.
    for one in sorted(ending, key=lambda one: _urgency(one.kind)):
        time.sleep(max(0.0, one.until - time.monotonic()))
        next(one.harm, None)
        lasting.remove(one)


def _patience(seconds: float) -> float:
    """Nothing starts as fast where many others want the processors."""
    return seconds * min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), BUSY_AT_MOST)


def _look(made: World, seen: Seen) -> None:
    """All faults are taken back: hops must be well soon, and not have grown."""
    if wait_until(made.in_order, _patience(REPAIR_SECONDS)) is None:
        raise RuntimeError(f"the bench cannot mend its own cluster; left to do: {[*made.owed]}")
    patience = _patience(RECOVERY_SECONDS)
    took = wait_until(made.well, patience)
    if took is None:
        text = "; ".join(made.told())
        seen.findings.append(Finding("no recovery", "", f"after {patience:.0f} s: {text}"))
    else:
        seen.recoveries.append(took)
    for daemon in made.hopsd:
        usage = daemon.usage()
        if usage is not None and daemon.process is not None:
            seen.usages.setdefault((daemon.name, daemon.process.pid), []).append(usage)


def _drain(made: World, seen: Seen) -> None:
    made.resume()
    for hold in made.holds:  # whose release slurmctld may have lost, and so for a cancel
        made.insist(made.jobs[hold.token], "scontrol", "release")
    for job in made.jobs.values():
        if job.cancelled:
            made.run("scancel", job.id)
    for job in made.suspended:
        # A killed slurmctld may have forgotten it, and refuses to resume the job; its slurmstepd
        # has not, and refuses any signal. Both know one that is suspended once more.
        if made.run("scontrol", "suspend", job.id) is not None:
            made.insist(job, "scontrol", "resume")
    began = time.time()

    def over() -> bool:
        made.in_order()
        made.well()
        queue = made.queue()
        return queue is not None and all(
            state in ENDED for token, (_, state) in queue.items() if token in made.jobs
        )

    if wait_until(over, _patience(DRAIN_SECONDS)) is None:
        remaining = {t: s for t, s in (made.queue() or {}).items() if s[1] not in ENDED}
        leader = made.leader()
        status = (leader.ask("status") if leader else None) or {"waiting": []}
        reasons = [(row["id"], row["reason"]) for row in status["waiting"]][:5]
        text = f"{DRAIN_SECONDS:g} s after the last fault there are {remaining}: {reasons}"
        seen.findings.append(Finding("waits beside idle GPUs", "", text))
    time.sleep(3.0)  # hops' own last look
    for (name, _), usages in seen.usages.items():
        (fds, memory), (last_fds, last_memory) = usages[min(1, len(usages) - 1)], usages[-1]
        if last_fds > fds + DESCRIPTORS_MORE or last_memory > memory * MEMORY_TIMES:
            text = f"{name}: {fds} to {last_fds} descriptors, {memory} to {last_memory} bytes"
            seen.findings.append(Finding("grows", "", text))
    seconds = time.time() - min((job.at for job in made.jobs.values()), default=began)
    for daemon in made.hopsd:
        lines = len(daemon.log.read_bytes().splitlines()) if daemon.log.exists() else 0
        if lines > LOG_LINES_A_SECOND * max(seconds, 1.0):
            seen.findings.append(Finding("floods its log", "", f"{daemon.name}: {lines} lines"))


def longest_gaps(waits: Sequence[Wait], daemon_logs: Iterable[Path]) -> tuple[float, float, float]:
    """Seconds between two ticks of a leader before all hung and while it did, and between two that
    planned meanwhile.
    """
    ticks: list[float] = []
    plans: list[float] = []
    for log in daemon_logs:
        for line in log.read_text(errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry.get("event") == "tick" and entry.get("mode") != "standby":
                    at = datetime.fromisoformat(entry["timestamp"]).timestamp()
                    ticks.append(at)
                    plans += [at] if entry["level"] == "info" else []
    return (
        max(_longest_gap(ticks, wait.peace, wait.begun) for wait in waits),
        max(_longest_gap(ticks, wait.begun, wait.ended) for wait in waits),
        max(_longest_gap(plans, wait.begun, wait.planned_until) for wait in waits),
    )


def _longest_gap(times: Iterable[float], since: float, until: float) -> float:
    times_between = sorted(at for at in times if since < at < until)
    return max(after - before for before, after in pairwise([since, *times_between, until]))


def tell(made: World, seen: Seen, findings: list[Finding], seed: int) -> None:
    runs = read_runs(made.records)
    lost, total = redone(made)
    print(f"seed {seed}: {sum(seen.happened.values())} faults, {len(made.jobs)} jobs,")
    print(f"{sum(map(len, runs.values()))} runs; {lost:.0f} of {total:.0f} s of work done twice;")
    slowest = max(seen.recoveries, default=0.0)
    each = seen.seconds / max(1, sum(seen.happened.values()))
    print(f"{each:.1f} s a fault, looks included;")
    print(f"well again after {slowest:.1f} s at the latest ({len(seen.recoveries)} looks)")
    if made.waits:
        peace, ticks, plans = longest_gaps(made.waits, [daemon.log for daemon in made.hopsd])
        print(
            f"with every wait at once, {len(made.waits)} times: longest gap between two ticks"
            f" {ticks:.1f} s, between two plans {plans:.1f} s; just before, without any, between"
            f" two ticks {peace:.1f} s"
        )
    print("  ".join(f"{name} {count}" for name, count in sorted(seen.happened.items())))
    unexplained = [finding for finding in findings if not finding.explained]
    print(f"{len(unexplained)} violations, {len(findings) - len(unexplained)} explained")
    for finding in sorted(findings, key=lambda f: (bool(f.explained), f.kind)):
        explanation = f" [{finding.explained}]" if finding.explained else ""
        print(f"- {finding.kind} {finding.token}: {finding.text}{explanation}")


if __name__ == "__main__":
    sys.exit(main())
