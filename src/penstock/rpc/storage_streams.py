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
    storage: Storage, pieces: AsyncIterator[bytes], *, expect: str | None = None, call: Call = NOBODY
) -> Stored:
    """Store what the iterator yields. An early end stores nothing; an unexpected address or size is a Conflict."""
    held = bytearray()
    async for piece in pieces:
        held += piece
        if len(held) > CHUNK_BYTES:
            break
    else:
        return await storage.put(Put(bytes(held), expect), call)
    upload_id = (await storage.upload_open(UploadOpen(), call)).upload_id
    try:
        size = await _append_all(storage, upload_id, held, pieces, call)
        await storage.upload_append(UploadAppend(upload_id, size, bytes(held)), call)
        return await storage.upload_finish(UploadFinish(upload_id, expect), call)
    except BaseException:
        with suppress(PenstockError):
            async with timeout("upload_abort", _ABORT_S):
                await storage.upload_abort(UploadAbort(upload_id), call)
        raise


async def _append_all(
    storage: Storage, upload_id: str, held: bytearray, pieces: AsyncIterator[bytes], call: Call
) -> int:
    """Send whole chunks as they fill; return how much was sent, with the rest left in `held`."""
    size = await _append_full(storage, upload_id, held, 0, call)
    async for piece in pieces:
        held += piece
        size = await _append_full(storage, upload_id, held, size, call)
    return size


async def _append_full(storage: Storage, upload_id: str, held: bytearray, size: int, call: Call) -> int:
    while len(held) > CHUNK_BYTES:
        data = bytes(memoryview(held)[:CHUNK_BYTES])
        await storage.upload_append(UploadAppend(upload_id, size, data), call)
        del held[:CHUNK_BYTES]
        size += len(data)
    return size


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
