"""What is wrong with a configuration: every fault at once, each with its key, value, place and rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from penstock.config.kinds import without_password
from penstock.kernel.errors import Malformed

_SHOWN_CHARS_MAX = 80
_SECRETIVE = re.compile(r"secret|token|passw|key|pem|credential", re.IGNORECASE)


class Layer(IntEnum):
    """Where a value may come from, weakest first."""

    DEFAULT = 0
    FILE = 1
    ENV = 2
    FLAG = 3
    SET = 4


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The place a value came from: its layer, and the words an operator finds it by."""

    layer: Layer
    where: str
    # The setting it was taken or computed from, if it is not its own.
    follows: str = ""

    def __str__(self) -> str:
        """Name the place: `penstock.toml:12`, `PENSTOCK_HTTP__MAX_CONNS`, `--set`, `default`."""
        return self.where


DEFAULT = ValueOrigin(Layer.DEFAULT, "default")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong; `value` is already redacted where it may be a secret."""

    key: str
    value: str
    origin: ValueOrigin
    rule: str

    def __str__(self) -> str:
        """Write the fault as one line."""
        subject = f"{self.key} = {self.value}" if self.value else self.key
        rule = without_password(self.rule)
        return f"{self.origin}: {subject}: {rule}" if subject else f"{self.origin}: {rule}"

    def plain(self) -> dict[str, str]:
        """Give the fault as members of a JSON object."""
        return {"key": self.key, "value": self.value, "origin": str(self.origin), "rule": without_password(self.rule)}


class ConfigFaults(Malformed):
    """The configuration is not valid."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        """Carry every fault; the detail is one line for each."""
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)), faults=[fault.plain() for fault in self.faults])


def may_be_secret(name: str) -> bool:
    """Tell whether the value of an unknown name had better not be shown: it may be a misspelt secret."""
    return _SECRETIVE.search(name) is not None


def shown(raw: object) -> str:
    """Write a raw value for a fault: one printable line, not endless."""
    try:
        text = raw if isinstance(raw, str) and raw and raw.isprintable() else _repr(raw)
    except (ValueError, RecursionError):
        # Whole numbers of thousands of digits and very deep nesting have no repr.
        text = f"({type(raw).__name__})"
    text = without_password(text if text.isprintable() else ascii(text))
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 3] + "..."


def _repr(raw: object) -> str:
    # A table may hold anything, a secret too, so its inside is not shown.
    if isinstance(raw, dict) or (isinstance(raw, list) and any(isinstance(item, (dict, list)) for item in raw)):
        return "{...}" if isinstance(raw, dict) else "[...]"
    return "" if raw is None else repr(raw)
