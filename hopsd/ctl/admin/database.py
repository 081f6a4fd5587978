"""`hopsctl migrate`: brings the database's schema up to date, or back."""

from __future__ import annotations

from pathlib import Path

import click

from hopsd.config import load
from hopsd.ctl.config_file import config_option
from hopsd.store.migrate import back_to, pending
from hopsd.store.migrate import migrate as run


@click.command()
@config_option
@click.option("--dsn", help="The database, instead of the configuration's.")
@click.option(
    "--back",
    "steps_back",
    type=click.IntRange(min=1),
    metavar="N",
    help="Undo the newest N migrations, with the data in their tables.",
)
@click.option(
    "--to",
    "target",
    metavar="NAME",
    help="Undo all migrations after this one, such as 0012.reporters, with their data.",
)
@click.option(
    "--check", is_flag=True, help="Only list pending migrations; exit code 1 if there are any."
)
@click.pass_context
def migrate(
    context: click.Context,
    path: Path,
    dsn: str | None,
    steps_back: int | None,
    target: str | None,
    check: bool,
) -> None:
    """Bring the schema to this release. Stop hopsd before going back.

    \b
    Examples:
      hopsctl migrate --check
      hopsctl migrate
      hopsctl migrate --back 1
    """
    if target is not None and steps_back is not None:
        raise click.UsageError("--back and --to: give one of them")
    dsn = load(path).database.dsn if dsn is None else dsn
    if check:
        missing = pending(dsn)
        print("\n".join(f"to apply: {name}" for name in missing) or "up to date")
        context.exit(1 if missing else 0)
    migrations = run(dsn, undo_count=steps_back or 0) if target is None else back_to(dsn, target)
    word = "applied" if steps_back is None and target is None else "rolled back"
    print("\n".join(f"{word}: {name}" for name in migrations) or "up to date")
