"""Decides who gets a mail about a job, and where: by the user's setting, else sbatch's options."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hopsd.errors import SlurmError
from hopsd.notify.news import DONE, FAILED, FEWER, KINDS, STUCK, News
from hopsd.slurm.command import SlurmCommands

_SLURM_TYPES: Mapping[str, Collection[str]] = {
    "ALL": KINDS,
    "BEGIN": (STUCK,),
    "END": (DONE, FAILED),
    "FAIL": (FAILED, STUCK),
    "REQUEUE": (FEWER,),
    "TIME_LIMIT": (FAILED,),
}
"""The kinds of news for a user who asked for this type by ``sbatch --mail-type``."""

_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?")
"""Excludes options of a mail program, a second recipient, and headers."""


@dataclass(frozen=True, slots=True)
class MailWish:
    """A job's ``sbatch --mail-type`` and ``--mail-user``; ``address`` is "" if not given."""

    kinds: frozenset[str] = frozenset()
    address: str = ""


def read_mail_wish(commands: SlurmCommands, job: str) -> MailWish:
    """Read a job's wish from Slurm; empty if Slurm no longer knows the job or does not answer."""
    try:
        record = commands.run("scontrol", "show", "job", job)
    except SlurmError:
        return MailWish()
    fields = dict(re.findall(r"\b(MailType|MailUser)=(\S+)", record))
    types = fields.get("MailType", "").split(",")
    kinds = frozenset(kind for name in types for kind in _SLURM_TYPES.get(name, ()))
    address = fields.get("MailUser", "")
    return MailWish(kinds, address if address != "(null)" else "")


def address_of(
    item: News, wish: MailWish, chosen_kinds: Collection[str] | None, domain: str
) -> str:
    """Return where to send ``item``; ``""`` if its user does not want it or the address is invalid.

    ``chosen_kinds`` are those that the user set, None if nothing is set; ``domain`` is slurm.conf's
    MailDomain.
    """
    if item.kind not in (wish.kinds if chosen_kinds is None else chosen_kinds):
        return ""
    address = wish.address or item.user
    if not is_address(address):
        return ""
    return f"{address}@{domain}" if domain and "@" not in address else address


def is_address(text: str) -> bool:
    """Whether ``text`` is something that mails are sent to: one address, or a local user."""
    return _ADDRESS.fullmatch(text) is not None
