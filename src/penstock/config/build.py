"""From the given values to effective settings: pick, default, check; all faults are reported at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.config.decode import BAD, ValueDecoder, complete
from penstock.config.faults import (
    DEFAULT,
    ConfigFaults,
    Fault,
    Layer,
    ValueOrigin,
    may_be_secret,
    shown,
)
from penstock.config.kinds import REDACTED, Kind
from penstock.config.schema import (
    RAM_BYTES,
    REQUIRED,
    Derived,
    Key,
    KeyRule,
    Schema,
    Slot,
    Table,
    unknown_rule,
)
from penstock.config.settings import Settings, show_value
from penstock.config.sources import Document, Given, Sources, gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the settings need to know of the machine: the size of its memory, and secrets kept elsewhere."""

    ram_bytes: int
    # Called with "_env", "_file", "env:" or "file:" and the name; raises BadValue when there is nothing.
    fetch: Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class Picked:
    """A decoded value and where it came from."""

    value: object
    origin: ValueOrigin


Pins = Mapping[str, Picked]


def build(
    schema: Schema, document: Document | None, sources: Sources, machine: Machine, pins: Pins = MappingProxyType({})
) -> Settings:
    """Make the effective settings or raise ConfigFaults with everything that is wrong.

    Pins are values that win over everything: those of a running node that only a restart may change.
    """
    faults: list[Fault] = []
    givens = gather(schema, document, sources, faults)
    # What a document that cannot be read would have said is unknown: rules between keys would only confuse.
    readable = all(fault.key for fault in faults)
    picker = _Picker(schema, machine, faults)
    for given in givens:
        picker.take(given)
    picker.fill_named()
    resolver = _Resolver(schema, {**picker.picked, **pins}, machine, faults)
    resolver.resolve_all()
    if readable:
        resolver.check(schema.rules, picker.bad)
    if faults:
        raise ConfigFaults(faults)
    defaults = _Resolver(schema, {}, machine, [])
    defaults.resolve_all()
    values, usual = resolver.values(), defaults.values()
    origins = {
        # What was computed and came out as it would have anyway is simply the default.
        name: DEFAULT if origin.layer is Layer.DEFAULT and values[name] == usual[name] else origin
        for name, origin in resolver.origins().items()
    }
    return Settings(schema, values, origins, usual)


class _Picker:
    """Decodes what was given, weakest first; the last good value of a key stays."""

    def __init__(self, schema: Schema, machine: Machine, faults: list[Fault]) -> None:
        self._schema = schema
        self._decoder = ValueDecoder(machine.fetch)
        self._faults = faults
        self._parts: dict[str, tuple[Layer, str]] = {}
        self.picked: dict[str, Picked] = {}
        self.bad: set[str] = set()

    def take(self, given: Given) -> None:
        slot = self._schema.find(given.key)
        if slot is None:
            self._refuse(given)
            return
        value = self._decoder.decode(slot, given.raw, self._reporter(given), is_text=given.is_text)
        if value is BAD:
            self.bad.add(slot.name)
        elif not self._twice(slot, given):
            self.picked[slot.name] = Picked(self._patched(slot, value), given.place(""))

    def _patched(self, slot: Slot, value: object) -> object:
        """Put one entry of a map, or one field of a named table, over what lies below it; everything else replaces."""
        if slot.part == "field":
            table, _, field = slot.entry.partition(".")
            tables = self.picked[slot.name].value if slot.name in self.picked else {}
            assert isinstance(tables, Mapping)
            return MappingProxyType({**tables, table: MappingProxyType({**tables.get(table, {}), field: value})})
        if slot.part != "entry":
            return value
        below = self.picked[slot.name].value if slot.name in self.picked else slot.key.default
        return MappingProxyType({**(below if isinstance(below, Mapping) else {}), slot.entry: value})

    def fill_named(self) -> None:
        """Complete the named tables, now that every source has said its part of them."""
        for name, key in self._schema.keys.items():
            picked = self.picked.get(name)
            if key.kind is Kind.NAMED and picked is not None:
                self.picked[name] = Picked(self._filled(name, key, picked), picked.origin)

    def _filled(self, name: str, key: Key, picked: Picked) -> object:
        schema = Schema([Table("row", key.fields)])
        tables = picked.value
        assert isinstance(tables, Mapping)
        rows = {
            table: complete(schema, dict(row), self._named_reporter(f"{name}.{table}", picked.origin))
            for table, row in tables.items()
        }
        return MappingProxyType({table: row for table, row in rows.items() if row is not BAD})

    def _named_reporter(self, name: str, origin: ValueOrigin) -> Callable[[str, object, str], None]:
        def report(inside: str, _raw: object, rule: str) -> None:
            self._faults.append(Fault(name + inside, "", origin, rule))

        return report

    def _twice(self, slot: Slot, given: Given) -> bool:
        """Refuse a secret that is given in two ways at one level: it is unclear which one counts."""
        layer = given.place("").layer
        before = self._parts.get(slot.name)
        self._parts[slot.name] = (layer, slot.part)
        if not slot.key.secret or before is None or before[0] != layer or before[1] == slot.part:
            return False
        self._faults.append(Fault(given.key, "", given.place(""), f"{slot.name} is already given in another way"))
        return True

    def _reporter(self, given: Given) -> Callable[[str, object, str], None]:
        def report(inside: str, raw: object, rule: str) -> None:
            self._faults.append(Fault(shown(given.key) + inside, shown(raw), given.place(inside), rule))

        return report

    def _refuse(self, given: Given) -> None:
        secret = may_be_secret(given.key) or self._schema.secret_near(given.key)
        value = REDACTED if secret else shown(given.raw)
        self._faults.append(Fault(shown(given.key), value, given.place(""), unknown_rule(self._schema, given.key)))


