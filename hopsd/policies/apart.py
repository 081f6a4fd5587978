"""Makes plans in a separate process, which blocks nobody and can be killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence

from hopsd.errors import HopsError
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.registry import get

NICENESS = 5


def plans_apart(
    settings: PlanSettings, snapshots: Sequence[Snapshot], seconds: float
) -> tuple[Plan, ...]:
    """Plan each snapshot with the policy of ``settings``, all of them within ``seconds``.

    Raises:
        HopsError: if planning took longer, so the process was killed; or if it failed.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "hopsd.policies.apart"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that killpg ends the solver's processes, too
    ) as process:
        try:
            output, wrong = process.communicate(pickle.dumps((settings, tuple(snapshots))), seconds)
        except subprocess.TimeoutExpired:
            raise HopsError(f"not planned within {seconds:g} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        last = wrong.decode(errors="replace").strip().rpartition("\n")[2]
        raise HopsError(f"planning failed: {last or f'status {process.returncode}'}")
    plans: tuple[Plan, ...] = pickle.loads(output)  # noqa: S301 - from our own process
    return plans


def main() -> None:
    """Read snapshots from standard input and write plans to standard output."""
    os.nice(NICENESS)
    settings, snapshots = pickle.load(sys.stdin.buffer)  # noqa: S301 - from hopsd alone
    policy = get(settings.policy)
    pickle.dump(tuple(policy(snapshot, settings) for snapshot in snapshots), sys.stdout.buffer)


if __name__ == "__main__":
    main()
