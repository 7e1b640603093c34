r"""Read TLA+ values as TLC prints them, and make Python values comparable with them.

A number, a string and TRUE become `int`, `str` and `bool`; a sequence `<<1, 2>>` a tuple; a set a frozenset; a record
`[a |-> 1]` and a function `(1 :> "a" @@ 2 :> "b")` a frozenset of pairs with the mark `FUNCTION`. TLC prints a function
over 1..n as a sequence, so a Python dict with the keys 1..n becomes a tuple too.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

Value = int | str | bool | tuple["Value", ...] | frozenset["Value"]

FUNCTION = "function"

_TOKENS = re.compile(r'<<|>>|\|->|:>|@@|[{}\[\](),]|"[^"]*"|-?\d+|\w+')
_LINE = re.compile(r"(?:^|\n)/\\ (\w+) = ")


def read_state(text: str) -> Mapping[str, Value]:
    """Read a state: a conjunction of `variable = value`, or a single one."""
    text = text if text.lstrip().startswith("/\\") else f"/\\ {text.strip()}"
    parts = _LINE.split(text)
    return {name: read_value(value) for name, value in zip(parts[1::2], parts[2::2], strict=True)}


def read_value(text: str) -> Value:
    """Read one value."""
    return _Reader(_TOKENS.findall(text)).value()


class _Reader:
    """Reads values from a list of tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens[::-1]

    def value(self) -> Value:
        token = self._tokens.pop()
        if token == "<<":  # noqa: S105 a bracket, no secret
            return tuple(self._items(">>"))
        if token == "{":  # noqa: S105
            return frozenset(self._items("}"))
        if token == "[":  # noqa: S105
            return _function(self._pairs("|->", ",", "]"))
        if token == "(":  # noqa: S105
            return _function(self._pairs(":>", "@@", ")"))
        if token.startswith('"'):
            return token[1:-1]
        if token in {"TRUE", "FALSE"}:
            return token == "TRUE"  # noqa: S105
        return int(token) if token.lstrip("-").isdigit() else token

    def _items(self, end: str) -> Iterable[Value]:
        while self._tokens[-1] != end:
            yield self.value()
            if self._tokens[-1] == ",":
                self._tokens.pop()
        self._tokens.pop()

    def _pairs(self, arrow: str, comma: str, end: str) -> dict[Value, Value]:
        pairs: dict[Value, Value] = {}
        while self._tokens[-1] != end:
            key = self.value()
            assert self._tokens.pop() == arrow
            pairs[key] = self.value()
            if self._tokens[-1] == comma:
                self._tokens.pop()
        self._tokens.pop()
        return pairs


def _function(pairs: Mapping[Value, Value]) -> Value:
    if pairs and set(pairs) == set(range(1, len(pairs) + 1)):
        return tuple(pairs[at] for at in range(1, len(pairs) + 1))
    return (FUNCTION, frozenset(pairs.items())) if pairs else ()


def as_value(thing: object) -> Value:
    """Turn a Python value into its TLA+ counterpart."""
    if isinstance(thing, enum.Enum):
        return as_value(thing.value)
    if isinstance(thing, (bool, int, str)):
        return thing
    if isinstance(thing, Mapping):
        return _function({as_value(key): as_value(value) for key, value in thing.items()})
    if isinstance(thing, AbstractSet):
        return frozenset(as_value(item) for item in thing)
    if isinstance(thing, Sequence):
        return tuple(as_value(item) for item in thing)
    raise TypeError(f"a view shows numbers, texts, tuples, sets and mappings, not {type(thing).__name__}")
