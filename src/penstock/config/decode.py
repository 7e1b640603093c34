"""Raw value to checked value, by its key; everything wrong inside it is reported, not only the first."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from penstock.config.faults import may_be_secret, shown
from penstock.config.kinds import SCALARS, BadValue, Kind, Secret
from penstock.config.schema import (
    NAMED_NAME,
    REQUIRED,
    SECRET_KINDS,
    Derived,
    Key,
    Schema,
    Slot,
    Table,
    unknown_rule,
)

# Called with where inside the value ("" for all of it, "[1].timeout"), the raw part, and the rule it breaks.
Report: TypeAlias = Callable[[str, object, str], None]
# Fetches a secret from the place a setting names; raises BadValue with the rule when it cannot.
Fetch: TypeAlias = Callable[[str, str], str]

_TABLES_MAX = 4096
_PLACE: Mapping[str, re.Pattern[str]] = {
    "_env": re.compile(r"[A-Z][A-Z0-9_]{0,63}"),
    "_file": re.compile(r"[\w./~-]*/[\w./~-]*"),
}

# A place that holds a secret; the two halves are what `fetch` is called with.
_REF: Final = re.compile(r"(env:)([A-Za-z_][A-Za-z0-9_]{0,127})|(file:)([\w./~ -]{1,1024})", re.ASCII)


class _Bad:
    """What decoding gives when it reported a fault."""


BAD: Final = _Bad()


class ValueDecoder:
    """Reads values by their keys; `fetch` gets secrets that are kept elsewhere."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: Fetch) -> None:
        """Take the way to reach secrets."""
        self._fetch = fetch

    def decode(self, slot: Slot, raw: object, report: Report, *, is_text: bool) -> object:
        """Return the value a slot is given by a TOML value or a text, or BAD after reporting what is wrong."""
        try:
            return self._decode(slot, raw, report, is_text=is_text)
        except BadValue as exc:
            report("", _hidden(slot, raw), str(exc))
            return BAD

    def _decode(self, slot: Slot, raw: object, report: Report, *, is_text: bool) -> object:
        key = slot.key
        if slot.part == "entry":
            return _scalar(key, raw, is_text=is_text)
        if key.optional and raw == "":
            return None
        if key.kind in SECRET_KINDS:
            return self._secret(slot, raw)
        if key.kind is Kind.SECRET_REFS:
            return self._secret_refs(_toml_value(raw) if is_text and str(raw).lstrip().startswith("[") else raw)
        if key.kind is Kind.NAMED:
            return self._named(key, _toml_value(raw) if is_text else raw, report)
        if key.kind is Kind.TABLES:
            return self._tables(key, _toml_value(raw) if is_text else raw, report)
        if key.kind is Kind.LIST:
            return _list(key, raw, is_text=is_text)
        return _map(key, raw, is_text=is_text) if key.kind is Kind.MAP else _scalar(key, raw, is_text=is_text)

    def _secret(self, slot: Slot, raw: object) -> Secret | tuple[Secret, ...]:
        parts = tuple(raw) if isinstance(raw, list) and slot.key.kind is Kind.SECRETS else (raw,)
        secrets = tuple(self._one_secret(slot, part) for part in parts)
        return secrets if slot.key.kind is Kind.SECRETS else secrets[0]

    def _one_secret(self, slot: Slot, raw: object) -> Secret:
        if not isinstance(raw, str) or not raw:
            raise BadValue("must be a text that is not empty")
        return Secret(self._fetch(slot.part, raw) if slot.part in ("_env", "_file") else raw)

    def _secret_refs(self, raw: object) -> tuple[Secret, ...]:
        refs = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
        if not isinstance(refs, list) or not refs:
            raise BadValue('must be a list of places that hold a secret, such as ["env:NAME", "file:path"]')
        return tuple(self._secret_ref(ref) for ref in refs)

    def _secret_ref(self, ref: object) -> Secret:
        found = _REF.fullmatch(ref) if isinstance(ref, str) else None
        if found is None:
            raise BadValue("must name where the secret lies, env:NAME or file:path, and not hold the secret itself")
        return Secret(self._fetch(found[1] or found[3], found[2] or found[4]))

    def _named(self, key: Key, raw: object, report: Report) -> object:
        """Read tables by name. What they leave out is filled in when all sources have been read."""
        if not isinstance(raw, dict) or len(raw) > _TABLES_MAX:
            raise BadValue(f"must be tables by name, at most {_TABLES_MAX}")
        schema = Schema([Table("row", key.fields)])
        rows = {name: self._named_row(schema, name, row, report) for name, row in raw.items()}
        return BAD if BAD in rows.values() else MappingProxyType(rows)

    def _named_row(self, schema: Schema, name: str, row: object, report: Report) -> object:
        if not NAMED_NAME.fullmatch(name):
            report(f".{shown(name)}", None, "a name is 1 to 64 of a-z, 0-9, _ and -")
            return BAD
        if not isinstance(row, dict):
            report(f".{name}", None, "must be a table")
            return BAD
        values = self._row_values(schema, row, _inside(report, f".{name}"))
        return BAD if BAD in values.values() else MappingProxyType(values)

    def _tables(self, key: Key, raw: object, report: Report) -> object:
        if not isinstance(raw, list) or len(raw) > _TABLES_MAX or not all(isinstance(row, dict) for row in raw):
            raise BadValue(f"must be a list of tables, at most {_TABLES_MAX}")
        # The rows' keys form a schema of their own; the table's name never shows.
        schema = Schema([Table("row", key.fields)])
        rows = [self._row(schema, row, _inside(report, f"[{at}]")) for at, row in enumerate(raw)]
        return BAD if BAD in rows else tuple(rows)

    def _row(self, schema: Schema, row: Mapping[str, object], report: Report) -> object:
        return complete(schema, self._row_values(schema, row, report), report)

    def _row_values(self, schema: Schema, row: Mapping[str, object], report: Report) -> dict[str, object]:
        values: dict[str, object] = {}
        for name, raw in row.items():
            slot = schema.find(f"row.{name}")
            if slot is None:
                raw_shown = Secret("") if may_be_secret(name) else raw
                report(f".{shown(name)}", raw_shown, unknown_rule(schema, f"row.{name}").replace("row.", ""))
                values[name] = BAD
            elif slot.key.name in values:
                report(f".{name}", None, f"{slot.key.name} is already given in another way")
            else:
                values[slot.key.name] = self.decode(slot, raw, _inside(report, f".{name}"), is_text=False)
        return values


