"""Where a verifier's keys and floors come from: `capability.issuer` as a URL, a socket or a file, read the same way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.capability.following import (
    FETCH_S,
    Fetch,
    PublishedTrust,
    from_file,
    from_passport,
)
from penstock.contracts.passport import KeySet, Revocations
from penstock.kernel.breaker import BreakerPolicy
from penstock.kernel.errors import DownstreamUnavailable
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.calls.origin import parse_url
from penstock.net.oap.client import OapClient
from penstock.rpc.oap import remote_passport
from penstock.rpc.remote import oap_place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.net.calls.client import Answer

_OAP: Final = "oap:"
_HTTP: Final = ("http://", "https://", "unix:")
_BYTES_MAX: Final = 8 << 20
# Shorter than the lease: an issuer that comes back is found before what it vouched for has lapsed.
_BREAKER: Final = BreakerPolicy(samples_min=5, timeouts_in_a_row=2, open_s=1.0)


@dataclass(frozen=True, slots=True)
class Issuer:
    """A source to follow, and how to let it go."""

    fetch: Fetch
    close: Callable[[], Awaitable[None]]


def issuer_at(address: str, inventory: Inventory, pool: Pool) -> Issuer:
    """Read `http(s)://host:port`, `unix:/socket` (HTTP), `oap:/socket`, `oap://host:port`, or the path of a file."""
    if address.startswith(_HTTP):
        return _over_http(address.rstrip("/"), inventory)
    if address.startswith(_OAP):
        return _over_oap(address, inventory)
    return Issuer(from_file(Path(address), pool), _nothing)


async def _nothing() -> None:
    """Let nothing go: a file is opened and closed at each read."""


def _over_http(base: str, inventory: Inventory) -> Issuer:
    """Ask svc-passport's open routes; the keys only when they have changed."""
    # Over a Unix socket the target comes after a colon.
    base = f"{base}:" if base.startswith("unix:") else base
    parse_url(f"{base}/v1/keys")
    # No retry: the next poll is one, and it comes within half a second.
    options = ClientOptions(
        service="passport",
        op="issuer",
        origins_max=1,
        connections_max=1,
        timeout_s=FETCH_S,
        connect_timeout_s=FETCH_S / 2,
        body_bytes_max=_BYTES_MAX,
        tries_max=1,
        breaker=_BREAKER,
    )
    client = HttpClient(inventory, options)
    known = _KnownKeys()

    async def fetch(since: int) -> PublishedTrust:
        keys = known.taken(await client.request("GET", f"{base}/v1/keys", headers=known.headers(), timeout_s=FETCH_S))
        feed = await client.request("GET", f"{base}/v1/passport/revocations?since={since}", timeout_s=FETCH_S)
        return PublishedTrust(0, keys, _good(feed).json(Revocations))

    return Issuer(fetch, client.close)


class _KnownKeys:
    """The last keys that came, by their tag: an unchanged set is not sent again."""

    def __init__(self) -> None:
        self._etag = b""
        self._keys = KeySet(())

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"If-None-Match", self._etag)] if self._etag else []

    def taken(self, answer: Answer) -> KeySet:
        if answer.status == 304 and self._etag:
            return self._keys
        self._keys = _good(answer).json(KeySet)
        self._etag = answer.headers.get(b"etag", b"")
        return self._keys


def _good(answer: Answer) -> Answer:
    if answer.status != 200:
        raise DownstreamUnavailable(f"The issuer answered {answer.status}.", status=502, reason="issuer")
    return answer


def _over_oap(address: str, inventory: Inventory) -> Issuer:
    """Ask svc-passport over its framed contract."""
    client = OapClient(inventory, replace(oap_place(address), call_timeout_s=FETCH_S))
    return Issuer(from_passport(remote_passport(client)), client.close)