class _Resolver:
    """Gives every key its effective value: its own, the inherited, or the default."""

    def __init__(self, schema: Schema, picked: Mapping[str, Picked], machine: Machine, faults: list[Fault]) -> None:
        self._schema = schema
        self._picked = picked
        self._faults = faults
        self._done: dict[str, Picked] = {RAM_BYTES: Picked(machine.ram_bytes, DEFAULT)}

    def resolve_all(self) -> None:
        for name in self._schema.keys:
            self._resolve(name)

    def values(self) -> dict[str, object]:
        return {name: self._done[name].value for name in self._schema.keys}

    def origins(self) -> dict[str, ValueOrigin]:
        return {name: self._done[name].origin for name in self._schema.keys}

    def check(self, rules: Iterable[KeyRule], bad: set[str]) -> None:
        """Check the rules between keys, but for those about a key that is wrong already."""
        wrong = bad | {name for name, key in self._schema.keys.items() if key.inherits in bad}
        told: set[tuple[str, str]] = set()
        for rule in rules:
            held = not wrong.isdisjoint(rule.keys) or rule.holds(*(self._done[name].value for name in rule.keys))
            # What every table inherits from one place is told once, there.
            place = (self._root(rule.keys[0]), rule.text)
            if held is not True and place not in told:
                told.add(place)
                self._break(rule, held)

    def _break(self, rule: KeyRule, why: str | bool) -> None:  # noqa: FBT001 - what the rule returned
        """Note a broken rule. A rule with its own message needs no value shown, which may be long."""
        name, picked = rule.keys[0], self._done[rule.keys[0]]
        if isinstance(why, str):
            self._faults.append(Fault(name, "", picked.origin, why))
        else:
            self._fault(name, picked, rule.text)

    def _root(self, name: str) -> str:
        inherits = self._schema.keys[name].inherits
        return inherits if name not in self._picked and inherits in self._picked else name

    def _resolve(self, name: str) -> Picked:
        done = self._done.get(name)
        if done is None:
            done = self._done[name] = self._effective(name, self._schema.keys[name])
        return done

    def _effective(self, name: str, key: Key) -> Picked:
        own = self._picked.get(name)
        if own is not None:
            return own
        inherited = self._picked.get(key.inherits)
        if inherited is not None:
            return self._inherit(name, key, inherited)
        if key.default is REQUIRED:
            self._faults.append(Fault(name, "", DEFAULT, "is required"))
        if not isinstance(key.default, Derived):
            return Picked(key.default, DEFAULT)
        return self._compute(key.default)

    def _compute(self, default: Derived) -> Picked:
        """Compute a default; where what it reads was given, that is where it comes from."""
        reads = {name: self._resolve(name) for name in default.reads}
        given = [name for name, picked in reads.items() if picked.origin != DEFAULT]
        origin = ValueOrigin(Layer.DEFAULT, f"computed from {', '.join(given)}", given[0]) if given else DEFAULT
        return Picked(default.compute(*(picked.value for picked in reads.values())), origin)

    def _inherit(self, name: str, key: Key, inherited: Picked) -> Picked:
        where = f"{inherited.origin} ({key.inherits})"
        picked = Picked(inherited.value, ValueOrigin(inherited.origin.layer, where, key.inherits))
        rule = key.broken_rule(picked.value)
        if rule:
            self._fault(name, picked, f"{rule}; set it in its own table")
        return picked

    def _fault(self, name: str, picked: Picked, rule: str) -> None:
        self._faults.append(Fault(name, show_value(self._schema.keys[name], picked.value), picked.origin, rule))