def complete(schema: Schema, values: dict[str, object], report: Report) -> object:
    """Fill in what a table leaves out; BAD when a field that it needs is missing."""
    for key in schema.keys.values():
        if key.default is REQUIRED and key.name not in values:
            report(f".{key.name}", None, "is required")
            values[key.name] = BAD
        elif not isinstance(key.default, Derived):
            values.setdefault(key.name, key.default)
    return BAD if BAD in values.values() else MappingProxyType(values)


def _inside(report: Report, where: str) -> Report:
    def deeper(inner: str, raw: object, rule: str) -> None:
        report(where + inner, raw, rule)

    return deeper


def _scalar(key: Key, raw: object, *, is_text: bool) -> object:
    codec = SCALARS[key.scalar_kind]
    value = codec.text(raw.strip()) if is_text and isinstance(raw, str) else codec.value(raw)
    rule = key.broken_element(value)
    if rule:
        raise BadValue(rule)
    return value


def _list(key: Key, raw: object, *, is_text: bool) -> tuple[object, ...]:
    if is_text and isinstance(raw, str):
        typed = raw.lstrip().startswith("[")
        raw = _toml_value(raw) if typed else [part for part in map(str.strip, raw.split(",")) if part]
        is_text = not typed
    if not isinstance(raw, list):
        raise BadValue("must be a list")
    return tuple(_scalar(key, item, is_text=is_text) for item in raw)


def _map(key: Key, raw: object, *, is_text: bool) -> Mapping[str, object]:
    if is_text and isinstance(raw, str):
        typed = raw.lstrip().startswith("{")
        raw = _toml_value(raw) if typed else _pairs(raw)
        is_text = not typed
    if not isinstance(raw, dict):
        raise BadValue("must be a table of name = value")
    return MappingProxyType({name: _scalar(key, value, is_text=is_text) for name, value in raw.items()})


def _pairs(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        raise BadValue("must be name=value pairs separated by commas")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _toml_value(raw: object) -> object:
    try:
        document = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):
        document = {}
    # More than the one name means that the text went on after its value.
    if document.keys() != {"value"}:
        raise BadValue("must be written as in TOML")
    return document["value"]


def _hidden(slot: Slot, raw: object) -> object:
    """Hide a secret from the report, also one pasted where the name of its variable or file belongs."""
    if not slot.key.secret:
        return raw
    if slot.key.kind is Kind.SECRET_REFS:
        refs = raw if isinstance(raw, list) else [raw]
        return raw if all(isinstance(ref, str) and _REF.fullmatch(ref) for ref in refs) else Secret("")
    is_place = isinstance(raw, str) and slot.part in _PLACE and _PLACE[slot.part].fullmatch(raw) is not None
    return raw if is_place else Secret("")
