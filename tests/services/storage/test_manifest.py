"""How an object lies in its file: every size can be told from the file's, and every bit is vouched for."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.kernel.errors import Integrity
from penstock.services.storage.manifest import LEAF_BYTES, Manifest, decode, manifest_bytes, object_bytes
from penstock.services.storage.temporary_object import TemporaryObject
from penstock.wire.ids import address_of

DATA = random.Random(7).randbytes(3 * LEAF_BYTES + 1234)


def made(data: bytes) -> Manifest:
    draft = TemporaryObject("x")
    whole = (len(data) - 1) // LEAF_BYTES * LEAF_BYTES
    draft.add(data[:whole])
    return draft.manifest(data[whole:])


@given(st.integers(0, 1 << 34))
@example(LEAF_BYTES)
@example(LEAF_BYTES + 1)
@example(2 * LEAF_BYTES)
@example(2 * LEAF_BYTES + 1)
def test_size_of_an_object_is_told_by_the_size_of_its_file(size: int) -> None:
    assert object_bytes(size + manifest_bytes(size)) == size


@given(st.integers(0, 20 * LEAF_BYTES))
def test_file_that_no_object_makes_is_told(file_bytes: int) -> None:
    size = object_bytes(file_bytes)

    assert size is None or size + manifest_bytes(size) == file_bytes


def test_draft_in_parts_is_the_object_as_a_whole() -> None:
    assert made(DATA).address == address_of(DATA)
    assert decode(address_of(DATA), len(DATA), made(DATA).encode()) == made(DATA)


def test_every_flipped_bit_of_a_manifest_is_found() -> None:
    written = made(DATA).encode()
    for bit in range(len(written) * 8):
        flipped = bytearray(written)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Integrity):
            decode(address_of(DATA), len(DATA), bytes(flipped))


def test_manifest_of_another_object_does_not_hold() -> None:
    with pytest.raises(Integrity):
        decode(address_of(b"other"), len(DATA), made(DATA).encode())


def test_leaf_is_believed_only_in_its_own_place() -> None:
    manifest = made(DATA)
    leaves = [DATA[at : at + LEAF_BYTES] for at in range(0, len(DATA), LEAF_BYTES)]
    for number, leaf in enumerate(leaves):
        manifest.check(number, leaf)
        with pytest.raises(Integrity):
            manifest.check((number + 1) % len(leaves), leaf)

    with pytest.raises(Integrity):
        manifest.check(0, DATA[: LEAF_BYTES - 1])
