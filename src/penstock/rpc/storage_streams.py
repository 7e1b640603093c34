"""Whole objects over the storage contract, in pieces: neither side holds more than two pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.storage import (
    CHUNK_BYTES,
    Get,
    Put,
    Storage,
    StoragePuts,
    Stored,
    UploadAbort,
    UploadAppend,
    UploadFinish,
    UploadOpen,
    check_chunk,
)
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Integrity, PenstockError
from penstock.wire.ids import format_address

if TYPE_CHECKING:
    from penstock.contracts.storage import Chunk

_ABORT_S: Final = 5.0


async def put_stream(
    storage: StoragePuts, pieces: AsyncIterator[bytes], *, expect: str | None = None, call: Call = NOBODY
) -> Stored:
    """Store what the iterator yields. An early end stores nothing; an unexpected address or size is a Conflict."""
    chunks = aiter(_chunks(pieces))
    first, second = await anext(chunks, b""), await anext(chunks, None)
    if second is None:
        return await storage.put(Put(first, expect), call)
    upload_id = (await storage.upload_open(UploadOpen(), call)).upload_id
    # From here on only `begun` holds the two: each is let go when it was appended.
    begun = [first, second]
    del first, second
    try:
        await _append_all(storage, upload_id, begun, chunks, call)
        return await storage.upload_finish(UploadFinish(upload_id, expect), call)
    except BaseException:
        with suppress(PenstockError):
            async with timeout("upload_abort", _ABORT_S):
                await storage.upload_abort(UploadAbort(upload_id), call)
        raise


async def _append_all(
    storage: StoragePuts, upload_id: str, begun: list[bytes], chunks: AsyncIterator[bytes], call: Call
) -> None:
    """Append what was read to begin with, then the rest."""
    size = 0
    chunk: bytes | None = begun.pop(0)
    while chunk is not None:
        await storage.upload_append(UploadAppend(upload_id, size, chunk), call)
        size += len(chunk)
        # Let go before the next one comes: only one is held here.
        chunk = None
        chunk = begun.pop() if begun else await anext(chunks, None)


async def _chunks(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join small pieces up to 64 KiB and cut larger ones. A whole chunk is passed on before the next piece is asked."""
    held: list[bytes] = []
    size = 0
    async for piece in pieces:
        if held and size + len(piece) > CHUNK_BYTES:
            yield _joined(held)
            size = 0
        held.append(piece)
        size += len(piece)
        del piece
        while size >= CHUNK_BYTES:
            large = _joined(held)
            size -= CHUNK_BYTES
            if size:
                held.append(large[CHUNK_BYTES:])
            yield large[:CHUNK_BYTES]
            del large
    if held:
        yield _joined(held)


def _joined(held: list[bytes]) -> bytes:
    """Take all that is held, as one chunk."""
    chunk = held[0] if len(held) == 1 else b"".join(held)
    held.clear()
    return chunk


async def get_stream(
    storage: Storage, address: str, *, offset: int = 0, length: int | None = None, call: Call = NOBODY
) -> AsyncIterator[bytes]:
    """Yield an object, or a part of it, in chunks of at most 64 KiB; the first tells whether it is there.

    A whole object is held against its address here too: its last chunk is yielded only when it matches.
    """
    whole = blake3() if offset == 0 and length is None else None
    chunk = await _chunk(storage, address, offset, length, call)
    end = chunk.size if length is None else min(chunk.size, offset + length)
    while True:
        offset += len(chunk.data)
        if whole is not None:
            whole.update(chunk.data)
            if offset >= end and format_address(whole.digest()) != address:
                raise Integrity("The object's bytes do not match its address.")
        yield chunk.data
        if offset >= end:
            return
        chunk = await _chunk(storage, address, offset, end - offset, call)


async def _chunk(storage: Storage, address: str, offset: int, length: int | None, call: Call) -> Chunk:
    wanted = CHUNK_BYTES if length is None else min(length, CHUNK_BYTES)
    chunk = await storage.get(Get(address, offset, wanted), call)
    check_chunk(chunk)
    if not chunk.data and chunk.size > offset:
        raise Integrity("The store answered with nothing.")
    return chunk
