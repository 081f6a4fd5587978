"""A setting as data: its type, default, accepted values and effect."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from hopsd.config.listen import ListenAddress, NetworkAddress
from hopsd.config.mail_route import MailRoute
from hopsd.config.policy_name import PolicyName
from hopsd.config.secret_url import SecretUrl
from hopsd.policies.registry import POLICIES


@dataclass(frozen=True, slots=True)
class Option:
    """One key of a section. ``above`` and ``minimum`` bound numbers, the first excluded.

    A default of None means that the key may stay unset. ``secret`` marks values that may contain
    a password. With ``link_fields``, each text is a link (a title and an address) that may
    contain these fields.
    """

    name: str
    key: str
    kind: type
    default: Any
    doc: str
    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False
    link_fields: tuple[str, ...] = ()

    @property
    def accepted_values(self) -> str:
        """Describe the accepted values for messages and documentation."""
        if self.link_fields:
            names = ", ".join(f"{{{name}}}" for name in self.link_fields)
            return f"a list of 'TITLE http(s)://ADDRESS' with any of {names}"
        if self.choices:
            choices_text = "a list of any of " if self.kind is tuple else "one of "
            return choices_text + ", ".join(self.choices)
        return _KIND_TEXT[self.kind] + self._range()

    def parse(self, value: Any) -> Any:
        """Convert a TOML value to the setting's type.

        Raises:
            ValueError: if ``value`` is not accepted; `accepted_values` says what is.
        """
        typed_value = _PARSERS[self.kind](value)
        members = typed_value if isinstance(typed_value, tuple) else (typed_value,)
        if self.choices and not set(members) <= set(self.choices):
            raise ValueError
        if self.link_fields and not all(self._is_link(member) for member in members):
            raise ValueError
        if isinstance(typed_value, int | float) and not self._in_range(typed_value):
            raise ValueError
        return typed_value

    def plain(self, value: Any) -> Any:
        """Return ``value`` as a TOML or JSON type, with passwords hidden."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, tuple):
            return list(value)
        if isinstance(value, SecretUrl):
            return value.masked_url
        return hide_password(str(value)) if self.secret else str(value)

    def _is_link(self, text: str) -> bool:
        fields_used = re.findall(r"\{([^}]*)\}", text)
        return set(fields_used) <= set(self.link_fields) and bool(_LINK.fullmatch(text))

    def _in_range(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.above is None or value > self.above)
            and (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
        )

    def _range(self) -> str:
        parts = []
        if self.above is not None:
            parts.append(f"above {self.above:g}")
        if self.minimum is not None:
            parts.append(f"from {self.minimum:g}")
        if self.maximum is not None:
            parts.append(f"to {self.maximum:g}")
        return " " + " ".join(parts) if parts else ""


def option(default: Any, doc: str, **attributes: Any) -> Any:
    """Declare a setting as a dataclass field; pass ``key`` if it differs from the field's name."""
    return field(default=default, metadata={"doc": doc, **attributes})


@cache
def options(section: type) -> tuple[Option, ...]:
    """The options of a section's dataclass, in order."""
    return tuple(_options(section))


def _options(section: type) -> Iterator[Option]:
    hints = get_type_hints(section)
    for item in fields(section):
        attributes = dict(item.metadata)
        hint = hints[item.name]
        inner = [arg for arg in get_args(hint) if arg not in (type(None), ...)]
        kind: Any = tuple if get_origin(hint) is tuple else (inner or [hint])[0]
        if issubclass(kind, StrEnum):
            attributes["choices"] = tuple(choice.value for choice in kind)
        key = attributes.pop("key", item.name)
        yield Option(name=item.name, key=key, kind=kind, default=item.default, **attributes)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return float(value)


def _exact(kind: type) -> Any:
    def parse(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return parse


def _path(value: Any) -> Path:
    path = Path(_exact(str)(value))
    if not path.is_absolute():
        raise ValueError
    return path


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise ValueError
    return tuple(value)


class _Parsers(dict[type, Any]):
    def __missing__(self, kind: type) -> Any:
        return lambda value: kind(_exact(str)(value))


_PARSERS = _Parsers(
    {
        bool: _exact(bool),
        int: _exact(int),
        float: _number,
        str: _exact(str),
        Path: _path,
        tuple: _texts,
    }
)
_KIND_TEXT = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "an absolute path",
    tuple: "a list of strings",
    ListenAddress: "an absolute path, or a loopback address and a port as in 127.0.0.1:9817",
    SecretUrl: "an http or https URL",
    NetworkAddress: "an IP address of this machine and a port, as in 0.0.0.0:6822",
    MailRoute: "a program's absolute path, or an SMTP server as in smtp://mail.example.org:25",
    PolicyName: f"one of {', '.join(POLICIES)}, or a policy of an installed package (docs/api.md)",
}

_LINK = re.compile(r"\S.* https?://\S+")

# libpq: keyword = value, the value bare or in single quotes with backslash escapes.
_KEY_PASSWORD = re.compile(r"(password\s*=\s*)(?:'(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])+)", re.I)
_URI_PASSWORD = re.compile(r"(password=)[^&]*", re.I)


def hide_password(dsn: str) -> str:
    """Replace the password in a libpq connection string or URI with ``***``."""
    if "://" in dsn:
        scheme, _, remainder = dsn.partition("://")
        credentials, separator, place = remainder.rpartition("@")
        user, colon, _ = credentials.partition(":")
        remainder = user + (":***" if colon else "") + separator + place
        dsn = f"{scheme}://{remainder}"
        return _URI_PASSWORD.sub(r"\1***", dsn)
    return _KEY_PASSWORD.sub(r"\1***", dsn)
