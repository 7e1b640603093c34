"""The content store through the gateway: objects by their digest, whole or in ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.contracts import storage as s
from penstock.contracts.call import NOBODY
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Conflict
from penstock.net.message import Response, StreamResponse
from penstock.net.server.route import Route
from penstock.rpc.storage_streams import put_stream
from penstock.services.omnigate.own.calling import (
    call_of,
    convert,
    present,
    text_of,
)
from penstock.wire.conditions import has_it, range_holds, tag_of
from penstock.wire.ranges import Span, content_range, parse_range

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.contracts.call import Call
    from penstock.net.message import Request
    from penstock.services.omnigate.own.calling import DownstreamCalls

OCTETS: Final = b"application/octet-stream"
DOWNSTREAM_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "expired",
    "forbidden",
    "policy_blocked",
    "busy",
    "rate_limited",
    "timeout",
    "not_ready",
    "downstream_unavailable",
)
# What never changes may be kept for good, but only by who was allowed to fetch it.
_KEPT: Final = (b"Cache-Control", b"private, max-age=31536000, immutable")
_RANGES: Final = (b"Accept-Ranges", b"bytes")
# What people store is never to be taken for a page of ours.
_PLAIN: Final = (b"X-Content-Type-Options", b"nosniff")


TRANSFER_S: Final = 600.0
"""How long a whole object may take on its way in; each piece has the listener's own deadline."""
_PUTS: Final = (
    ("/v1/o", "Store the body under its digest."),
    ("/v1/o/{address}", "Store the body if this is its address."),
)


class PutOut(msgspec.Struct, frozen=True):
    """Where the bytes are."""

    address: str
    size: int


class ObjectSource(Protocol):
    """Objects to be read: svc-storage, or svc-interop in front of it."""

    async def head(self, request: s.Head, call: Call = NOBODY) -> s.ObjectInfo:
        """Tell the size; NotFound."""

    async def get(self, request: s.Get, call: Call = NOBODY) -> s.Chunk:
        """Read bytes, verified."""


class ObjectReads:
    """Objects as answers: whole, one range, or that the client has it already."""

    def __init__(
        self, source: ObjectSource | None, downstream: DownstreamCalls, *, service: str, chunk_s: float
    ) -> None:
        """Read from `source`, which is `service`; `chunk_s` bounds the wait for each further piece of a stream."""
        self._source = source
        self._downstream = downstream
        self._service = service
        self.chunk_s = chunk_s

    async def answer(self, request: Request) -> Response | StreamResponse:
        """Answer with the object, a part of it, or that the client has it already. HEAD is this without the bytes."""
        source, call = present(self._source, self._service), call_of(request)
        asked = convert({"address": request.params["address"]}, s.Head)
        info = await self._downstream.call("head", lambda: source.head(asked, call), idempotent=True)
        tag = tag_of(info.address)
        headers = [(b"ETag", tag), _RANGES, _KEPT, _PLAIN]
        if has_it(request.headers.get(b"if-none-match"), tag):
            return Response(304, content_type=b"", headers=headers)
        holds = request.method == "GET" and range_holds(request.headers.get(b"if-range"), tag)
        span = parse_range(request.headers.get(b"range"), info.size) if holds else None
        if span is not None:
            headers.append((b"Content-Range", content_range(span, info.size)))
        status, span = (200, Span(0, info.size)) if span is None else (206, span)
        if request.method == "HEAD":
            return StreamResponse(status, _Nothing(), OCTETS, headers, length=info.size)
        return await self._send(info.address, span, call, status=status, headers=headers)

    async def _send(
        self, address: str, span: Span, call: Call, *, status: int, headers: list[tuple[bytes, bytes]]
    ) -> Response | StreamResponse:
        """Fetch the first bytes before the head is sent, so that a damaged object can still be answered with an error.

        So many of them that the store vouches for the whole object: a damaged one is refused, not cut.
        """
        source = present(self._source, self._service)
        if span.start == span.end:
            return Response(status, b"", OCTETS, headers)
        get = s.Get(address, span.start, min(s.VOUCHED_BYTES, span.end - span.start))
        first = await self._downstream.call("get", lambda: source.get(get, call), idempotent=True)
        if len(first.data) == span.end - span.start:
            return Response(status, first.data, OCTETS, headers)
        pieces = self._pieces(source, first, span.end, call)
        return StreamResponse(status, pieces, OCTETS, headers, length=span.end - span.start)

    async def _pieces(self, source: ObjectSource, first: s.Chunk, end: int, call: Call) -> AsyncIterator[bytes]:
        piece, at = first, first.offset
        while True:
            for start in range(0, len(piece.data), s.CHUNK_BYTES):
                yield piece.data[start : start + s.CHUNK_BYTES]
            at += len(piece.data)
            if at >= end:
                return
            async with timeout("read", self.chunk_s):
                piece = await source.get(s.Get(piece.address, at, min(s.CHUNK_BYTES, end - at)), call)


