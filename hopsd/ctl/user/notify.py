"""`hopsctl notify`: chooses what a user is told by mail."""

from __future__ import annotations

import click

from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask_daemon, socket_option
from hopsd.ctl.render import show_json
from hopsd.ctl.terminal import say
from hopsd.errors import InputError

KINDS = {
    "done": "a job completed",
    "failed": "a job failed, reached its time limit or lost its node",
    "fewer": "a job runs on fewer GPUs than before",
    "stuck": "a job has waited long for a limit, or cannot run anywhere",
}
WORDS = (*KINDS, "all", "none", "default")


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(WORDS), metavar="[KIND]...")
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the document for programs.")
def notify(kinds: tuple[str, ...], path: Address, as_json: bool) -> None:
    """Show what hops tells you about your jobs by mail; with KINDs, change it.

    KIND is done, failed, fewer (GPUs than before), stuck, all, none, or default: for each job what
    its sbatch asked for by --mail-type. Mails go to the job's --mail-user, or to you.

    \b
    Examples:
      hopsctl notify
      hopsctl notify failed stuck
      hopsctl notify default

    Exit codes: 0 done, 2 no such kind, 4 hopsd is not reachable.
    """
    if kinds:
        answer = ask_daemon(path, "set_notify", kinds=_kinds(kinds))
    else:
        answer = ask_daemon(path, "notify")
    if as_json:
        show_json(answer)
        return
    if answer["kinds"] is None:
        say("By mail: what each job's sbatch asked for by --mail-type (default)")
    else:
        say(f"By mail: {', '.join(answer['kinds']) or 'nothing'}")
    if not answer["mails"]:
        say("hops sends no mails here: notify.mail is not set in hopsd.toml")


def _kinds(words: tuple[str, ...]) -> list[str] | None:
    alone = {"all": list(KINDS), "none": [], "default": None}
    if len(words) == 1 and words[0] in alone:
        return alone[words[0]]
    if not set(words) <= set(KINDS):
        raise InputError(
            f"{', '.join(alone)} must stand alone; only {', '.join(KINDS)} can be combined"
        )
    return list(words)
