"""HTTP to contract and back; no decisions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from penstock.contracts import dht as d
from penstock.kernel.errors import Malformed, PenstockError
from penstock.net.caller import call_of
from penstock.net.message import StreamResponse
from penstock.net.server.route import Route
from penstock.services.dht.core.ids import parse_key
from penstock.services.dht.status import RecordsShown, TableShown, records_shown, table_shown

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.services.dht.api import DhtApi

T = TypeVar("T")
_ERRORS: Final = (
    "malformed",
    "unauthenticated",
    "expired",
    "forbidden",
    "busy",
    "rate_limited",
    "not_ready",
    "timeout",
    "canceled",
    "downstream_unavailable",
    "internal",
)
_EVENTS: Final = b"text/event-stream"
_encode: Final = msgspec.json.Encoder().encode
_KEY: Final = {"key": d.DhtKey}
_NODE: Final = {"id": d.DhtKey}
_QUERY: Final = {"limit": (1, 64), "wait_ms": (50, 10_000), "paths": (1, 3)}


class DhtRoutes:
    """The routes of the service."""

    def __init__(self, api: DhtApi, touched_at: list[float]) -> None:
        """Take the contract's implementation, and when each bucket was last looked into."""
        self._api = api
        self._touched_at = touched_at

    def routes(self) -> list[Route]:
        """Describe the routes; OpenAPI and the router read the same description."""
        return [*self._data_routes(), *self._admin_routes()]

    def _data_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/v1/dht/provide",
                handler=self._provide,
                body=d.Provide,
                answer=d.Provided,
                op="provide",
                summary="Announce that this node provides a key.",
                errors=(*_ERRORS, "over_limit"),
                deadline_s=12.0,
            ),
            Route(
                method="DELETE",
                path="/v1/dht/provide/{key}",
                params=_KEY,
                handler=self._withdraw,
                answer=d.DhtDone,
                op="provide",
                summary="Withdraw an announcement.",
                errors=(*_ERRORS, "not_found"),
                deadline_s=12.0,
            ),
            Route(
                method="GET",
                path="/v1/dht/providers/{key}",
                params=_KEY,
                handler=self._find,
                answer=d.Providers,
                query=d.Find,
                op="find",
                summary="Find who provides a key; as an event stream, records as they come.",
                errors=_ERRORS,
                deadline_s=12.0,
            ),
        ]

    def _admin_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/v1/dht/nodes/{id}",
                params=_NODE,
                handler=self._nodes,
                answer=d.DhtNodes,
                op="admin",
                summary="Find the nodes nearest to an id.",
                errors=_ERRORS,
                deadline_s=12.0,
            ),
            Route(
                method="GET",
                path="/v1/dht/table",
                handler=self._table,
                answer=TableShown,
                op="admin",
                summary="The routing table.",
                errors=_ERRORS,
            ),
            Route(
                method="GET",
                path="/v1/dht/records",
                handler=self._records,
                answer=RecordsShown,
                op="admin",
                summary="Records kept for others, and the node's own.",
                errors=_ERRORS,
            ),
            Route(
                method="GET",
                path="/v1/dht/status",
                handler=self._status,
                answer=d.DhtStatus,
                op="admin",
                summary="How the node stands in the network.",
                errors=_ERRORS,
            ),
            Route(
                method="POST",
                path="/v1/dht/ping",
                handler=self._ping,
                body=d.DhtPing,
                answer=d.DhtPong,
                op="admin",
                summary="Dial an address and see who answers.",
                errors=_ERRORS,
            ),
        ]

    async def _provide(self, request: Request, body: d.Provide) -> d.Provided:
        return await self._api.provide(body, call_of(request))

    async def _withdraw(self, request: Request) -> d.DhtDone:
        key = await self._read(request, "provide", lambda asked: _key(asked, "key"))
        return await self._api.withdraw(d.Withdraw(key), call_of(request))

    async def _find(self, request: Request) -> d.Providers | StreamResponse:
        call = call_of(request)
        find = await self._read(request, "find", _find_of)
        if _EVENTS not in request.headers.get(b"accept", b""):
            return await self._api.find(find, call)
        await self._api.allow(call, "find")
        return StreamResponse(200, _events(self._api.stream(find, call)), _EVENTS, ((b"Cache-Control", b"no-store"),))

    async def _read(self, request: Request, op: str, read: Callable[[Request], T]) -> T:
        """Read what is asked for; what is wrong with it is told only to somebody who may ask."""
        try:
            return read(request)
        except Malformed:
            await self._api.allow(call_of(request), op)
            raise

    async def _nodes(self, request: Request) -> d.DhtNodes:
        key = await self._read(request, "admin", lambda asked: _key(asked, "id"))
        return await self._api.nodes(d.FindNodes(key), call_of(request))

    async def _table(self, request: Request) -> TableShown:
        await self._api.allow(call_of(request), "admin")
        return table_shown(self._api, self._touched_at)

    async def _records(self, request: Request) -> RecordsShown:
        await self._api.allow(call_of(request), "admin")
        return records_shown(self._api)

    async def _status(self, request: Request) -> d.DhtStatus:
        return await self._api.status(d.DhtStatusAsk(), call_of(request))

    async def _ping(self, request: Request, body: d.DhtPing) -> d.DhtPong:
        return await self._api.ping(body, call_of(request))


async def _events(found: AsyncIterator[d.Provider | d.Providers]) -> AsyncIterator[bytes]:
    """Write the answers as server-sent events: `provider` for each record, `done` with the whole answer."""
    try:
        async for each in found:
            name = b"done" if isinstance(each, d.Providers) else b"provider"
            yield b"event: " + name + b"\ndata: " + _encode(each) + b"\n\n"
    except PenstockError as error:
        yield b"event: error\ndata: " + _encode({"code": error.code, "detail": error.detail}) + b"\n\n"


def _find_of(request: Request) -> d.Find:
    query = request.query_params()
    if unknown := set(query) - set(_QUERY):
        raise Malformed(f"There is no query parameter {min(unknown)!r} here.", reason="bad_query")
    numbers = {name: _number(name, text) for name, text in query.items()}
    return d.Find(_key(request, "key"), **numbers)


def _key(request: Request, name: str) -> str:
    text = request.params[name]
    parse_key(text)
    return text


def _number(name: str, text: str) -> int:
    low, high = _QUERY[name]
    if not text.isdigit() or len(text) > 5 or not low <= int(text) <= high:
        raise Malformed(f"{name} is a number from {low} to {high}.", reason="bad_query")
    return int(text)
