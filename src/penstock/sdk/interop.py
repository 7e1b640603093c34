"""svc-interop for users: webhook endpoints, the last deliveries, and objects through the bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote, urlencode

from penstock.contracts import interop as i
from penstock.contracts.interop_bodies import PutAnswer
from penstock.kernel.errors import Integrity, Malformed
from penstock.sdk.calling import Caller, PreparedCall
from penstock.sdk.values import a_text, in_words
from penstock.wire.ids import address_of, parse_address

_OCTETS: Final = b"application/octet-stream"
# A large object gets a second for each of these on top of the call's own time.
_SLOW_BYTES_PER_S: Final = 1 << 20
_STREAM_BYTES: Final = 64 << 20


class InteropClient:
    """Webhooks and what became of them. All but `put` and `get` need a token with op=admin."""

    def __init__(self, caller: Caller) -> None:
        """Call through this; it is not owned."""
        self._caller = caller

    # --- webhooks

    async def endpoints(self) -> tuple[i.EndpointShown, ...]:
        """List the endpoints, with counts of their deliveries."""
        return (await self._caller.json(_get("/v1/webhooks"), i.EndpointList)).endpoints

    async def deliveries(
        self, endpoint: str | None = None, *, outcome: i.WebhookOutcome | None = None, limit: int = 50
    ) -> tuple[i.DeliveryShown, ...]:
        """List the last deliveries, newest first; up to 1,000 are held."""
        asked = {"endpoint": endpoint, "outcome": outcome, "limit": limit}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return (await self._caller.json(_get(f"/v1/webhooks/deliveries?{query}"), i.DeliveryList)).deliveries

    async def delivery(self, delivery_id: str) -> i.DeliveryOpened:
        """Show one delivery with its event, by its id or corr_id; NotFound when it is no longer held."""
        return await self._caller.json(_get(f"/v1/webhooks/deliveries/{quote(delivery_id, safe='')}"), i.DeliveryOpened)

    async def replay(self, delivery_id: str) -> i.DeliveryReplayed:
        """Put the event of a delivery into its topic once more; Conflict when no event was kept."""
        path = f"/v1/webhooks/deliveries/{quote(delivery_id, safe='')}/replay"
        return await self._caller.json(PreparedCall(path=path), i.DeliveryReplayed)

    async def pause(self, endpoint: str) -> i.EndpointShown:
        """Let no webhook of an endpoint in: they get 503 until it is resumed, or the service restarts."""
        return await self._turn(endpoint, "pause")

    async def resume(self, endpoint: str) -> i.EndpointShown:
        """Let the webhooks of an endpoint in again."""
        return await self._turn(endpoint, "resume")

    async def _turn(self, endpoint: str, way: str) -> i.EndpointShown:
        path = f"/v1/webhooks/endpoints/{quote(endpoint, safe='')}/{way}"
        return await self._caller.json(PreparedCall(path=path, idempotent=True), i.EndpointShown)

    # --- objects

    async def put(self, data: bytes | AsyncIterator[bytes], *, expect: str | None = None) -> str:
        """Store bytes, whole or in pieces; returns their address. With `expect`, only if that is their address."""
        whole = isinstance(data, bytes)
        if not whole and not isinstance(data, AsyncIterator):
            raise Malformed(f"put takes bytes, or an async iterator of bytes, not {in_words(data)}.")
        wanted = address_of(data) if isinstance(data, bytes) and expect is None else expect
        headers = () if wanted is None else ((b"X-Expect-Addr", parse_address(wanted).encode("ascii")),)
        wait_s = (len(data) if isinstance(data, bytes) else _STREAM_BYTES) / _SLOW_BYTES_PER_S
        ask = PreparedCall(path="/put", body=data, kind=_OCTETS, headers=headers, idempotent=whole, wait_s=wait_s)
        return (await self._caller.json(ask, PutAnswer)).address

    async def get(self, address: str) -> bytes:
        """Read an object, which is checked against its address."""
        body = (await self._caller.ask(_get(f"/o/{parse_address(a_text('An address', address))}"))).body
        if address_of(body) != address:
            raise Integrity("The object was changed on its way.")
        return body


def _get(path: str) -> PreparedCall:
    return PreparedCall(method="GET", path=path, idempotent=True)
