"""The schema as data: keys grouped in tables, rules between keys; everything else is made from it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Literal, TypeAlias

from penstock.config.kinds import SCALARS, Kind

SECRET_KINDS = frozenset({Kind.SECRET, Kind.SECRETS})
# Values of these kinds are never shown.
HIDDEN_KINDS = SECRET_KINDS | {Kind.SECRET_REFS}
ITEM_KINDS = frozenset({Kind.LIST, Kind.MAP})
NAMED_NAME = re.compile(r"[a-z0-9_-]{1,64}")
# A fact of the machine that a default may be computed from; it is read like a key but cannot be set.
RAM_BYTES = "machine.ram_bytes"
_NAME_CHARS_MAX = 100
_INDIRECT = ("_env", "_file")


class Absent(Enum):
    """The default of a key that must be given."""

    REQUIRED = "required"


REQUIRED = Absent.REQUIRED


class Apply(StrEnum):
    """When a changed value takes effect."""

    LIVE = "live"
    REBIND = "rebind"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Derived:
    """A default computed from other keys (by full name); `text` says it in the documentation."""

    reads: tuple[str, ...]
    compute: Callable[..., object]
    text: str


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. Defaults and bounds are written as in a file: `Key("read_timeout", Kind.DURATION, "5s")`.

    An optional setting may be left empty; a default of None says so too. `inherits` names the key whose given value
    is taken when this one is not given. `item` is the kind of a list's or map's elements, `fields` the keys of each
    table in a list of tables, or of each table that has a free name.
    """

    name: str
    kind: Kind
    default: object = REQUIRED
    _: KW_ONLY
    help: str = ""
    low: object = None
    high: object = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    secret: bool = False
    apply: Apply = Apply.LIVE
    zero_off: bool = False
    optional: bool = False
    item: Kind = Kind.STR
    fields: tuple[Key, ...] = ()
    inherits: str = ""

    def __post_init__(self) -> None:
        """Read bounds and default by the key's own kind, so that a schema cannot contradict itself."""
        for field in ("low", "high", "default"):
            object.__setattr__(self, field, self._read(getattr(self, field)))
        object.__setattr__(self, "secret", self.secret or self.kind in HIDDEN_KINDS)
        object.__setattr__(self, "optional", self.optional or self.default is None)
        broken = None if self.default in (None, REQUIRED) else self.broken_rule(self.default)
        if broken and not isinstance(self.default, Derived):
            raise ValueError(f"the default of {self.name} breaks its own rule: {broken}")

    @property
    def restart(self) -> bool:
        """Tell whether a changed value waits for the next start."""
        return self.apply is Apply.RESTART

    @property
    def scalar_kind(self) -> Kind:
        """Name the kind of the value, or of the elements of a list or map."""
        return self.item if self.kind in ITEM_KINDS else self.kind

    def broken_rule(self, value: object) -> str | None:
        """Say which bound or choice a value breaks; elements are checked one by one."""
        if isinstance(value, Derived) or value is None:
            return None
        if self.kind is Kind.LIST and isinstance(value, tuple):
            return next(filter(None, map(self.broken_element, value)), None)
        if self.kind is Kind.MAP and isinstance(value, Mapping):
            return next(filter(None, map(self.broken_element, value.values())), None)
        return self.broken_element(value)

    def range_text(self) -> str:
        """Write the bounds or choices for people: `1s..5s`, `>= 1`, `micro, macro`."""
        if self.choices:
            return ", ".join(self.choices)
        show = SCALARS[self.scalar_kind].show if self.scalar_kind in SCALARS else str
        low = "" if self.low is None else show(self.low)
        high = "" if self.high is None else show(self.high)
        text = f"{low}..{high}" if low and high else f">= {low}" if low else f"<= {high}" if high else ""
        return f"{text}; 0 = off" if self.zero_off else text

    def broken_element(self, value: object) -> str | None:
        """Say which bound or choice one scalar breaks."""
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if (self.low is None and self.high is None) or (self.zero_off and value == 0):
            return None
        # Both sides come from one codec, so they compare; mypy cannot know.
        low_ok = self.low is None or value >= self.low  # type: ignore[operator]
        high_ok = self.high is None or value <= self.high  # type: ignore[operator]
        return None if low_ok and high_ok else f"must be in the range {self.range_text()}"

    def _read(self, written: object) -> object:
        # Only a text needs reading; anything else is a value already, as in a key made from another key.
        if isinstance(written, dict):
            return MappingProxyType(written)
        return SCALARS[self.scalar_kind].text(written) if isinstance(written, str) else written


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What must hold between keys (full names): `holds` gets their values; the first key is blamed.

    Where it can say more exactly than `text` what is wrong, it returns that instead of False.
    """

    keys: tuple[str, ...]
    holds: Callable[..., bool | str]
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """The keys of one part of the node, under its name in the file."""

    name: str
    keys: tuple[Key, ...]
    rules: tuple[KeyRule, ...] = ()
    help: str = ""


Part: TypeAlias = Literal["value", "_env", "_file", "entry", "field"]


@dataclass(frozen=True, slots=True)
class Slot:
    """What a dotted name sets: a key's value, where its secret lies, one entry of its map, or a named table's field.

    For a field, `name` is the key of the named tables, `key` the field's own, and `entry` is `table.field`.
    """

    name: str
    key: Key
    part: Part = "value"
    entry: str = ""


class Schema:
    """All tables of a node: finds keys by their dotted name, and the nearest one to a wrong name."""

    def __init__(self, tables: Iterable[Table], rules: Iterable[KeyRule] = ()) -> None:
        """Put the tables together; a key defined twice, or a rule about an unknown one, is a bug."""
        self.tables = tuple(tables)
        self.keys: dict[str, Key] = {}
        for table in self.tables:
            for key in table.keys:
                self._add(f"{table.name}.{key.name}", key)
        self.rules = (*(rule for table in self.tables for rule in table.rules), *rules)
        self._prefixes = {name[:at] for name in self.keys for at, char in enumerate(name) if char == "."}
        self._check_references()

    def find(self, name: str) -> Slot | None:
        """Return what a dotted name sets, or None for an unknown one."""
        key = self.keys.get(name)
        if key is not None:
            return Slot(name, key)
        return self._find_secret(name) or self._find_entry(name) or self._find_field(name)

    def is_table(self, name: str) -> bool:
        """Tell whether keys lie below this name."""
        return name in self._prefixes

    def nearest(self, name: str) -> str | None:
        """Return the known key or table that a wrong name most likely means; in a table that is known, one of it."""
        parent, _, leaf = name[:_NAME_CHARS_MAX].rpartition(".")
        if parent not in self._prefixes:
            near = self._alike(name)
            return None if near is None or name.startswith(f"{near}.") else near
        service = parent.partition(".")[0]
        leaves = {known.rpartition(".")[2]: known for known in reversed(self.keys) if _is_below(known, service)}
        if leaf in leaves:
            # The right word in another table of the same service: `mailbox.max_body_bytes`.
            return leaves[leaf]
        members = {
            known.removeprefix(f"{parent}.").partition(".")[0] for known in self.keys if _is_below(known, parent)
        }
        close = difflib.get_close_matches(leaf, sorted(members), n=1, cutoff=0.7)
        if close:
            return f"{parent}.{close[0]}"
        close = difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.8)
        return leaves[close[0]] if close else None

    def _alike(self, name: str) -> str | None:
        """Return the key or table that looks most like a name, wherever it lies."""
        # The comparison is quadratic, and a name from junk can be of any length.
        name = name[:_NAME_CHARS_MAX]
        found = difflib.get_close_matches(name, [*self.keys, *sorted(self._prefixes)], n=1, cutoff=0.7)
        if found:
            return found[0]
        # The right word under the wrong table: `mailbox.max_con` or a bare `max_conns`.
        leaf = name.rpartition(".")[2]
        leaves = {known.rpartition(".")[2]: known for known in reversed(self.keys)}
        close = difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.8)
        return leaves[close[0]] if close else None

    def secret_near(self, name: str) -> bool:
        """Tell whether a wrong name may stand for a secret, or for a table that holds one."""
        near = self._alike(name) or name
        return any(key.secret for known, key in self.keys.items() if known == near or known.startswith(f"{near}."))

    def _add(self, name: str, key: Key) -> None:
        if name in self.keys:
            raise ValueError(f"{name} is defined twice")
        self.keys[name] = key

    def _find_secret(self, name: str) -> Slot | None:
        for part in _INDIRECT:
            key = self.keys.get(name.removesuffix(part)) if name.endswith(part) else None
            if key is not None and key.kind in SECRET_KINDS:
                return Slot(name.removesuffix(part), key, "_env" if part == "_env" else "_file")
        return None

    def _find_entry(self, name: str) -> Slot | None:
        parent, _, entry = name.rpartition(".")
        key = self.keys.get(parent)
        return Slot(parent, key, "entry", entry) if key is not None and key.kind is Kind.MAP and entry else None

    def _find_field(self, name: str) -> Slot | None:
        for parent, key in self.keys.items():
            if key.kind is not Kind.NAMED or not name.startswith(f"{parent}."):
                continue
            table, _, leaf = name.removeprefix(f"{parent}.").partition(".")
            field = next((field for field in key.fields if field.name == leaf), None)
            if field is not None and NAMED_NAME.fullmatch(table):
                return Slot(parent, field, "field", f"{table}.{leaf}")
        return None

    def _check_references(self) -> None:
        derived = [key.default.reads for key in self.keys.values() if isinstance(key.default, Derived)]
        inherited = [(key.inherits,) for key in self.keys.values() if key.inherits]
        for names in (*derived, *inherited, *(rule.keys for rule in self.rules)):
            unknown = [name for name in names if name not in self.keys and name != RAM_BYTES]
            if unknown:
                raise ValueError(f"the schema speaks of keys it does not have: {', '.join(unknown)}")


def _is_below(name: str, table: str) -> bool:
    return name.startswith(f"{table}.")


def unknown_rule(schema: Schema, name: str) -> str:
    """Word the refusal of a name that is no key, with the likely one."""
    if schema.is_table(name):
        return "is a table of keys, not a value"
    near = schema.nearest(name)
    return "there is no such key" + (f"; did you mean {near}?" if near else "")
