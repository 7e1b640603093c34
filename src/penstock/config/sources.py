"""The values given by a file, the environment, flags and `--set`, in one form with their places."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config.faults import (
    Fault,
    Layer,
    ValueOrigin,
    shown,
)
from penstock.config.schema import Schema
from penstock.config.toml_lines import TomlLines

ENV_PREFIX = "PENSTOCK_"
# The commands that look for a node go by this one: a node started beside them must lie there.
_SHORT_NAMES = {"PENSTOCK_DATA_DIR": "node.data_dir"}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SYNTAX_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


@dataclass(frozen=True, slots=True)
class CommandFlag:
    """A command-line option that stands for a key: `Flag("--port-base", "node.port_base", "6000")`."""

    option: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a configuration file and the name it is spoken of by."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everywhere settings may come from; read again at every reload. What may hold a secret is not in its repr."""

    file: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    flags: tuple[CommandFlag, ...] = ()
    sets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Given:
    """One value as it was given; a text still has to be read by its key's kind."""

    key: str
    raw: object
    # Finds the place of a part inside the value ("[1].timeout"), or of all of it ("").
    place: Callable[[str], ValueOrigin]
    is_text: bool = True


def gather(schema: Schema, document: Document | None, sources: Sources, faults: list[Fault]) -> list[Given]:
    """Collect everything given, weakest first, so that the last of a key wins."""
    return [
        *(() if document is None else _from_document(schema, document, faults)),
        *_from_environ(schema, sources.environ, faults),
        *(Given(flag.key, flag.text, _at(Layer.FLAG, flag.option)) for flag in sources.flags),
        *_from_sets(sources.sets, faults),
    ]


def env_name(key: str) -> str:
    """Return the environment variable that sets a key."""
    return ENV_PREFIX + key.upper().replace(".", "__")


def _at(layer: Layer, where: str) -> Callable[[str], ValueOrigin]:
    origin = ValueOrigin(layer, where)
    return lambda _: origin


def _from_document(schema: Schema, document: Document, faults: list[Fault]) -> Iterator[Given]:
    try:
        tree = tomllib.loads(document.text)
    except (ValueError, RecursionError) as exc:
        faults.append(_syntax_fault(document, exc))
        return
    lines = TomlLines(document.text)
    for name, raw in _leaves(schema, tree, ""):
        yield Given(name, raw, _in_document(document.name, lines, name), is_text=False)


def _in_document(document: str, lines: TomlLines, name: str) -> Callable[[str], ValueOrigin]:
    def place(inside: str) -> ValueOrigin:
        line = lines.find(name + inside)
        return ValueOrigin(Layer.FILE, document if line is None else f"{document}:{line}")

    return place


def _leaves(schema: Schema, tree: Mapping[str, object], above: str) -> Iterator[tuple[str, object]]:
    """Walk down to what the schema knows as a key, or does not know at all."""
    for part, raw in tree.items():
        # A quoted name with a dot in it must not pass for a dotted name.
        word = part if _BARE.fullmatch(part) else ascii(part)
        name = f"{above}.{word}" if above else word
        if isinstance(raw, dict) and schema.is_table(name):
            yield from _leaves(schema, raw, name)
        else:
            yield name, raw


def _syntax_fault(document: Document, exc: Exception) -> Fault:
    if isinstance(exc, RecursionError):
        return Fault("", "", ValueOrigin(Layer.FILE, document.name), "is nested too deeply")
    place = _SYNTAX_PLACE.search(str(exc))
    last = document.text.rstrip("\n").count("\n") + 1
    where = document.name if place is None else f"{document.name}:{place[1] or last}"
    return Fault("", "", ValueOrigin(Layer.FILE, where), f"is not TOML: {_SYNTAX_PLACE.sub('', str(exc))}")


def _from_environ(schema: Schema, environ: Mapping[str, str], faults: list[Fault]) -> Iterator[Given]:
    """Take what has a double underscore; the rest belongs to others, unless it is a key with one left out."""
    for variable, key in _SHORT_NAMES.items():
        if environ.get(variable) and key in schema.keys and env_name(key) not in environ:
            yield Given(key, environ[variable], _at(Layer.ENV, variable))
    missed = {env_name(key).replace("__", "_"): env_name(key) for key in schema.keys}
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX):
            continue
        if "__" in variable:
            key = variable.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            yield Given(key, environ[variable], _at(Layer.ENV, shown(variable)))
        elif variable in missed:
            rule = f"a dot in a key is written as two underscores: {missed[variable]}"
            faults.append(Fault(variable, "", ValueOrigin(Layer.ENV, "environment"), rule))


def _from_sets(sets: Iterable[str], faults: list[Fault]) -> Iterator[Given]:
    for written in sets:
        key, equals, text = written.partition("=")
        if equals:
            yield Given(key.strip(), text, _at(Layer.SET, "--set"))
        else:
            faults.append(Fault(shown(key), "", ValueOrigin(Layer.SET, "--set"), "must be key=value"))
