"""The --config option of commands that read hopsd.toml."""

from __future__ import annotations

from pathlib import Path

import click

from hopsd.config import DEFAULT_PATH

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_PATH,
    show_default=True,
    help="The configuration file.",
)
