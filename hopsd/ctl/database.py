"""`hopsctl migrate`: bring the database's schema up to date, or back."""

from __future__ import annotations

from pathlib import Path

import click

from hopsd.config import DEFAULT_PATH, load
from hopsd.store.migrate import migrate as run
from hopsd.store.migrate import pending


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_PATH,
    show_default=True,
    help="Where the database's dsn is read from.",
)
@click.option("--dsn", help="The database, instead of the configuration's.")
@click.option(
    "--back",
    type=click.IntRange(min=1),
    metavar="N",
    help="Undo the newest N migrations, with the data in their tables.",
)
@click.option("--check", is_flag=True, help="Only tell what is to be applied; 1 if anything is.")
@click.pass_context
def migrate(
    context: click.Context, path: Path, dsn: str | None, back: int | None, check: bool
) -> None:
    """Bring the schema to this release. Stop hopsd before going back."""
    dsn = load(path).database.dsn if dsn is None else dsn
    if check:
        missing = pending(dsn)
        print("\n".join(f"to apply: {name}" for name in missing) or "up to date")
        context.exit(1 if missing else 0)
    done = run(dsn, back=back or 0)
    word = "rolled back" if back else "applied"
    print("\n".join(f"{word}: {name}" for name in done) or "up to date")
