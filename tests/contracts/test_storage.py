"""The storage contract on every implementation there is, and its pure rules."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts.storage import METHODS, Chunk, Get, Put, check_chunk, clip_range
from penstock.kernel.errors import Integrity, Malformed
from penstock.testing.contracts.memory_storage import MemoryStorage, MemoryStorageOptions
from penstock.wire.ids import address_of
from tests.contracts.suite_storage import ADDRESS, DATA, StorageSuite
from tests.contracts.worlds import World, in_ram, over_memory, over_socket


def make(options: dict[str, object]) -> object:
    return lambda _clock: MemoryStorage(MemoryStorageOptions(**options))


class TestStorageInRam(StorageSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return in_ram(make(options), METHODS)


class TestStorageOverMemory(StorageSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return over_memory(make(options), METHODS)


@pytest.mark.real_loop
class TestStorageOverSocket(StorageSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return over_socket(make(options), METHODS)


@pytest.mark.parametrize("where", [in_ram, over_memory])
async def test_damaged_object_is_never_served(where: object) -> None:
    async with where(make({}), METHODS) as world:
        await world.api.put(Put(DATA))
        world.fake.damage(ADDRESS, b"hellO world")

        for request in (Get(ADDRESS), Get(ADDRESS, 6)):
            with pytest.raises(Integrity):
                await world.api.get(request)


def test_caller_finds_a_whole_object_that_was_changed_on_the_way() -> None:
    check_chunk(Chunk(ADDRESS, 11, 0, DATA))
    check_chunk(Chunk(ADDRESS, 11, 6, b"world"))

    with pytest.raises(Integrity):
        check_chunk(Chunk(ADDRESS, 11, 0, b"hellO world"))


@given(st.binary(max_size=60), st.integers(0, 70), st.one_of(st.none(), st.integers(1, 70)), st.integers(1, 70))
def test_clipped_range_is_the_slice(data: bytes, offset: int, length: int | None, limit: int) -> None:
    try:
        start, end = clip_range(len(data), offset, length, limit)
    except Malformed:
        assert offset >= len(data)
        return
    wanted = data[offset:][: len(data) if length is None else length][:limit]

    assert data[start:end] == wanted


@pytest.mark.parametrize(
    "address", ["b3:" + "A" * 64, "b3:" + "0" * 63, "b3:" + "0" * 64 + "\n", "b3:" + "0" * 63 + "\n"]
)
def test_address_in_another_form_is_refused_by_its_type(address: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"address": address}, Get)

    assert msgspec.convert({"address": address_of(b"")}, Get).address == address_of(b"")
