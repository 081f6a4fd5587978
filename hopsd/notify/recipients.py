"""Who gets a mail of a job, and where: by the user's setting, else by what they asked Slurm for."""

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
"""What somebody wants to know who asked for a mail of this type by ``sbatch --mail-type``."""

_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?")
"""No option of a mail program, no second recipient, no header."""


@dataclass(frozen=True, slots=True)
class MailWish:
    """What ``sbatch --mail-type`` and ``--mail-user`` of a job say. ``address`` empty: none."""

    kinds: frozenset[str] = frozenset()
    address: str = ""


def read_mail_wish(commands: SlurmCommands, job: str) -> MailWish:
    """Of a job that Slurm still knows; an empty one if it does not, or does not answer."""
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
    """Where ``item`` is sent, or ``""`` if its user does not want it or the address is none.

    ``chosen_kinds``: those that the user set, None: nothing. ``domain``: slurm.conf's MailDomain.
    """
    if item.kind not in (wish.kinds if chosen_kinds is None else chosen_kinds):
        return ""
    address = wish.address or item.user
    if not is_address(address):
        return ""
    return f"{address}@{domain}" if domain and "@" not in address else address


def is_address(text: str) -> bool:
    """Whether mails are sent to ``text``: one address, or a local user."""
    return _ADDRESS.fullmatch(text) is not None
