"""Generates man pages from the commands: ``python -m hopsd.ctl.shell.manual FOLDER``.

There is one page for hopsctl with all its commands, and one each for hopsd, hopsd.toml, hops-run
and hops-lane, in groff's man(7) language.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

import click

from hopsd import __version__
from hopsd.config.option import options
from hopsd.config.reference import tables, toml_value
from hopsd.config.schema import SECTIONS

BLOCK = "\b"
"""Click's mark before a paragraph that is not rewrapped."""
Paths = tuple[tuple[str, str], ...]

FILES: Paths = (
    ("/etc/hops/hopsd.toml", "The configuration: hopsd.toml(5)."),
    ("/run/hops/hopsd.sock", "The socket on which hopsd answers."),
)
EXIT_CODES: Paths = (
    ("0", "Done."),
    ("1", "Failed."),
    ("2", "Bad input: a command line, a file or a name."),
    ("3", "The comment, or the script, is not one for hops."),
    ("4", "hopsd is not reachable."),
    ("130", "Interrupted."),
)
ENVIRONMENT: Paths = (
    ("HOPS_SOCKET", "The daemon's socket, instead of /run/hops/hopsd.sock."),
    ("NO_COLOR", "If set, nothing is coloured."),
    ("COLUMNS", "The width of tables, if the terminal does not report it."),
)


@dataclass(frozen=True, slots=True)
class Help:
    """A command's help, in parts: text, then examples, then the sentence on its exit codes."""

    text: tuple[str, ...]
    examples: tuple[str, ...]
    """Lines as they are typed; a line that continues on the next one ends with a backslash."""
    exit_codes: str


def help_of(command: click.Command) -> Help:
    """Split ``command``'s help into its parts."""
    text: list[str] = []
    examples: tuple[str, ...] = ()
    codes = ""
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith(BLOCK):
            lines = [line for line in paragraph.splitlines()[1:] if not line.startswith("Example")]
            examples = tuple(line[2:] for line in lines)
        elif paragraph.startswith("Exit codes:"):
            codes = " ".join(paragraph.split())
        else:
            text.append(" ".join(paragraph.split()))
    return Help(tuple(text), examples, codes)


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command below ``group`` with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        elif command is not None:
            yield before + name, command


def escape(text: str) -> str:
    """Escape ``text`` so that roff prints it verbatim."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.split("\n"))


def page(name: str, section: int, summary: str, parts: Iterable[str]) -> str:
    """Assemble a page with its header; ``summary`` describes it in half a line."""
    head = [
        f'.TH "{name.upper()}" "{section}" "" "hops {__version__}" "hops"',
        ".nh\n.ad l",  # no hyphenation or justification, so that options can be copied
        heading("NAME"),
        f"{escape(name)} \\- {escape(summary)}",
    ]
    return "\n".join([*head, *parts]) + "\n"


def heading(text: str) -> str:
    return f'.SH "{text}"'


def paragraph(text: str) -> str:
    return ".PP\n" + escape(text)


def entries(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Format names in bold, each with its description."""
    for name, text in pairs:
        quoted_name = escape(name).replace('"', "\\(dq")  # a bare quote would end the argument
        yield f'.TP\n.B "{quoted_name}"\n{escape(text)}'


def as_typed(lines: Sequence[str]) -> str:
    return ".PP\n.nf\n.RS 4\n" + "\n".join(map(escape, lines)) + "\n.RE\n.fi"


