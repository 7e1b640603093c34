"""A small schema with a key of every kind, and an in-memory way to build settings from it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.build import Machine, Pins, build
from penstock.config.faults import ConfigFaults, Fault
from penstock.config.kinds import BadValue, Kind
from penstock.config.schema import (
    RAM_BYTES,
    REQUIRED,
    Apply,
    Derived,
    Key,
    KeyRule,
    Schema,
    Table,
)
from penstock.config.settings import Settings
from penstock.config.sources import Document, Sources

ROUTE_FIELDS = (
    Key("prefix", Kind.STR, REQUIRED),
    Key("timeout", Kind.DURATION, "2s", low="10ms", high="1m"),
    Key("weight", Kind.INT, 1, low=1, high=9),
    Key("signing", Kind.SECRET, None),
)
HTTP = Table("http", (Key("conns", Kind.INT, 100, low=1, high=1000), Key("wait", Kind.DURATION, "5s")))
GATE = Table(
    "gate",
    (
        Key("conns", Kind.INT, 50, low=1, high=500, inherits="http.conns"),
        Key(
            "per_peer", Kind.INT, Derived(("gate.conns",), lambda conns: conns // 4, "a quarter"), low=1, zero_off=True
        ),
        Key("ratio", Kind.FLOAT, 0.5, low=0, high=1),
        Key("open", Kind.BOOL, default=False),
        Key("title", Kind.STR, "gate"),
        Key("mode", Kind.CHOICE, "fair", choices=("fair", "fast")),
        Key("size", Kind.SIZE, "64KiB", low="1KiB", high="1MiB"),
        Key("max_size", Kind.SIZE, "128KiB"),
        Key("share", Kind.SIZE, Derived((RAM_BYTES,), lambda ram: ram // 16, "a sixteenth of RAM")),
        Key("addr", Kind.ADDRESS, "127.0.0.1:80"),
        Key("spare_addr", Kind.ADDRESS, None),
        Key("dir", Kind.PATH, None, apply=Apply.RESTART),
        Key("slots", Kind.INT, 8, low=1, apply=Apply.RESTART),
        Key("per_slot", Kind.INT, Derived(("gate.slots",), lambda slots: 64 // slots, "64 / slots")),
        Key("names", Kind.LIST, ("a",)),
        Key("uids", Kind.LIST, (), item=Kind.INT, low=0),
        Key("weights", Kind.MAP, {"low": 1, "high": 10}, item=Kind.INT, low=1, high=100),
        Key("routes", Kind.TABLES, (), fields=ROUTE_FIELDS),
        Key("hook.secret", Kind.SECRET, None),
        Key("hook.keys", Kind.SECRETS, None),
    ),
    (KeyRule(("gate.size", "gate.max_size"), lambda size, most: size <= most, "must be at most gate.max_size"),),
)
SCHEMA = Schema([HTTP, GATE])
SECRET_FILES = {"/run/hook": "from-a-file"}


def make(
    toml: str = "", *, env: Mapping[str, str] | None = None, sets: tuple[str, ...] = (), pins: Pins | None = None
) -> Settings:
    """Build settings of the sample schema from memory alone."""
    environ = dict(env or {})

    def fetch(part: str, name: str) -> str:
        found = environ.get(name) if part == "_env" else SECRET_FILES.get(name)
        if found is None:
            raise BadValue("names nothing")
        return found

    machine = Machine(ram_bytes=16 << 20, fetch=fetch)
    sources = Sources(environ=environ, sets=sets)
    return build(SCHEMA, Document("gate.toml", toml), sources, machine, pins or {})


def faults_of(toml: str = "", *, env: Mapping[str, str] | None = None, sets: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of a configuration, none when it is valid."""
    try:
        make(toml, env=env, sets=sets)
    except ConfigFaults as faults:
        return list(faults.faults)
    return []
