"""svc-dht for users: announce, withdraw and find the providers of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from penstock.contracts import dht as d
from penstock.contracts.call import NOBODY
from penstock.kernel.errors import Malformed
from penstock.sdk.calling import Caller, PreparedCall, post
from penstock.sdk.values import in_words


class DhtClient:
    """Who provides what. A key is 64 hex digits, or the `b3:` address of an object."""

    def __init__(self, caller: Caller) -> None:
        """Call through this; it is not owned."""
        self._caller = caller

    async def provide(self, key: str, *, addrs: Sequence[str] | None = None, ttl_s: int | None = None) -> d.Provided:
        """Announce a key until it is withdrawn. Repeating it only renews the announcement."""
        request = d.Provide(key, None if addrs is None else list(addrs), ttl_s)
        return await self._caller.json(post("/v1/dht/provide", request, NOBODY, idempotent=True), d.Provided)

    async def withdraw(self, key: str) -> d.DhtDone:
        """Take an announcement back; NotFound when the node does not announce it."""
        ask = PreparedCall(method="DELETE", path=f"/v1/dht/provide/{_in_path(key)}")
        return await self._caller.json(ask, d.DhtDone)

    async def find(self, key: str, *, limit: int | None = None, wait_ms: int = 2000, paths: int = 1) -> d.Providers:
        """Find providers: the first verified set, or with `limit` so many as there are up to it."""
        query = {"wait_ms": wait_ms, "paths": paths, **({} if limit is None else {"limit": limit})}
        path = f"/v1/dht/providers/{_in_path(key)}?{urlencode(query)}"
        ask = PreparedCall(method="GET", path=path, idempotent=True, wait_s=wait_ms / 1000)
        return await self._caller.json(ask, d.Providers)

    async def nodes(self, node_id: str) -> d.DhtNodes:
        """Find the nodes nearest to an id."""
        return await self._caller.json(_get(f"/v1/dht/nodes/{_in_path(node_id)}"), d.DhtNodes)

    async def status(self) -> d.DhtStatus:
        """Tell how the node stands in the network."""
        return await self._caller.json(_get("/v1/dht/status"), d.DhtStatus)

    async def table(self) -> dict[str, Any]:
        """Read the routing table."""
        return await self._caller.json(_get("/v1/dht/table"), dict[str, Any])

    async def records(self) -> dict[str, Any]:
        """Read the records the node keeps for others, and its own."""
        return await self._caller.json(_get("/v1/dht/records"), dict[str, Any])

    async def ping(self, host: str, port: int) -> d.DhtPong:
        """Have the node dial an address and prove who is there."""
        return await self._caller.json(post("/v1/dht/ping", d.DhtPing(host, port), NOBODY, idempotent=True), d.DhtPong)


def _in_path(key: object) -> str:
    if not isinstance(key, str):
        raise Malformed(f"A key or node id is a text of 64 hex digits, not {in_words(key)}.")
    return quote(key, safe=":")


def _get(path: str) -> PreparedCall:
    return PreparedCall(method="GET", path=path, idempotent=True)
