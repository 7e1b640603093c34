"""svc-dht through the gateway: the same paths, bodies and answers as at its own door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.contracts import dht as d
from penstock.net.server.route import Route
from penstock.services.omnigate.own.calling import call_of, convert, present

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.services.omnigate.own.calling import DownstreamCalls

T = TypeVar("T")
_ERRORS: Final = (
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
_PARAMS: Final = {"key": d.DhtKey, "id": d.NodeIdText}


class GatewayDhtRoutes:
    """`/v1/dht/*`."""

    def __init__(self, dht: d.Dht | None, downstream: DownstreamCalls) -> None:
        """Stand in front of the contract; without a svc-dht every route says so."""
        self._dht = dht
        self._downstream = downstream

    def routes(self) -> list[Route]:
        """Describe the routes."""
        rows: tuple[tuple[str, str, Any, Any, type, str, str], ...] = (
            ("GET", "/v1/dht/providers/{key}", self._find, None, d.Providers, "find", "Find who provides a key."),
            (
                "POST",
                "/v1/dht/provide",
                self._provide,
                d.Provide,
                d.Provided,
                "provide",
                "Announce that this node provides a key.",
            ),
            (
                "DELETE",
                "/v1/dht/provide/{key}",
                self._withdraw,
                None,
                d.DhtDone,
                "provide",
                "Withdraw an announcement.",
            ),
            ("GET", "/v1/dht/nodes/{id}", self._nodes, None, d.DhtNodes, "admin", "Find the nodes nearest to an id."),
            ("GET", "/v1/dht/status", self._status, None, d.DhtStatus, "admin", "How the node stands in the network."),
            ("POST", "/v1/dht/ping", self._ping, d.DhtPing, d.DhtPong, "admin", "Dial an address and see who answers."),
        )
        return [
            Route(
                method=method,
                path=path,
                handler=handler,
                body=body,
                answer=answer,
                op=op,
                summary=text,
                errors=_ERRORS,
                params=_PARAMS,
                query=d.Find if answer is d.Providers else None,
            )
            for method, path, handler, body, answer, op, text in rows
        ]

    async def _call(self, op: str, work: Callable[[d.Dht], Awaitable[T]], *, idempotent: bool = True) -> T:
        dht = present(self._dht, "svc-dht")
        return await self._downstream.call(op, lambda: work(dht), idempotent=idempotent)

    async def _find(self, request: Request) -> d.Providers:
        find = convert({**request.query_params(), "key": request.params["key"]}, d.Find)
        return await self._call("find", lambda dht: dht.find(find, call_of(request)))

    async def _provide(self, request: Request, body: d.Provide) -> d.Provided:
        return await self._call("provide", lambda dht: dht.provide(body, call_of(request)))

    async def _withdraw(self, request: Request) -> d.DhtDone:
        gone = convert({"key": request.params["key"]}, d.Withdraw)
        return await self._call("withdraw", lambda dht: dht.withdraw(gone, call_of(request)), idempotent=False)

    async def _nodes(self, request: Request) -> d.DhtNodes:
        near = convert({"node_id": request.params["id"]}, d.FindNodes)
        return await self._call("nodes", lambda dht: dht.nodes(near, call_of(request)))

    async def _status(self, request: Request) -> d.DhtStatus:
        return await self._call("status", lambda dht: dht.status(d.DhtStatusAsk(), call_of(request)))

    async def _ping(self, request: Request, body: d.DhtPing) -> d.DhtPong:
        return await self._call("ping", lambda dht: dht.ping(body, call_of(request)))
