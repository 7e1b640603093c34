"""A mutator that sees no coverage: what the suite uses, and what stands in where Atheris cannot be had."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
BYTES_MAX: Final = 64 * 1024
_EDGES: Final = (
    b"\0",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\r\n",
    b"\r\n\r\n",
    b'"',
    b"=",
    b",",
)


def corpus_of(name: str) -> list[bytes]:
    """Return the committed inputs of a target, in a fixed order; nothing at all is always among them."""
    return [b"", *(path.read_bytes() for path in sorted((CORPUS / name).iterdir()))]


def mutated(rng: random.Random, inputs: list[bytes]) -> bytes:
    """Bend one input in one to four places."""
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.randint(1, 4)):
        rng.choice(_MUTATIONS)(rng, data, inputs)
    return bytes(data[:BYTES_MAX])


def _place(rng: random.Random, data: bytearray) -> int:
    return rng.randrange(len(data)) if data else 0


def _flip(rng: random.Random, data: bytearray, _inputs: list[bytes]) -> None:
    if data:
        data[_place(rng, data)] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray, _inputs: list[bytes]) -> None:
    if data:
        data[_place(rng, data)] = rng.randrange(256)


def _insert(rng: random.Random, data: bytearray, _inputs: list[bytes]) -> None:
    at = _place(rng, data)
    data[at:at] = rng.choice(_EDGES) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 8))


def _remove(rng: random.Random, data: bytearray, _inputs: list[bytes]) -> None:
    at = _place(rng, data)
    del data[at : at + rng.randint(1, 8)]


def _cut(rng: random.Random, data: bytearray, _inputs: list[bytes]) -> None:
    del data[_place(rng, data) :]


def _double(rng: random.Random, data: bytearray, _inputs: list[bytes]) -> None:
    at = _place(rng, data)
    data[at:at] = data[at : at + rng.randint(1, 64)]


def _splice(rng: random.Random, data: bytearray, inputs: list[bytes]) -> None:
    other = rng.choice(inputs)
    data[_place(rng, data) :] = other[rng.randrange(len(other)) :] if other else b""


_MUTATIONS: Final[tuple[Callable[[random.Random, bytearray, list[bytes]], None], ...]] = (
    _flip, _flip, _set, _insert, _remove, _cut, _double, _splice,
)  # fmt: skip
