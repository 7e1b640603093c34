"""The effective settings: an immutable snapshot with typed access, provenance, a digest and a redacted difference."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from penstock.config.faults import DEFAULT, ValueOrigin
from penstock.config.kinds import (
    REDACTED,
    SCALARS,
    HostPort,
    Kind,
    Secret,
    without_password,
)
from penstock.config.schema import REQUIRED, Derived, Key, Schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as it is shown, by `config show` and on the operator's page: values are JSON-able and redacted."""

    key: str
    value: object
    origin: str
    default: object
    apply: str
    # The kind of place it came from: default, file, env, flag, set.
    source: str
    # Whether it differs from the default; for a secret too, which the redacted values could not tell.
    changed: bool
    # The setting whose value this one follows, if it was not set itself.
    follows: str
    help: str

    def text(self) -> str:
        """Write the value as one text; an empty setting is `-`."""
        return _as_text(self.value)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One key whose value differs between two snapshots; both sides redacted."""

    key: str
    old: str
    new: str
    apply: str

    def __str__(self) -> str:
        """Write the change as a log line would."""
        return f"{self.key}: {self.old} -> {self.new}"


class Settings(Mapping[str, object]):
    """Every key's effective value. Read by full name, or through the accessor of its kind for a typed value."""

    __slots__ = ("_defaults", "_origins", "_values", "digest", "schema")

    def __init__(
        self,
        schema: Schema,
        values: Mapping[str, object],
        origins: Mapping[str, ValueOrigin],
        defaults: Mapping[str, object],
    ) -> None:
        """Freeze the values; the digest covers what may be shown, so it tells nothing of a secret."""
        self.schema = schema
        self._defaults = defaults
        self._values = MappingProxyType(dict(values))
        self._origins = MappingProxyType(dict(origins))
        shown = {name: plain(schema.keys[name], value) for name, value in self._values.items()}
        self.digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()

    def __getitem__(self, name: str) -> object:
        """Return a key's effective value; an unknown name is a bug."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names in schema order."""
        return iter(self._values)

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._values)

    def __repr__(self) -> str:
        """Name the snapshot without its values."""
        return f"<Settings {self.digest[:12]}, {len(self)} keys>"

    def provenance(self, name: str) -> ValueOrigin:
        """Say where a key's value came from."""
        return self._origins[name]

    def integer(self, name: str) -> int:
        """Return a whole number."""
        return self._typed(name, int)

    def number(self, name: str) -> float:
        """Return a number."""
        return self._typed(name, float)

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        return self._typed(name, bool)

    def text(self, name: str) -> str:
        """Return a text or a choice."""
        return self._typed(name, str)

    def seconds(self, name: str) -> float:
        """Return a duration in seconds."""
        return self._typed(name, float)

    def size(self, name: str) -> int:
        """Return a size in bytes."""
        return self._typed(name, int)

    def address(self, name: str) -> HostPort:
        """Return an address that is set."""
        return self._typed(name, HostPort)

    def address_or_none(self, name: str) -> HostPort | None:
        """Return an address, None when it was left empty."""
        return None if self[name] is None else self.address(name)

    def path(self, name: str) -> Path | None:
        """Return a path, None when it was left empty."""
        return None if self[name] is None else self._typed(name, Path)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return self._typed(name, tuple)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        return self._typed(name, tuple)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return a map of scalars; their kind is in the schema."""
        return self._typed(name, Mapping)  # type: ignore[type-abstract]

    def tables(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """Return a list of tables, each with its fields' defaults filled in."""
        return self._typed(name, tuple)

    def named(self, name: str) -> Mapping[str, Mapping[str, Any]]:
        """Return tables by their free names, each with its fields' defaults filled in."""
        return self._typed(name, Mapping)  # type: ignore[type-abstract]

    def secret(self, name: str) -> Secret | None:
        """Return a secret, None when there is none."""
        return None if self[name] is None else self._typed(name, Secret)

    def secrets(self, name: str) -> tuple[Secret, ...]:
        """Return all live secrets of a key, none when there are none."""
        return () if self[name] is None else self._typed(name, tuple)

    def show(self, *, defaults: bool = False) -> list[SettingRow]:
        """List every key with its effective value and origin, or as it would be with nothing set."""
        return [self._row(name, key, defaults=defaults) for name, key in self.schema.keys.items()]

    def _row(self, name: str, key: Key, *, defaults: bool) -> SettingRow:
        value, origin = (self._defaults[name], DEFAULT) if defaults else (self[name], self._origins[name])
        return SettingRow(
            name,
            plain(key, value),
            str(origin),
            plain(key, self._defaults[name]),
            key.apply.value,
            origin.layer.name.lower(),
            value != self._defaults[name],
            origin.follows,
            key.help,
        )

    def _typed(self, name: str, wanted: type[T]) -> T:
        value = self._values[name]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise TypeError(f"{name} is {self.schema.keys[name].kind.value}, read as {wanted.__name__}")
        return value


def diff(old: Settings, new: Settings) -> tuple[SettingChange, ...]:
    """List the keys whose values differ, in schema order, secrets redacted."""
    names = [name for name in new if old.get(name) != new[name]]
    return tuple(_change(new.schema.keys[name], name, old.get(name), new[name]) for name in names)


def _change(key: Key, name: str, old: object, new: object) -> SettingChange:
    return SettingChange(name, show_value(key, old), show_value(key, new), key.apply.value)


def show_value(key: Key, value: object) -> str:
    """Write a value as one text, redacted when it is secret; an empty setting is `-`."""
    return _as_text(plain(key, value))


def _as_text(shown: object) -> str:
    return "-" if shown is None else shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def plain(key: Key, value: object) -> object:
    """Turn a value into what JSON can hold, in its canonical spelling, redacted when it is secret."""
    if value is None or value is REQUIRED:
        return None
    if key.secret:
        # No place that holds one is no secret.
        return [] if value == () else REDACTED
    if key.kind is Kind.NAMED and isinstance(value, Mapping):
        return {name: _plain_row(key, row) for name, row in value.items()}
    if key.kind is Kind.TABLES and isinstance(value, tuple):
        return [_plain_row(key, row) for row in value]
    if key.kind is Kind.MAP and isinstance(value, Mapping):
        return {name: _plain_scalar(key.item, item) for name, item in value.items()}
    if key.kind is Kind.LIST and isinstance(value, tuple):
        return [_plain_scalar(key.item, item) for item in value]
    return _plain_scalar(key.kind, value)


def default_plain(key: Key) -> object:
    """Turn a key's default into what JSON can hold; a computed one is told in words."""
    return key.default.text if isinstance(key.default, Derived) else plain(key, key.default)


def _plain_row(key: Key, row: Mapping[str, object]) -> dict[str, object]:
    return {field.name: plain(field, row.get(field.name)) for field in key.fields}


def _plain_scalar(kind: Kind, value: object) -> object:
    return value if isinstance(value, (bool, int)) and kind is not Kind.SIZE else _spelled(kind, value)


def _spelled(kind: Kind, value: object) -> object:
    return value if isinstance(value, float) and kind is Kind.FLOAT else without_password(SCALARS[kind].show(value))
