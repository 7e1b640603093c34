"""What every implementation of the storage contract must do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from penstock.contracts.storage import Get, Head, Put, UploadAbort, UploadAppend, UploadFinish, UploadOpen
from penstock.kernel.errors import Busy, Conflict, Malformed, NotFound, OverLimit
from penstock.rpc.storage_streams import get_stream, put_stream
from penstock.wire.ids import address_of
from tests.contracts.worlds import World

DATA = b"hello world"
ADDRESS = "b3:d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24"


LARGE = bytes(range(251)) * 1100  # four leaves and a part, every leaf different


async def cut(data: bytes, size: int) -> AsyncIterator[bytes]:
    """Give bytes in pieces."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def cut_short(data: bytes) -> AsyncIterator[bytes]:
    """Give bytes in pieces, and fail before the last."""
    async for piece in cut(data, 50_000):
        yield piece
    raise ConnectionError("the source is gone")


class StorageSuite:
    """The promises of the content store that can be seen through its contract."""

    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        raise AssertionError("a subclass says which implementation")

    async def test_bytes_are_found_under_their_digest(self) -> None:
        async with self.world() as world:
            stored = await world.api.put(Put(DATA))

            assert (stored.address, stored.size, stored.existed) == (ADDRESS, 11, False)
            got = await world.api.get(Get(ADDRESS))
            assert (got.data, got.size, got.offset) == (DATA, 11, 0)
            assert (await world.api.head(Head(ADDRESS))).size == 11

    async def test_putting_again_is_the_same_object(self) -> None:
        async with self.world() as world:
            await world.api.put(Put(DATA))

            assert (await world.api.put(Put(DATA, ADDRESS))).existed

    async def test_address_that_differs_from_a_stored_one_in_its_last_digit_alone_is_not_found(self) -> None:
        async with self.world() as world:
            await world.api.put(Put(DATA))
            near = ADDRESS[:-1] + ("0" if ADDRESS[-1] != "0" else "1")
            for request in (world.api.get(Get(near)), world.api.head(Head(near))):
                with pytest.raises(NotFound):
                    await request

            assert (await world.api.get(Get(ADDRESS))).data == DATA

    async def test_expected_address_that_does_not_match_stores_nothing(self) -> None:
        async with self.world() as world:
            with pytest.raises(Conflict):
                await world.api.put(Put(b"other", ADDRESS))

            with pytest.raises(NotFound):
                await world.api.head(Head(address_of(b"other")))

    async def test_unknown_address_is_not_found(self) -> None:
        async with self.world() as world:
            for request in (world.api.get(Get(ADDRESS)), world.api.head(Head(ADDRESS))):
                with pytest.raises(NotFound):
                    await request

    @pytest.mark.parametrize(
        ("offset", "length", "want"), [(0, 5, b"hello"), (6, None, b"world"), (6, 99, b"world"), (10, 1, b"d")]
    )
    async def test_ranges(self, offset: int, length: int | None, want: bytes) -> None:
        async with self.world() as world:
            await world.api.put(Put(DATA))
            got = await world.api.get(Get(ADDRESS, offset, length))

            assert (got.data, got.offset, got.size) == (want, offset, 11)

    async def test_range_beyond_the_end_is_416(self) -> None:
        async with self.world() as world:
            await world.api.put(Put(DATA))
            with pytest.raises(Malformed) as caught:
                await world.api.get(Get(ADDRESS, 11))

            assert (caught.value.status, caught.value.facts["size"]) == (416, 11)

    async def test_empty_object_is_an_object(self) -> None:
        async with self.world() as world:
            address = (await world.api.put(Put(b""))).address

            assert (await world.api.get(Get(address))).data == b""

    async def test_object_in_pieces_is_the_same_object(self) -> None:
        async with self.world() as world:
            upload = (await world.api.upload_open(UploadOpen())).upload_id
            for offset, piece in ((0, b"hello "), (6, b"wor"), (6, b"wor"), (9, b"ld")):
                await world.api.upload_append(UploadAppend(upload, offset, piece))
            stored = await world.api.upload_finish(UploadFinish(upload, ADDRESS))

            assert stored.address == ADDRESS
            assert (await world.api.get(Get(ADDRESS))).data == DATA
            with pytest.raises(NotFound):
                await world.api.upload_append(UploadAppend(upload, 11, b"!"))

    async def test_gap_or_overlap_in_the_pieces_is_a_conflict(self) -> None:
        async with self.world() as world:
            upload = (await world.api.upload_open(UploadOpen())).upload_id
            await world.api.upload_append(UploadAppend(upload, 0, b"hello "))
            for offset, piece in ((7, b"x"), (3, b"abc"), (0, b"HELLO ")):
                with pytest.raises(Conflict):
                    await world.api.upload_append(UploadAppend(upload, offset, piece))

    async def test_finish_with_the_wrong_address_keeps_the_pieces(self) -> None:
        async with self.world() as world:
            upload = (await world.api.upload_open(UploadOpen())).upload_id
            await world.api.upload_append(UploadAppend(upload, 0, DATA))
            with pytest.raises(Conflict):
                await world.api.upload_finish(UploadFinish(upload, address_of(b"other")))

            assert (await world.api.upload_finish(UploadFinish(upload))).address == ADDRESS

    async def test_aborted_upload_leaves_nothing_and_uploads_are_bounded(self) -> None:
        async with self.world(uploads_max=1) as world:
            upload = (await world.api.upload_open(UploadOpen())).upload_id
            with pytest.raises(Busy):
                await world.api.upload_open(UploadOpen())
            for _ in range(2):
                await world.api.upload_abort(UploadAbort(upload))

            assert (await world.api.upload_open(UploadOpen())).size == 0

    async def test_full_store_is_507_and_a_large_object_413(self) -> None:
        async with self.world(bytes_max=20, object_bytes_max=15) as world:
            await world.api.put(Put(DATA))
            with pytest.raises(OverLimit) as full:
                await world.api.put(Put(b"0123456789"))
            with pytest.raises(OverLimit) as large:
                await world.api.put(Put(bytes(16)))

            assert (full.value.status, large.value.status) == (507, 413)
            assert (await world.api.put(Put(DATA))).existed

    @pytest.mark.parametrize(
        ("size", "piece"),
        [(1, 50_000), (65_535, 65_536), (65_536, 50_000), (65_537, 65_536), (131_072, 200_000), (131_073, 50_000)]
        + [(len(LARGE), piece) for piece in (50_000, 65_536, 200_000)],
    )
    async def test_streamed_object_comes_back_the_same(self, size: int, piece: int) -> None:
        data = LARGE[:size]
        async with self.world() as world:
            stored = await put_stream(world.api, cut(data, piece))

            assert (stored.address, stored.size, stored.existed) == (address_of(data), size, False)
            assert b"".join([each async for each in get_stream(world.api, stored.address)]) == data
            assert (await put_stream(world.api, cut(data, piece), expect=stored.address)).existed

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 70_000), (65_536, 1), (65_535, 2), (130_000, None), (7, 200_000)]
    )
    async def test_part_of_a_large_object_is_its_slice(self, offset: int, length: int | None) -> None:
        async with self.world() as world:
            address = (await put_stream(world.api, cut(LARGE, 65_536))).address
            pieces = [each async for each in get_stream(world.api, address, offset=offset, length=length)]

            assert b"".join(pieces) == LARGE[offset:][: len(LARGE) if length is None else length]
            assert max(map(len, pieces)) <= 65_536

    async def test_stream_that_breaks_leaves_nothing_behind(self) -> None:
        async with self.world(uploads_max=1) as world:
            for _ in range(3):
                with pytest.raises(ConnectionError):
                    await put_stream(world.api, cut_short(LARGE))

            with pytest.raises(NotFound):
                await world.api.head(Head(address_of(LARGE)))
            assert not (await put_stream(world.api, cut(LARGE, 65_536))).existed

    async def test_streamed_object_that_is_not_the_expected_one_is_a_conflict(self) -> None:
        async with self.world() as world:
            with pytest.raises(Conflict):
                await put_stream(world.api, cut(LARGE, 65_536), expect=ADDRESS)

            with pytest.raises(NotFound):
                await world.api.head(Head(address_of(LARGE)))

    async def test_equal_objects_at_the_same_moment_are_stored_once(self) -> None:
        async with self.world() as world:
            stored = await asyncio.gather(*(world.api.put(Put(LARGE)) for _ in range(8)))

            assert sorted(each.existed for each in stored) == [False] + [True] * 7
