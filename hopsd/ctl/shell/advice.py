"""What to do next after an error whose message only says what happened."""

from __future__ import annotations

from hopsd.errors import SlurmUnavailableError, StoreUnavailableError
from hopsd.local_socket import UnreachableError

ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (
        UnreachableError,
        "`systemctl status hopsd` says whether it runs; --socket or HOPS_SOCKET names its socket",
    ),
    (
        StoreUnavailableError,
        "`systemctl status postgresql` says whether it runs; database.dsn in hopsd.toml names it",
    ),
    (SlurmUnavailableError, "`scontrol ping` says whether slurmctld answers on this machine"),
    (PermissionError, "try again as root, or as the account that hopsd runs as"),
)


def advice(error: Exception) -> str | None:
    """A line for whoever sees ``error``; None: its message says all there is to say."""
    return next((text for kind, text in ADVICE if isinstance(error, kind)), None)
