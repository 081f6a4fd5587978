"""hopsctl: shows every user what is going on and why.

Exit codes: 0 done, 1 failed, 2 bad input, 3 not a comment for hops, 4 hopsd is not reachable.
"""

from __future__ import annotations

import importlib
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, cast

import click

from hopsd import __version__
from hopsd.ctl.terminal import complain
from hopsd.errors import HopsError, InputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "calibrate": ("hopsd.ctl.admin.calibrate:calibrate", "Measure the links between GPUs."),
    "check": ("hopsd.ctl.user.check:check", "What hops would do with a script, and where."),
    "comment": ("hopsd.ctl.user.comment:comment", "Check the text of a job's comment."),
    "completion": ("hopsd.ctl.shell.completion:completion", "Let bash, zsh or fish complete."),
    "config": ("hopsd.ctl.admin.config:config", "Check, show or explain hopsd.toml."),
    "estimate": ("hopsd.ctl.study.estimate:estimate", "Throughput by the paper's equations."),
    "explain": ("hopsd.ctl.user.status:explain", "Why a job runs where it runs, or waits."),
    "health": ("hopsd.ctl.admin.health:health", "Slow servers, and servers that break jobs."),
    "import-runs": (
        "hopsd.ctl.admin.past_runs:import_runs",
        "Learn run times from Slurm's accounting.",
    ),
    "migrate": ("hopsd.ctl.admin.database:migrate", "Bring the database's schema to this release."),
    "notify": ("hopsd.ctl.user.notify:notify", "What you are told by mail."),
    "pause": ("hopsd.ctl.admin.control:pause", "Leave everything to Slurm."),
    "plan": ("hopsd.ctl.study.plan:plan", "Plan once from a snapshot file."),
    "release": ("hopsd.ctl.admin.control:release", "Give held jobs to plain Slurm."),
    "report": ("hopsd.ctl.history.report:report", "How the GPUs were used, who waited how long."),
    "resume": ("hopsd.ctl.admin.control:resume", "Schedule again after a pause."),
    "sequence": ("hopsd.ctl.study.sequence:sequence", "The order of turns in a lane."),
    "setup": ("hopsd.ctl.admin.setup:setup", "Put hops in place on a controller, or take it back."),
    "shadow": (
        "hopsd.ctl.history.shadow:shadow",
        "What hops would have done instead of Slurm.",
    ),
    "simulate": ("hopsd.ctl.study.simulate:simulate", "Simulate a workload under policies."),
    "status": ("hopsd.ctl.user.status:status", "The cluster, what runs, what waits and why."),
    "top": ("hopsd.ctl.user.top:top", "The cluster on the whole screen."),
    "throughput": ("hopsd.ctl.user.throughput:throughput", "How fast known trainings run, where."),
    "when": ("hopsd.ctl.user.when:when", "When a script would start if it were submitted now."),
    "what-if": ("hopsd.ctl.study.what_if:what_if", "Past weeks under other policies."),
}
"""Import path of each command, and its description in the list of commands."""


class LazyGroup(click.Group):
    """Imports commands only when called, so that `hopsctl comment` need not wait for numpy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), name)
        return cast(click.Command, command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - rarely needed

        matches = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=COMMANDS[name][1]) for name in matches]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

            similar = get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {similar[0]!r}? " if similar else ""
            ctx.fail(f"no command {args[0]!r}; {hint}`hopsctl --help` lists all of them")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="hopsctl")
def cli() -> None:
    """Show what hops does and why; plan and simulate from files.

    \b
    Examples:
      hopsctl status
      hopsctl explain 17
      hopsctl COMMAND --help
    """


def main() -> None:
    """Entry point: turns errors of hops or of a file into lines on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names may have characters that the locale lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="hopsctl")
    except HopsError as error:
        complain(error)
        _advise(error)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        complain(f"{place}{error.strerror or error}")
        _advise(error)
        sys.exit(1)


def _advise(error: Exception) -> None:
    from hopsd.ctl.terminal import advice  # noqa: PLC0415 - only needed for errors

    if text := advice(error):
        complain(text)
