"""`hopsctl import-runs`: imports run times of earlier jobs from Slurm's accounting."""

from __future__ import annotations

from pathlib import Path

import click

from hopsd.config import load
from hopsd.ctl.config_file import config_option
from hopsd.ctl.study.progress_bar import ProgressBar
from hopsd.ctl.terminal import say
from hopsd.slurm.accounting.past_runs import read_past_runs
from hopsd.slurm.command import SlurmCommands
from hopsd.store.postgres import PostgresStore

PATIENCE = 600.0
"""Timeout of sacct in seconds: slurmdbd may have to search millions of jobs."""

AT_ONCE = 1000
"""Number of records in one transaction."""


@click.command("import-runs")
@config_option
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    help="How far back; by default for as long as hops keeps jobs.",
)
@click.option("--dry-run", is_flag=True, help="Count, store nothing.")
def import_runs(path: Path, days: int | None, dry_run: bool) -> None:
    """Learn how long each user's jobs ran, so that the first ones under hops can be predicted.

    Reads jobs with GPUs that have ended from sacct. Those that hops knows are left as they are, so
    the command may be repeated.

    \b
    Examples:
      hopsctl import-runs --dry-run
      hopsctl import-runs --days 90
    """
    config = load(path)
    retention = int(max(1.0, config.database.retention_days))
    with ProgressBar("Slurm's accounting"):
        past_runs = read_past_runs(SlurmCommands(PATIENCE), min(days or retention, retention))
    with PostgresStore(config.database.dsn) as store, ProgressBar("store", "jobs") as bar:
        new = [record for record in past_runs if store.job(record.id) is None]
        if not dry_run:
            for first in range(0, len(new), AT_ONCE):
                bar.show(first, len(new))
                store.save_jobs(new[first : first + AT_ONCE])
    users = len({record.user for record in new})
    verb = "would be stored" if dry_run else "stored"
    say(f"{len(new)} past runs of {users} users {verb}; hops knew {len(past_runs) - len(new)}")
