"""Where a verifier gets keys and floors from: `capability.issuer` may be a URL, a socket or a file."""

from __future__ import annotations

import ssl
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
from penstock.kernel.errors import DownstreamUnavailable, Malformed
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.calls.origin import parse_url
from penstock.net.hosts import is_loopback
from penstock.net.oap.client import OapClient
from penstock.rpc.oap import remote_passport
from penstock.rpc.remote import oap_place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.net.calls.client import Answer

_OAP: Final = "oap:"
# Over these nobody proves who he is.
_PLAIN: Final = ("http:", "oap:")
_HTTP: Final = ("http://", "https://", "unix:")
_BYTES_MAX: Final = 8 << 20
# Shorter than the lease: an issuer that comes back is found before what it vouched for has lapsed.
_BREAKER: Final = BreakerPolicy(samples_min=5, timeouts_in_a_row=2, open_s=1.0)


@dataclass(frozen=True, slots=True)
class Issuer:
    """A source of keys and floors, and how to close it."""

    fetch: Fetch
    close: Callable[[], Awaitable[None]]


def issuer_at(address: str, inventory: Inventory, pool: Pool, certificate: Path | None = None) -> Issuer:
    """Read `http(s)://host:port`, `unix:/socket` (HTTP), `oap:/socket`, `oap://host:port`, or the path of a file.

    Whoever answers here says which keys are good and what is revoked. So an address beyond this machine has to prove
    who it is: by https, under the system's authorities or under the one `certificate`.
    """
    if address.startswith(_HTTP):
        _check_private(address)
        return _over_http(address.rstrip("/"), inventory, certificate)
    if address.startswith(_OAP):
        _check_private(address)
        return _over_oap(address, inventory)
    return Issuer(from_file(Path(address), pool), _nothing)


def _check_private(address: str) -> None:
    """Refuse an address that anybody on the network could answer for."""
    scheme, slashes, _ = address.partition("//")
    if not slashes or scheme not in _PLAIN:
        return
    host = parse_url(f"http:{address.removeprefix(scheme)}")[0].host
    if not is_loopback(host):
        raise Malformed(
            f"{address!r} is neither https nor on this machine: anybody on the way could say which keys are good. "
            "Use https; capability.issuer_certificate pins a certificate of your own"
        )


async def _nothing() -> None:
    """Close nothing: a file is opened and closed at each read."""


def _over_http(base: str, inventory: Inventory, certificate: Path | None) -> Issuer:
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
        tls=None if certificate is None else _pinned(certificate),
    )
    client = HttpClient(inventory, options)
    known = _KnownKeys()

    async def fetch(since: int) -> PublishedTrust:
        keys = known.taken(await client.request("GET", f"{base}/v1/keys", headers=known.headers(), timeout_s=FETCH_S))
        feed = await client.request("GET", f"{base}/v1/passport/revocations?since={since}", timeout_s=FETCH_S)
        return PublishedTrust(0, keys, _good(feed).json(Revocations))

    return Issuer(fetch, client.close)


def _pinned(certificate: Path) -> ssl.SSLContext:
    """Trust this certificate, or what it signed, and no other authority."""
    try:
        return ssl.create_default_context(cafile=certificate)
    except (OSError, ssl.SSLError) as exc:
        raise Malformed(f"capability.issuer_certificate, {certificate}, cannot be read: {exc}") from exc


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
