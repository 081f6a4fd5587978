"""hopsctl: shows every user what is going on and why.

Exit codes: 0 done, 1 failed, 2 bad input, 3 the comment is not ours, 4 hopsd is not reachable.
"""

from __future__ import annotations

import importlib
import sys
from typing import cast

import click

from hopsd import __version__
from hopsd.ctl.terminal import complain
from hopsd.errors import HopsError, InputError

COMMANDS = {
    "status": "hopsd.ctl.status:status",
    "explain": "hopsd.ctl.status:explain",
    "plan": "hopsd.ctl.plan:plan",
    "calibrate": "hopsd.ctl.calibrate:calibrate",
    "check": "hopsd.ctl.check:check",
    "comment": "hopsd.ctl.comment:comment",
    "config": "hopsd.ctl.config:config",
    "estimate": "hopsd.ctl.estimate:estimate",
    "simulate": "hopsd.ctl.simulate:simulate",
    "import-runs": "hopsd.ctl.past_runs:import_runs",
    "throughput": "hopsd.ctl.throughput:throughput",
    "pause": "hopsd.ctl.control:pause",
    "resume": "hopsd.ctl.control:resume",
    "release": "hopsd.ctl.control:release",
    "setup": "hopsd.ctl.setup:setup",
    "migrate": "hopsd.ctl.database:migrate",
}


class LazyGroup(click.Group):
    """Imports a command when it is called: `hopsctl comment` need not wait for numpy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command = getattr(importlib.import_module(module), name)
        return cast(click.Command, command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(f"no command {args[0]!r}; accepted: {', '.join(sorted(COMMANDS))}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="hopsctl")
def cli() -> None:
    """Show what hops does and why; plan and simulate from files."""


def main() -> None:
    """Entry point: an error of hops or of a file becomes one line on stderr and its exit code."""
    try:
        cli(prog_name="hopsctl")
    except HopsError as error:
        complain(error)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        complain(f"{place}{error.strerror or error}")
        sys.exit(1)
