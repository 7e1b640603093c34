"""HTTP to the store and back; no decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from penstock.contracts.storage import Stored
from penstock.kernel.errors import Conflict, Malformed
from penstock.net.caller import call_of
from penstock.net.message import Response, StreamResponse
from penstock.net.promise import Promise
from penstock.net.server.route import Route
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.wire.conditions import has_it, range_holds, tag_of
from penstock.wire.http1.head import CHUNKED
from penstock.wire.ids import parse_address
from penstock.wire.ranges import Span, content_range, parse_range

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.services.storage.authority import StorageAuthority
    from penstock.services.storage.reading import ObjectReader
    from penstock.services.storage.store import ObjectStore

_encode: Final = msgspec.json.Encoder().encode
_BYTES: Final = b"application/octet-stream"
_NOT_MODIFIED: Final = 304
_PARAMS: Final = {"addr": Annotated[str, msgspec.Meta(pattern="^b3:[0-9a-f]{64}$", max_length=67)]}
_PUT_ERRORS: Final = (
    "malformed", "conflict", "over_limit", "unsupported", "busy", "rate_limited", "not_ready", "timeout", "canceled",
    "downstream_unavailable", "internal",
)  # fmt: skip
_GET_ERRORS: Final = (
    "malformed", "not_found", "over_limit", "integrity", "busy", "rate_limited", "not_ready", "timeout",
    "downstream_unavailable", "internal",
)  # fmt: skip
Answer = Response | StreamResponse
# The store's own path, and the one it has at the gateway: a client need not know which of the two it asks.
_PREFIXES: Final = ("/o", "/v1/o")


class StorageRoutes:
    """Every route of the store."""

    def __init__(self, store: ObjectStore, authority: StorageAuthority) -> None:
        """Stand in front of these."""
        self._store = store
        self._authority = authority
        scope = b"public" if store.options.public_read else b"private"
        # An address names its bytes for ever. What people store is never to be taken for a page of ours.
        self._common = (
            (b"Accept-Ranges", b"bytes"),
            (b"Cache-Control", scope + b", max-age=31536000, immutable"),
            (b"X-Content-Type-Options", b"nosniff"),
        )

    def routes(self) -> list[Route]:
        """Describe the routes; OpenAPI and the router read the same description."""
        options = self._store.options
        puts = [
            Route(
                method="PUT", path=path, handler=self._put, op="put", summary=summary, answer=Stored, stream_body=True,
                body_bytes_max=options.put_bytes_max,
                body_setting="storage.put_max_bytes", body_advice="Raise storage.put_max_bytes, or store it in parts.",
                deadline_s=options.transfer_deadline_s, errors=_PUT_ERRORS,
                params=_PARAMS,
            )
            for start in _PREFIXES
            for path, summary in (
                (start, "Store bytes."),
                (f"{start}/{{addr}}", "Store bytes if this is their address."),
            )
        ]  # fmt: skip
        gets = [
            Route(
                method="GET", path=f"{start}/{{addr}}", handler=self._get, op="get",
                summary="Read an object, or a range of it.", open=options.public_read, body_bytes_max=0,
                errors=_GET_ERRORS, params=_PARAMS,
            )
            for start in _PREFIXES
        ]  # fmt: skip
        return [*puts, *gets]

    # --- storing

    def _put(self, request: Request) -> Coroutine[Any, Any, Response] | Promise | Response:
        """Refuse what can be refused before the body: the client then need not send it.

        A small body that came with its head is stored without a task: the step that commits it answers.
        """
        waiting = self._authority.allow(call_of(request), "put", self._cost_bytes(request))
        if waiting is None:
            expect = self._check(request)
            if request.body and len(request.body) <= LEAF_BYTES:
                self._store.check_ready()
                stored = self._store.put_small(request.body, expect, _stored)
                return _stored(stored) if isinstance(stored, Stored) else stored
        return self._take(request, waiting)

    def _cost_bytes(self, request: Request) -> int:
        """Say what a byte budget is charged: the length, or the most it can be where that is not known."""
        length = _length(request)
        return self._store.options.put_bytes_max if length is None else length

    def _check(self, request: Request) -> str | None:
        """Return the address the bytes must have, if any was given; refuse what cannot end well."""
        if b"content-range" in request.headers:
            raise Malformed("An object is put whole.", reason="content_range")
        path, header = request.params.get("addr"), request.headers.get(b"x-expect-addr")
        named = {parse_address(each) for each in (path, _text(header)) if each is not None}
        if len(named) > 1:
            raise Conflict("The path and X-Expect-Addr name two addresses.", reason="digest_mismatch")
        expect = next(iter(named), None)
        if expect is None:
            # Under an expected address the object may be there already, and then needs no room.
            self._store.ledger.check(_length(request) or 0)
        return expect

    async def _take(self, request: Request, waiting: Awaitable[object] | None) -> Response:
        if waiting is not None:
            await waiting
        expect = self._check(request)
        return _stored(await self._store.take(request.stream(), expect, _length(request) or 0))

    # --- reading

    def _get(self, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
        """Answer at once with a small object that is in memory; anything else takes a task and a visit to the disk."""
        waiting = self._authority.allow(call_of(request), "get")
        if waiting is None:
            address = parse_address(request.params["addr"])
            self._store.check_ready()
            found = self._store.find_now(address)
            if found is not None and found.data is not None:
                return self._whole(request, address, found.data)
        return self._read(request, waiting)

    def _whole(self, request: Request, address: str, data: bytes) -> Response:
        """Answer with an object that is in hand, or with the part of it that was asked for."""
        status, span, headers = self._asked(request, address, len(data))
        if status == _NOT_MODIFIED:
            return Response(status, content_type=b"", headers=headers)
        if request.method != "HEAD":
            data = data if span is None else data[span.start : span.end]
            self._store.bytes_out.value += len(data)
        return Response(status, data, _BYTES, headers)

    def _asked(self, request: Request, address: str, size: int) -> tuple[int, Span | None, list[tuple[bytes, bytes]]]:
        """Judge the conditions and the range of a request: the status, the part, and the fields of the answer."""
        tag = tag_of(address)
        headers = [*self._common, (b"ETag", tag)]
        if has_it(request.headers.get(b"if-none-match"), tag):
            return _NOT_MODIFIED, None, headers
        asked = request.headers.get(b"range")
        if asked is None or request.method == "HEAD" or not range_holds(request.headers.get(b"if-range"), tag):
            return 200, None, headers
        span = parse_range(asked, size)
        if span is None:
            return 200, None, headers
        headers.append((b"Content-Range", content_range(span, size)))
        return 206, span, headers

    async def _read(self, request: Request, waiting: Awaitable[object] | None) -> Answer:
        if waiting is not None:
            await waiting
        address = parse_address(request.params["addr"])
        with self._store.reading() as reading:
            found = await reading.find(address)
            status, span, headers = self._asked(request, address, found.size)
            if status == _NOT_MODIFIED:
                return Response(status, content_type=b"", headers=headers)
            if request.method == "HEAD":
                return StreamResponse(status, reading.keep(), _BYTES, headers, found.size)
            return await _answer(reading, span or Span(0, found.size), status, headers)


def _stored(stored: Stored) -> Response:
    place = f"/o/{stored.address}".encode("ascii")
    headers = ((b"Location", place), (b"ETag", tag_of(stored.address)))
    return Response(200 if stored.existed else 201, _encode(stored), headers=headers)


async def _answer(reading: ObjectReader, span: Span, status: int, headers: list[tuple[bytes, bytes]]) -> Answer:
    await reading.span(span.start, span.end)
    whole = reading.whole()
    if whole is not None:
        return Response(status, whole, _BYTES, headers)
    return StreamResponse(status, reading.keep(), _BYTES, headers, span.end - span.start)


def _length(request: Request) -> int | None:
    """Return how many bytes will be stored, if the head tells."""
    head = request.head
    encoded = request.headers.get(b"content-encoding", b"identity") != b"identity"
    return None if head.length == CHUNKED or encoded else head.length


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("ascii", "replace")