class ObjectRoutes:
    """`/v1/o`."""

    def __init__(
        self,
        storage: s.Storage | None,
        downstream: DownstreamCalls,
        *,
        chunk_s: float,
        put_bytes_max: int = 64 << 20,
    ) -> None:
        """Take the contract; `chunk_s` bounds the wait for each further piece of a streamed object."""
        self._storage = storage
        self._downstream = downstream
        self.reads = ObjectReads(storage, downstream, service="svc-storage", chunk_s=chunk_s)
        self._put_bytes_max = put_bytes_max

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [
            Route(
                method="GET",
                path="/v1/o/{address}",
                params={"address": s.Address},
                handler=self.reads.answer,
                op="get",
                summary="The bytes of an object, verified; one range at a time.",
                errors=(*DOWNSTREAM_ERRORS, "not_found", "integrity"),
            ),
            *(
                Route(
                    method="PUT",
                    path=path,
                    params={"address": s.Address},
                    handler=self._put,
                    answer=PutOut,
                    stream_body=True,
                    body_bytes_max=self._put_bytes_max,
                    body_setting="omnigate.put_max_bytes",
                    body_advice="Raise omnigate.put_max_bytes and storage.put_max_bytes, or store it in parts.",
                    deadline_s=TRANSFER_S,
                    op="put",
                    summary=summary,
                    errors=(*DOWNSTREAM_ERRORS, "conflict", "over_limit"),
                )
                for path, summary in _PUTS
            ),
        ]

    async def _put(self, request: Request) -> Response:
        """Pass the body on in pieces of 64 KiB; the gateway never holds more than two of them."""
        storage = _DisciplinedPuts(present(self._storage, "svc-storage"), self._downstream)
        stored = await put_stream(storage, request.stream(), expect=_expected(request), call=call_of(request))
        headers = [(b"ETag", tag_of(stored.address)), (b"Location", b"/v1/o/" + stored.address.encode("ascii"))]
        body = msgspec.json.encode(PutOut(stored.address, stored.size))
        return Response(200 if stored.existed else 201, body, headers=headers)


def _expected(request: Request) -> str | None:
    """Return the address the bytes must have: of the path, else of `X-Expect-Addr`."""
    named = {request.params.get("address"), text_of(request.headers.get(b"x-expect-addr"))} - {None}
    if len(named) > 1:
        raise Conflict("The path and X-Expect-Addr name two addresses.", reason="digest_mismatch")
    expect = next(iter(named), None)
    return None if expect is None else convert({"address": expect}, s.Head).address


class _DisciplinedPuts:
    """The writing half of the contract, each call under the downstream's limiter, breaker and deadline."""

    def __init__(self, storage: s.Storage, downstream: DownstreamCalls) -> None:
        self._storage = storage
        self._downstream = downstream

    async def put(self, request: s.Put, call: Call = NOBODY) -> s.Stored:
        # The same bytes twice are one object: safe to try again.
        return await self._downstream.call("put", lambda: self._storage.put(request, call), idempotent=True)

    async def upload_open(self, request: s.UploadOpen, call: Call = NOBODY) -> s.Upload:
        work = self._storage.upload_open
        return await self._downstream.call("upload_open", lambda: work(request, call), idempotent=False)

    async def upload_append(self, request: s.UploadAppend, call: Call = NOBODY) -> s.Upload:
        work = self._storage.upload_append
        return await self._downstream.call("upload_append", lambda: work(request, call), idempotent=True)

    async def upload_finish(self, request: s.UploadFinish, call: Call = NOBODY) -> s.Stored:
        work = self._storage.upload_finish
        return await self._downstream.call("upload_finish", lambda: work(request, call), idempotent=False)

    async def upload_abort(self, request: s.UploadAbort, call: Call = NOBODY) -> s.Done:
        work = self._storage.upload_abort
        return await self._downstream.call("upload_abort", lambda: work(request, call), idempotent=True)


class _Nothing:
    """An empty body for the answer to HEAD."""

    def __aiter__(self) -> _Nothing:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration
