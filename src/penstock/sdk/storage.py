"""svc-storage for users: objects under their BLAKE3 digest, checked in both directions."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from blake3 import blake3

from penstock.contracts.storage import ObjectInfo, Stored
from penstock.kernel.errors import DownstreamUnavailable, Integrity, Malformed
from penstock.net.calls.client import StreamAnswer
from penstock.sdk.calling import Caller, PreparedCall
from penstock.sdk.values import check_least, in_words
from penstock.wire.ids import address_of, format_address, parse_address

_BYTES: Final = b"application/octet-stream"
# A large object gets a second for each of these on top of the call's own time.
_SLOW_BYTES_PER_S: Final = 1 << 20


class _Answer(msgspec.Struct, frozen=True):
    address: str
    size: int | None = None


class StorageClient:
    """Objects by content address."""

    def __init__(self, caller: Caller) -> None:
        """Call through this; it is not owned."""
        self._caller = caller

    async def put(self, data: bytes | bytearray | memoryview) -> Stored:
        """Store bytes; the same bytes twice are one object. The address sent along shows a change on the way."""
        body = _bytes(data)
        ask = _put(f"/v1/o/{address_of(body)}", body, len(body))
        return await self._stored(ask, len(body))

    async def put_stream(
        self, pieces: AsyncIterator[bytes], *, size: int | None = None, expect: str | None = None
    ) -> Stored:
        """Store bytes that come in pieces. It is never retried. With `expect`, only if that is their address."""
        digest, told = blake3(), _Counted()
        _check_pieces(pieces)

        async def hashed() -> AsyncIterator[bytes]:
            async for piece in pieces:
                _check_piece(piece)
                digest.update(piece)
                told.size += len(piece)
                yield piece

        path = "/v1/o" if expect is None else _path(expect)
        stored = await self._stored(_put(path, hashed(), size), None)
        if stored.address != format_address(digest.digest()):
            raise Integrity("The object was changed on its way.")
        return Stored(stored.address, told.size, stored.existed)

    async def get(self, address: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Read an object or a part of it; a whole one is checked against its address."""
        ask = _get(address, offset, length)
        answer = await self._caller.ask(ask)
        _check_part(ask, answer.status)
        if not ask.headers and address_of(answer.body) != address:
            raise Integrity("The object was changed on its way.")
        return answer.body

    @asynccontextmanager
    async def open(self, address: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[StreamAnswer]:
        """Read as it comes: `async with storage.open(address) as pieces: async for piece in pieces`."""
        ask = _get(address, offset, length)
        async with self._caller.stream(ask) as answer:
            _check_part(ask, answer.status)
            yield answer

    async def head(self, address: str) -> ObjectInfo:
        """Tell an object's size; `NotFound`."""
        ask = PreparedCall(method="HEAD", path=_path(address), idempotent=True)
        answer = await self._caller.ask(ask)
        return ObjectInfo(address, int(answer.headers[b"content-length"]))

    async def _stored(self, ask: PreparedCall, size: int | None) -> Stored:
        answer = await self._caller.ask(ask)
        told = answer.json(_Answer)
        return Stored(told.address, size if size is not None else told.size or 0, existed=answer.status == 200)


def _bytes(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    how = "; encode it first: put(text.encode())" if isinstance(data, str) else ""
    raise Malformed(f"put takes bytes, not {in_words(data)}{how}.")


def _check_pieces(pieces: object) -> None:
    if not isinstance(pieces, AsyncIterable):
        how = "; for these, call put" if isinstance(pieces, bytes) else ""
        raise Malformed(f"put_stream takes an async iterator of bytes, not {in_words(pieces)}{how}.")


def _check_piece(piece: object) -> None:
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise Malformed(f"The pieces of put_stream are bytes, not {in_words(piece)}.")


def _path(address: object) -> str:
    if not isinstance(address, str):
        raise Malformed(f"An address is a text such as b3:..., not {in_words(address)}.")
    return f"/v1/o/{parse_address(address)}"


class _Counted:
    """Counts the bytes that have passed."""

    def __init__(self) -> None:
        self.size = 0


def _put(path: str, body: bytes | AsyncIterator[bytes], size: int | None) -> PreparedCall:
    wait_s = (64 << 20 if size is None else size) / _SLOW_BYTES_PER_S
    whole = isinstance(body, bytes)
    return PreparedCall(
        method="PUT",
        path=path,
        body=body,
        body_bytes=None if whole else size,
        kind=_BYTES,
        idempotent=whole,
        wait_s=wait_s,
    )


def _get(address: str, offset: int, length: int | None) -> PreparedCall:
    headers = ((b"Range", _range(offset, length)),) if offset or length is not None else ()
    return PreparedCall(method="GET", path=_path(address), headers=headers, idempotent=True)


def _check_part(ask: PreparedCall, status: int) -> None:
    """Refuse a whole object where a part was asked for."""
    if ask.headers and status != 206:
        raise DownstreamUnavailable("A part was asked for, and the whole came.", status=502)


def _range(offset: int, length: int | None) -> bytes:
    check_least("offset", offset, 0)
    if length is not None:
        check_least("length", length, 1)
    return b"bytes=%d-" % offset if length is None else b"bytes=%d-%d" % (offset, offset + length - 1)
