"""`hopsd [--config FILE]`: the daemon in the foreground, for systemd or a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hopsd import __version__
from hopsd.config import DEFAULT_PATH
from hopsd.ctl.terminal import complain
from hopsd.errors import HopsError, InputError


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path), default=DEFAULT_PATH)
@click.version_option(__version__, prog_name="hopsd")
def hopsd(path: Path) -> None:
    """Schedule deep learning jobs on this Slurm cluster."""
    from hopsd.service.daemon import Daemon  # noqa: PLC0415 - --help must not wait for numpy

    Daemon(path).run()


def main() -> None:
    """Run hopsd. Exit codes: 0 stopped by a signal, 1 cannot run, 2 bad configuration."""
    try:
        hopsd(prog_name="hopsd")
    except HopsError as error:
        complain(error, "hopsd")
        sys.exit(2 if isinstance(error, InputError) else 1)


if __name__ == "__main__":
    main()