def _options(command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    options = [param for param in command.params if isinstance(param, click.Option)]
    records = [option.get_help_record(context) for option in options]
    return entries([record for record in records if record is not None])


def _command(words: str, command: click.Command) -> Iterator[str]:
    """Format a command's section of the page."""
    help_text = help_of(command)
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    yield f'.SS "hopsctl {escape(words)} {escape(usage)}"'
    yield from map(paragraph, help_text.text)
    yield from _options(command)
    if help_text.examples:
        yield as_typed(help_text.examples)
    if help_text.exit_codes:
        yield paragraph(help_text.exit_codes)


def hopsctl() -> str:
    from hopsd.ctl import cli  # noqa: PLC0415 - hopsd.ctl finds its commands by name

    parts = [
        heading("SYNOPSIS"),
        ".B hopsctl\nCOMMAND [OPTIONS] [ARGUMENT]...",
        heading("DESCRIPTION"),
        *map(paragraph, help_of(cli).text),
        paragraph(
            "Output for people is formatted for 80 columns; --json, where available, is for"
            " programs."
        ),
        heading("COMMANDS"),
    ]
    for words, command in commands(cli):
        parts += _command(words, command)
    parts += [
        heading("EXIT STATUS"), *entries(EXIT_CODES),
        heading("ENVIRONMENT"), *entries(ENVIRONMENT),
        heading("FILES"), *entries(FILES),
        heading("SEE ALSO"), ".BR hopsd (8), hopsd.toml (5), hops\\-run (1), sbatch (1)",
    ]  # fmt: skip
    return page("hopsctl", 1, "what hops does with a cluster's jobs, and why", parts)


def hopsd() -> str:
    command = import_module("hopsd.__main__").hopsd
    return page("hopsd", 8, "schedules deep learning jobs on a Slurm cluster", [
        heading("SYNOPSIS"), ".B hopsd\n[OPTIONS]",
        heading("DESCRIPTION"), *map(paragraph, help_of(command).text),
        heading("OPTIONS"), *_options(command),
        heading("SIGNALS"),
        *entries([
            ("SIGTERM, SIGINT", "Stop when the current tick has ended. Jobs keep running."),
            ("SIGHUP", "Read hopsd.toml again; an invalid one is reported, and not used."),
        ]),
        heading("EXIT STATUS"),
        *entries([("0", "Stopped by a signal."), ("1", "It cannot run."), ("2", "Bad input.")]),
        heading("FILES"), *entries(FILES),
        heading("SEE ALSO"), ".BR hopsctl (1), hopsd.toml (5), slurmctld (8)",
    ])  # fmt: skip


def hopsd_toml() -> str:
    parts = [
        heading("DESCRIPTION"),
        paragraph(
            "A TOML file, by default /etc/hops/hopsd.toml. Each setting has a default; the file"
            " has those of the site. `hopsctl config check` reports what is wrong in it,"
            " `hopsctl config show` what is in force; `systemctl reload hopsd` loads it."
        ),
        heading("SETTINGS"),
    ]
    for section, kind in SECTIONS.items():
        parts += [f'.SS "[{section}]"', paragraph(" ".join((kind.__doc__ or "").split()))]
        parts += entries(
            (
                f"{option.key} = {toml_value(option.plain(option.default))}",
                f"{option.doc} Accepted: {option.accepted_values}.",
            )
            for option in options(kind)
        )
    parts.append(heading("TABLES"))
    for text in tables():
        lines = [line.removeprefix("#") for line in text.strip().splitlines()]
        toml = next(i for i, line in enumerate(lines) if line.startswith("["))
        parts += [paragraph(" ".join(" ".join(lines[:toml]).split())), as_typed(lines[toml:])]
    parts += [heading("SEE ALSO"), ".BR hopsd (8), hopsctl (1)"]
    return page("hopsd.toml", 5, "configuration of hopsd", parts)


def launcher(parser: argparse.ArgumentParser, examples: Sequence[str]) -> str:
    """Make the page of a program with an argparse parser."""
    usage = parser.format_usage().removeprefix("usage: ").removeprefix(parser.prog)
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS]
    pairs = []
    for action in actions:
        names = ", ".join(name for name in action.option_strings if "_" not in name)
        value = action.metavar if action.nargs != 0 else None
        pairs.append((f"{names} {value or ''}".strip(), action.help or ""))
    return page(parser.prog, 1, (parser.description or "").rstrip(".").lower(), [
        heading("SYNOPSIS"), f".B {escape(parser.prog)}\n{escape(' '.join(usage.split()))}",
        heading("DESCRIPTION"), paragraph(f"{parser.description} {parser.epilog}"),
        heading("OPTIONS"), *entries([(name, help_text) for name, help_text in pairs if help_text]),
        heading("ENVIRONMENT"),
        *entries([("PYTHON", "The interpreter with PyTorch; by default python3.")]),
        heading("EXAMPLES"), as_typed(examples),
        heading("SEE ALSO"), ".BR hopsctl (1), sbatch (1), srun (1)",
    ])  # fmt: skip


def pages() -> dict[str, str]:
    """Generate all pages by file name."""
    run = import_module("hops_profiler.launch.options").parser_of({})
    lane = import_module("hops_profiler.lane.settings").parser()
    return {
        "hopsctl.1": hopsctl(),
        "hopsd.8": hopsd(),
        "hopsd.toml.5": hopsd_toml(),
        "hops-run.1": launcher(
            run, ["hops-run train.py --lr 0.1", "hops-run --nproc-per-node 2 -m my.training"]
        ),
        "hops-lane.1": launcher(lane, ["hops-lane trials.txt", "hops-lane --width 4 trials.txt"]),
    }


def main() -> None:
    """Write all pages into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
