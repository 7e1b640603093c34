"""Reading objects through the bridge: whole or one range; this goes on while the bridge sheds writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.contracts import storage as s
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import NotReady
from penstock.net.message import Response, StreamResponse
from penstock.services.interop.authority import Purpose
from penstock.wire.conditions import has_it, range_holds, tag_of
from penstock.wire.ids import parse_address
from penstock.wire.ranges import Span, content_range, parse_range

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.contracts.call import Call
    from penstock.net.message import Request
    from penstock.services.interop.webhooks import Behind

OCTETS: Final = b"application/octet-stream"
CHUNK_S: Final = 5.0
_COMMON: Final = (
    (b"Accept-Ranges", b"bytes"),
    (b"Cache-Control", b"private, max-age=31536000, immutable"),
    (b"X-Content-Type-Options", b"nosniff"),
)


class BridgeReads:
    """`GET /o/{addr}`."""

    def __init__(self, behind: Behind) -> None:
        """Take the store and the authority to read from it."""
        self._behind = behind

    async def get(self, request: Request) -> Response | StreamResponse:
        """Answer with the object, a part of it, or that the client has it already."""
        info = await self.head(s.Head(parse_address(request.params["addr"])), request.corr_id)
        tag = tag_of(info.address)
        headers = [(b"ETag", tag), *_COMMON]
        if has_it(request.headers.get(b"if-none-match"), tag):
            return Response(304, content_type=b"", headers=headers)
        holds = request.method == "GET" and range_holds(request.headers.get(b"if-range"), tag)
        span = parse_range(request.headers.get(b"range"), info.size) if holds else None
        if span is not None:
            headers.append((b"Content-Range", content_range(span, info.size)))
        status, span = (200, Span(0, info.size)) if span is None else (206, span)
        call = await self._call(request.corr_id)
        pieces = self._pieces(info.address, span, call, is_head=request.method == "HEAD")
        return StreamResponse(status, pieces, OCTETS, headers, length=span.end - span.start)

    async def head(self, asked: s.Head, corr_id: str) -> s.ObjectInfo:
        """Tell an object's size."""
        storage, call = self._storage(), await self._call(corr_id)
        return await self._behind.storage_calls.call("head", lambda: storage.head(asked, call))

    async def chunk(self, asked: s.Get, corr_id: str) -> s.Chunk:
        """Read bytes of an object."""
        storage, call = self._storage(), await self._call(corr_id)
        return await self._behind.storage_calls.call("get", lambda: storage.get(asked, call))

    async def _call(self, corr_id: str) -> Call:
        return await self._behind.authority.call(Purpose("interop:get", "svc-storage", "get"), corr_id)

    def _storage(self) -> s.Storage:
        if self._behind.storage is None:
            raise NotReady("svc-storage does not run here.", phase="absent", service="svc-storage")
        return self._behind.storage

    async def _pieces(self, address: str, span: Span, call: Call, *, is_head: bool) -> AsyncIterator[bytes]:
        at, storage = span.start, self._storage()
        while at < span.end and not is_head:
            async with timeout("read_chunk", CHUNK_S):
                chunk = await storage.get(s.Get(address, at, min(s.CHUNK_BYTES, span.end - at)), call)
            at += len(chunk.data)
            yield chunk.data
