"""``python -m hops_profiler.lane [options] trials.txt``: see docs/users.md."""

from __future__ import annotations

import sys

from hops_profiler import startup
from hops_profiler.lane.lane import Lane
from hops_profiler.lane.settings import parse
from hops_profiler.lane.trials import Journal, TrialsError, read_trials
from hops_profiler.launch.launch_place import find_place
from hops_profiler.launch.preload import preload
from hops_profiler.launch.streams import open_closed


def main() -> None:
    """Run the trials that have not ended; exit with 0 once all have succeeded."""
    open_closed()
    settings = parse()
    startup.suspend()  # the trials train, not the lane
    try:
        trials = read_trials(settings.trials)
        settings.output.mkdir(parents=True, exist_ok=True)
        journal = Journal(settings.output / "journal")
    except (TrialsError, OSError) as error:
        sys.exit(f"hops-lane: {error}")
    place = find_place()
    if place.nodes > 1:
        sys.exit("hops-lane: a lane runs on one node: submit it with --nodes=1")
    reason = preload()
    if reason:
        sys.exit(f"hops-lane: no trial can be forked: {reason}")
    sys.exit(Lane(settings, trials, journal, place.gpus).run())


if __name__ == "__main__":
    main()
